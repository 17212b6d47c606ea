//! Delivery as `protocol.md` promises it, seen by a daemon that speaks it rightly or wrongly on command.

mod commands;
mod endings;
mod events;
mod growing_text;
mod handshake;
mod keyboard;
mod large_messages;
mod lies;
mod outputs;
mod restarts;
mod rows;
mod session_pages;
