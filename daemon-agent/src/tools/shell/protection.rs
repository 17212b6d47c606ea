//! Protects files that a command must not write although they lie where agents may write: they are protected while the
//! command runs, and restored and reported if they were written all the same.

use std::{path::PathBuf, time::Duration};

use protocol::{AgentStreamEvent, AttemptRef, NoticeLevel};

use super::Toolbox;
use crate::{
    confinement,
    home::private_folder,
    memory::CURATED_NAMES,
    report::{
        memory::MemoryEditor,
        plan::{PLAN_FILE, PlanEditor, PlanOutcome},
    },
    workspace::{CommandOwner, ProtectedFiles, Repair, SESSIONS_FOLDER, Violation},
};

/// Most violations of one command that are reported individually.
const MAX_REPORTED_VIOLATIONS: usize = 5;

/// How long an abandoned supervisor takes to end its command.
const SUPERVISOR_EXIT_TIMEOUT: Duration = Duration::from_secs(13);

/// The files that are protected from one command. If this is dropped because the attempt was given up, they are put
/// back once the command is dead.
pub struct CommandProtection {
    files: Option<ProtectedFiles>,
    plan: Option<PlanEditor>,
}

/// Records their state before a command runs. If that fails, nothing could be put back, so the error keeps the command
/// from starting.
pub async fn keep(toolbox: &Toolbox) -> Result<CommandProtection, String> {
    let (workspace, mut protected) = (toolbox.context.workspace.clone(), toolbox.protected_paths());
    // The plan of sessions that began on the machine is not this one's: it is read-only where the sandbox can make it so,
    // but what an editor saves in it meanwhile is not put back, since nobody here could take it up.
    if let Some(plan) = toolbox.plan.as_ref().filter(|plan| !plan.proposes()) {
        protected.files.retain(|file| file != PLAN_FILE || plan.path() == PLAN_FILE);
    }
    // With a file tree of its own, a command sees protected files read-only or does not start. Landlock cannot protect
    // files directly in a granted folder.
    let walled = confinement::look(&toolbox.hold).layers.namespaces;
    let owner = CommandOwner {
        attempt: AttemptRef { task_id: toolbox.context.task_id.clone(), attempt: toolbox.context.attempt },
        agent_id: toolbox.context.agent.id.clone(),
        plan: toolbox.plan.as_ref().map(|plan| plan.path().to_owned()),
        proposes_memory: toolbox.memory.as_ref().is_some_and(MemoryEditor::proposes),
    };
    let keep = move || workspace.keep(protected, walled, Some(owner));
    match tokio::task::spawn_blocking(keep).await {
        Ok(Ok(keeper)) => Ok(CommandProtection { files: Some(keeper), plan: toolbox.plan.clone() }),
        Ok(Err(error)) => Err(format!("not started: what it must not change cannot be examined: {error}")),
        Err(error) => Err(format!("not started: what it must not change cannot be examined: {error}")),
    }
}

/// The files that a sandbox makes read-only: those that exist after [`keep`]. Of the sessions' folders, only its own is
/// added to `write`.
pub fn protect(toolbox: &Toolbox, write: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, String> {
    let (protected, workspace) = (toolbox.protected_paths(), toolbox.context.home.workspace());
    let files = protected.files.iter().map(|file| workspace.join(file));
    // Anything but a file was made by another command, and is removed when that one ends.
    let is_file = |path: &PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let mut protect: Vec<PathBuf> = files.filter(is_file).collect();
    if let Some(session) = &protected.session {
        let own = workspace.join(SESSIONS_FOLDER).join(session);
        private_folder(&own).map_err(|error| format!("cannot make {}: {error}", own.display()))?;
        protect.push(workspace.join(SESSIONS_FOLDER));
        write.push(own);
    }
    Ok(protect)
}

impl CommandProtection {
    /// The command was never started.
    pub fn release(mut self) {
        if let Some(keeper) = self.files.take() {
            keeper.release();
        }
    }

    /// To be called when everything of the command is dead: puts back what it must not change, proposes what it wrote,
    /// and reports both, to the model and in a notice for people.
    pub async fn put_back(mut self, toolbox: &Toolbox) -> Vec<String> {
        let Some(keeper) = self.files.take() else { return Vec::new() };
        let over = match tokio::task::spawn_blocking(move || keeper.put_back()).await {
            Ok(over) => over,
            Err(error) => {
                tracing::error!(%error, "what a command must not change could not be compared");
                return Vec::new();
            }
        };
        let mut reported = Vec::new();
        let more = over.len().saturating_sub(MAX_REPORTED_VIOLATIONS);
        for (n, one) in over.into_iter().enumerate() {
            let became = became(toolbox, one).await;
            if n < MAX_REPORTED_VIOLATIONS {
                reported.push(became);
            }
        }
        if more > 0 {
            reported.push(format!("and {more} more files in the same way"));
        }
        for text in &reported {
            let text = format!("While a command ran: {text}.");
            toolbox.context.sink.emit(AgentStreamEvent::Notice { level: NoticeLevel::Warning, text }).await;
        }
        reported
    }
}

impl Drop for CommandProtection {
    fn drop(&mut self) {
        // Without a runtime this process is ending: the next one finds the note.
        let Some((keeper, runtime)) = self.files.take().zip(tokio::runtime::Handle::try_current().ok()) else { return };
        let plan = self.plan.take();
        runtime.spawn(async move {
            tokio::time::sleep(SUPERVISOR_EXIT_TIMEOUT).await;
            let over = tokio::task::spawn_blocking(move || keeper.put_back()).await.unwrap_or_default();
            for one in over {
                tracing::warn!("while an abandoned command ran: {}{}", one.words(), one.whereabouts());
                let found = plan.as_ref().filter(|plan| plan.path() == one.path).zip(one.wrote.as_deref());
                // It may be a person's. Where it cannot be made again, a copy is kept.
                if let Some((plan, text)) = found
                    && let Err(why) = plan.take_up(text).await
                {
                    tracing::warn!("what was written into the plan meanwhile is not made again: {why}");
                }
            }
        });
    }
}

/// The outcome of a violation, in words.
async fn became(toolbox: &Toolbox, one: Violation) -> String {
    let (back, whereabouts) = (one.words(), one.whereabouts());
    let Violation { path, wrote, repair, .. } = one;
    if matches!(repair, Repair::Left | Repair::Cleared) {
        return back;
    }
    let proposed = match (&wrote, &toolbox.plan, &toolbox.memory) {
        (Some(text), _, Some(memory)) if CURATED_NAMES.contains(&path.as_str()) => {
            Some(memory.propose_written(&path, text).await)
        }
        (Some(text), Some(plan), _) if plan.path() == path => match plan.take_up(text).await {
            Ok(PlanOutcome::Same | PlanOutcome::Applied) => {
                return format!("{back}; what was written there leaves what people wrote, so it stands in the plan");
            }
            Ok(PlanOutcome::Proposed | PlanOutcome::Both) => Some(Ok(())),
            Err(why) => Some(Err(why)),
        },
        _ => None,
    };
    match proposed {
        Some(Ok(())) => format!("{back}; what was written there is proposed to the operators"),
        Some(Err(why)) => format!("{back}; what was written there is kept on the viber and not proposed: {why}"),
        None => format!("{back}: commands of this session may not change it{whereabouts}"),
    }
}
