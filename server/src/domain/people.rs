//! Who acts: accounts, roles, logins, actors.

pub mod accounts;
pub mod actor;
pub mod input;
pub mod login;
pub mod name;
pub mod prices;
pub mod quota;
