//! Hostile texts: what models, machines and people write is read, never obeyed.

mod address;
mod control_characters;
mod conversation;
mod names;
