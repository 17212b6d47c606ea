//! Whether an attempt that waited when a former process ended may go on: files of the machine may say otherwise by now.

use std::{path::Path, sync::Arc};

use protocol::{ErrorCode, TaskError, TaskSubmit};

use crate::{
    config::{Agent, ConfigSnapshot},
    engine::waiting::WaitingRecord,
};

/// The agent that goes on, with the model that answered before; or why the task ends.
pub async fn admit(record: &WaitingRecord, files: &ConfigSnapshot) -> Result<Arc<Agent>, TaskError> {
    let asked = super::admit(&record.submit, files)?;
    let model = &record.model;
    let agent = if asked.model == *model {
        asked
    } else if record.is_fallback && asked.fallback_model.as_ref() == Some(model) {
        Arc::new(Agent { fallback_model: None, ..Agent::clone(&asked.with_model(model)) })
    } else {
        super::admit(&TaskSubmit { model: Some(model.clone()), ..record.submit.clone() }, files)?
    };
    let agent = record.space.as_ref().map_or_else(|| agent.clone(), |space| agent.working_in(space));
    for space in &record.spaces {
        if !agent.spaces.contains(space) {
            let why = format!("its agent {} may no longer work in {}", agent.id, space.display());
            return Err(gone(&why, "Give the folder to the agent again (`spaces` of its file)"));
        }
        if !is_folder(space).await {
            return Err(gone(&format!("{} is no folder any more", space.display()), "Put the folder back"));
        }
    }
    Ok(agent)
}

async fn is_folder(path: &Path) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|found| found.is_dir())
}

fn gone(why: &str, suggestion: &str) -> TaskError {
    TaskError {
        code: ErrorCode::NotFound,
        message: format!("The task waited when the daemon ended, and cannot go on: {why}. Nothing was done since."),
        retryable: true,
        suggestion: Some(format!("{suggestion}, then retry the task.")),
        details: None,
    }
}
