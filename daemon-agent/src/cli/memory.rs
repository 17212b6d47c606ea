//! `memory search`: searches what an agent remembers, with or without a running daemon.

use std::sync::Arc;

use protocol::{MemoryRanking, MemorySearch, text::printable};
use tokio::sync::watch;

use super::{CliError, open};
use crate::{
    clock::Clock,
    config::{ConfigSnapshot, Variables},
    home::Home,
    memory::Memory,
    workspace::Workspace,
};

/// Searches and prints the results, best first.
pub async fn search(home: &Home, asked: MemorySearch, json: bool) -> Result<(), CliError> {
    if !home.root().exists() {
        return Err(CliError::Failed(format!("nothing is remembered yet: there is no {}", home.root().display())));
    }
    open(home)?;
    let read = ConfigSnapshot::read(home, &Variables::of_process());
    if !read.agents.contains_key(&asked.agent_id) {
        return Err(CliError::Usage(format!("this viber has no agent {:?}", asked.agent_id)));
    }
    let (_files, receiver) = watch::channel(Arc::new(read));
    let memory = Memory::new(home.clone(), Workspace::open(home), Clock::system(), receiver);
    let found = memory.search(&asked).await.map_err(CliError::Failed)?;
    if json {
        say!("{}", serde_json::to_string(&found).map_err(|error| CliError::Failed(error.to_string()))?);
        return Ok(());
    }
    for item in &found.items {
        let at = item.at.map(|at| format!(" {at}")).unwrap_or_default();
        say!("{}{at} {}", item.path, printable(&item.title));
        for line in printable(&item.excerpt).lines() {
            say!("    {line}");
        }
    }
    let by = if found.ranking == MemoryRanking::Meaning { "words and meaning" } else { "words" };
    say!("{} of {} passages, by {by}.", found.items.len(), found.known);
    Ok(())
}
