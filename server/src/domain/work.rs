//! Sessions, tasks, what is reported of them and what goes into a request.

pub mod approval;
pub mod assemble;
pub mod committed;
pub mod context;
pub mod delegation;
pub mod idempotency;
pub mod logbook;
pub mod playbook_run;
pub mod search_terms;
pub mod session;
pub mod task;
pub mod task_message;
