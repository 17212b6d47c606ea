//! What a command may not write although it lies where agents write: kept while it runs, and told when it was written all
//! the same.

use std::{path::PathBuf, time::Duration};

use protocol::{AgentStreamEvent, NoticeLevel, Running};

use super::Toolbox;
use crate::{
    confinement,
    home::private_folder,
    memory::CURATED,
    workspace::{Keeper, Overstep, Repair, SESSIONS},
};

/// Oversteps of one command that are told one by one.
const MAX_TOLD: usize = 5;

/// A supervisor that nobody listens to any more has ended its command by then.
const ABANDONED: Duration = Duration::from_secs(13);

/// The files that are closed to one command. When it is dropped, because the attempt was given up, they are put back once
/// the command is dead.
pub struct Kept(Option<Keeper>);

/// Looks at them before a command. The reason when that cannot be done: then nothing could be put back.
pub async fn keep(toolbox: &Toolbox) -> Result<Kept, String> {
    let (workspace, closed) = (toolbox.context.workspace.clone(), toolbox.closed());
    // A file tree of its own has what is protected read only, or the command does not start. Landlock leaves a granted
    // folder's own files to it.
    let walled = confinement::look(&toolbox.hold).layers.namespaces;
    let attempt = Running { task_id: toolbox.context.task_id.clone(), attempt: toolbox.context.attempt };
    let keep = move || workspace.keep(closed, walled, Some(attempt));
    match tokio::task::spawn_blocking(keep).await {
        Ok(Ok(keeper)) => Ok(Kept(Some(keeper))),
        Ok(Err(error)) => Err(format!("not started: what it may not change cannot be looked at: {error}")),
        Err(error) => Err(format!("not started: what it may not change cannot be looked at: {error}")),
    }
}

/// What of it a sandbox makes read only: what is there after [`keep`]. Of all sessions' folders `write` gets back the own one.
pub fn protect(toolbox: &Toolbox, write: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, String> {
    let (closed, workspace) = (toolbox.closed(), toolbox.context.home.workspace());
    let files = closed.files.iter().map(|file| workspace.join(file));
    // What is no file is another command's work by now, and will be put away when that ends.
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let mut protect: Vec<PathBuf> = files.filter(is_file).collect();
    if let Some(session) = &closed.session {
        let own = workspace.join(SESSIONS).join(session);
        private_folder(&own).map_err(|error| format!("cannot make {}: {error}", own.display()))?;
        protect.push(workspace.join(SESSIONS));
        write.push(own);
    }
    Ok(protect)
}

impl Kept {
    /// The command was never started.
    pub fn release(mut self) {
        if let Some(keeper) = self.0.take() {
            keeper.release();
        }
    }

    /// When everything of the command is dead: puts back what it may not change, makes proposals of it, and says so, here
    /// for the model and by a notice for people.
    pub async fn put_back(mut self, toolbox: &Toolbox) -> Vec<String> {
        let Some(keeper) = self.0.take() else { return Vec::new() };
        let over = match tokio::task::spawn_blocking(move || keeper.put_back()).await {
            Ok(over) => over,
            Err(error) => {
                tracing::error!(%error, "what a command may not change could not be compared");
                return Vec::new();
            }
        };
        let mut told = Vec::new();
        let more = over.len().saturating_sub(MAX_TOLD);
        for (n, one) in over.into_iter().enumerate() {
            let became = became(toolbox, one).await;
            if n < MAX_TOLD {
                told.push(became);
            }
        }
        if more > 0 {
            told.push(format!("the same of {more} more files"));
        }
        for text in &told {
            let text = format!("While a command ran: {text}.");
            toolbox.context.sink.emit(AgentStreamEvent::Notice { level: NoticeLevel::Warning, text }).await;
        }
        told
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Without a runtime this process ends: then the next one finds the note.
        let Some((keeper, runtime)) = self.0.take().zip(tokio::runtime::Handle::try_current().ok()) else { return };
        runtime.spawn(async move {
            tokio::time::sleep(ABANDONED).await;
            let over = tokio::task::spawn_blocking(move || keeper.put_back()).await.unwrap_or_default();
            over.iter().for_each(|one| tracing::warn!("While a command ran that was given up: {}", one.words()));
        });
    }
}

/// What became of it, in words.
async fn became(toolbox: &Toolbox, one: Overstep) -> String {
    let back = one.words();
    let Overstep { path, wrote, repair } = one;
    if matches!(repair, Repair::Left | Repair::Cleared) {
        return back;
    }
    let proposed = match (&wrote, &toolbox.plan, &toolbox.memory) {
        (Some(text), _, Some(memory)) if CURATED.contains(&path.as_str()) => {
            Some(memory.propose_written(&path, text).await)
        }
        (Some(text), Some(plan), _) if plan.path() == path => {
            let change = |_: &str| Ok(text.clone());
            Some(plan.change("Written into the file while a command ran.", change).await.map(drop))
        }
        _ => None,
    };
    match proposed {
        Some(Ok(())) => format!("{back}; what was written there is proposed to the operators"),
        Some(Err(why)) => format!("{back}; what was written there is kept on the viber and not proposed: {why}"),
        None => format!("{back}: it is not this session's to change"),
    }
}
