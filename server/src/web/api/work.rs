//! Sessions, tasks, events, approvals and what a machine remembers.

pub(in crate::web::api) mod approvals;
pub(in crate::web) mod bus;
pub(in crate::web::api) mod compaction;
pub(in crate::web::api) mod events;
pub(in crate::web::api) mod imports;
pub(in crate::web::api) mod messages;
pub(in crate::web::api) mod pins;
pub(in crate::web::api) mod playbooks;
pub(in crate::web::api) mod search;
pub(in crate::web::api) mod sessions;
pub(in crate::web::api) mod tasks;
