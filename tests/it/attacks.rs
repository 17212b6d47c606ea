//! What attackers try, by the numbers of `design/reliability.md`: each case's expected result is its assertion.

mod browser;
mod content;
mod login;
mod watch;
