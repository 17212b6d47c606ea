//! Members, invitations, tokens, the audit and what a team uses.

pub(in crate::web::api) mod members;
pub(in crate::web::api) mod mesh;
pub(in crate::web::api) mod prices;
pub(in crate::web::api) mod quota;
