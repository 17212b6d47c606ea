//! Credentials: guessed, forged, planted, raced, and put where they do not belong.

mod first;
mod forged;
mod guessed;
mod sessions;
mod sweep;
