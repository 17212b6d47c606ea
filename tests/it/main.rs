//! The suite: stories of people and machines, played with the real programs on both databases.

/// Each named story, once on SQLite and once on PostgreSQL.
macro_rules! on_both_databases {
    ($($story:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() { super::$story(board_tests::Engine::Sqlite).await; })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() { super::$story(board_tests::Engine::Postgres).await; })*
        }
    };
}
pub(crate) use on_both_databases;

mod accounts;
mod adapters;
mod api;
mod artifacts;
mod asks;
mod attacks;
mod authority;
mod browser;
mod calls;
mod cases;
mod cli;
mod composer;
mod context;
mod daemon;
mod deciding;
mod delivery;
mod faults;
mod harness;
mod import;
mod kill;
mod library;
mod lists;
mod mcp;
mod mcp_server;
mod memory;
mod mesh;
mod packaging;
mod plan;
mod playbooks;
mod presence;
mod prices;
mod reading;
mod safety;
mod search;
mod skills;
mod spaces;
mod stores;
mod talk;
mod tidy;
mod workspace;
