//! Home, sessions, the conversation, and the stream that keeps them current.

pub(in crate::web::pages) mod asks;
pub(in crate::web::pages) mod comments;
pub(in crate::web::pages) mod conversation;
pub(in crate::web::pages) mod home;
pub(in crate::web::pages) mod imports;
pub(in crate::web::pages) mod live;
pub(in crate::web::pages) mod patches;
pub(in crate::web::pages) mod playbooks;
pub(in crate::web::pages) mod session;
pub(in crate::web::pages) mod sessions;
pub(in crate::web::pages) mod status_panel;
pub(in crate::web::pages) mod transcript;
