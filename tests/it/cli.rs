//! The command lines of both programs, as scripts and people use them.

mod doctor;
mod drafts;
mod keys;
mod leave;
mod looks;
mod remote;
mod results;
mod service;
mod task;
