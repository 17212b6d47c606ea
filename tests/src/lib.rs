//! What the tests are played with: real Boards, real daemons, a daemon that lies on command, a scripted model, people.
//!
//! Everything that is started here ends with its value, also when a test fails. Nothing here asserts anything about the
//! product; a harness function panics when it can't do what its name says, and shows the programs' own output then.

pub mod bench;
pub mod board;
pub mod browser;
pub mod canary;
pub mod disk;
pub mod fake_board;
pub mod fake_daemon;
pub mod fake_machine;
pub mod fake_slack;
pub mod fixture;
pub mod hostile_site;
pub mod invariants;
pub mod ledger;
pub mod llm;
pub mod person;
pub mod postgres;
pub mod postgres_server;
pub mod programs;
pub mod proxy;
pub mod raw;
pub mod reconnecting_daemon;
pub mod reconnecting_viewer;
pub mod seed;
pub mod spawns;
pub mod sqlite;
pub mod tasks;
pub mod viber;
pub mod wait;

pub use board::{Board, Engine};
pub use browser::Browser;
pub use disk::Disk;
pub use fake_board::FakeBoard;
pub use fake_daemon::FakeDaemon;
pub use fake_machine::FakeMachine;
pub use fake_slack::FakeSlack;
pub use fixture::{Fixture, Neighbour};
pub use invariants::ProcessWatch;
pub use llm::Llm;
pub use person::{Answer, Person};
pub use postgres_server::PostgresServer;
pub use proxy::Proxy;
pub use raw::RawConnection;
pub use spawns::Spawns;
pub use viber::Viber;
pub use wait::{eventually, within};
