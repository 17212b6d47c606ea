//! The command lines of both programs, as scripts and people use them.

mod completions;
mod doctor;
mod drafts;
mod first_start;
mod keys;
mod leave;
mod looks;
mod remote;
mod results;
mod service;
mod task;
