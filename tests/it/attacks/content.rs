//! Hostile texts: what models, machines and people write is read, never obeyed.

mod address;
mod lines;
mod names;
mod talk;
