//! The command lines of both programs, as scripts and people use them.

mod remote;
