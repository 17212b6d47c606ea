//! Commands as agents run them: the real supervisor, real processes, the real kernel.

mod ends;
mod files;
mod machine;
mod shell;
mod skills;
