//! A skill that is a tool: its script as a command, with the arguments of a call as variables.

use std::{ffi::OsString, sync::Arc};

use serde_json::Value;

use super::{ShellCall, proposed, run_call};
use crate::{
    skills::Skill,
    tools::{
        CHANGED_SKILL, CallBounds, CallProposal, INTERNAL_FAILURE, ProposalSubject, ToolErrorKind, ToolFailure,
        ToolOutcome, Toolbox,
    },
};

/// The variable with the skill's folder.
const FOLDER_VARIABLE: &str = "SKILL_DIR";

/// Runs the skill's script, as `shell` runs a command.
pub async fn run_skill(
    toolbox: &Toolbox,
    call_id: &str,
    (skill, args): (&Arc<Skill>, &Value),
    bounds: Option<&CallBounds>,
) -> ToolOutcome {
    let call = match check(toolbox, skill, args) {
        Ok(call) => call,
        Err(why) => return ToolOutcome::refused(why),
    };
    if let Some(bounds) = bounds {
        match digest(skill).await {
            Ok(digest) if digest.is_some() && bounds.skill == digest => {}
            Ok(_) => {
                toolbox.rescan_skills().await;
                let why = "not run: the files of the skill are others by now, which nobody decided about";
                return ToolOutcome::refused(ToolErrorKind::Permission.because(why));
            }
            Err(why) => return ToolOutcome::refused(why),
        }
    }
    let looked = {
        let skill = skill.clone();
        tokio::task::spawn_blocking(move || skill.is_usable()).await
    };
    if !looked.unwrap_or(false) {
        toolbox.rescan_skills().await;
        return ToolOutcome::refused(ToolErrorKind::Permission.because(format!("not run: {CHANGED_SKILL}")));
    }
    run_call(toolbox, call_id, call, bounds).await
}

/// What the call would run, for a person to decide about. Nothing is started.
pub async fn propose_skill(toolbox: &Toolbox, skill: &Arc<Skill>, args: &Value) -> Result<CallProposal, ToolFailure> {
    let call = check(toolbox, skill, args)?;
    // Whoever decides would see one script and allow another.
    let Some(digest) = digest(skill).await? else {
        toolbox.rescan_skills().await;
        let why = ToolErrorKind::Unknown.because("the files of the skill have just changed");
        return Err(ToolFailure { suggestion: Some("Call it again."), ..why });
    };
    let script = skill.script().map(|script| script.text.clone()).unwrap_or_default();
    let mut names = proposed::variable_names(toolbox);
    names.retain(|name| !call.withheld.contains(name));
    names.extend(call.variables.iter().map(|(name, _)| name.to_string_lossy().into_owned()));
    names.sort();
    names.dedup();
    let given = skill.variables(args)?;
    let given: Vec<String> =
        given.iter().map(|(name, value)| format!("{name}={}\n", proposed::quoted(value))).collect();
    let (name, given) = (&skill.name, given.concat());
    let preview = format!("# the skill {name}, SHA-256 {digest}\n{given}\n{script}");
    Ok(CallProposal {
        cwd: call.cwd,
        subject: ProposalSubject::Command(script),
        variables: names,
        files: Vec::new(),
        preview,
        skill: Some(digest),
    })
}

fn check(toolbox: &Toolbox, skill: &Skill, args: &Value) -> Result<ShellCall, ToolFailure> {
    let script = skill.script().ok_or("the skill is no script")?;
    let given = skill.variables(args)?;
    let mut variables: Vec<(OsString, OsString)> =
        given.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    variables.push((FOLDER_VARIABLE.into(), skill.used_folder().into()));
    // Last: what the machine's owner set goes before what a model chose.
    if let Some(own) = toolbox.context.config.skills.get(&skill.name) {
        variables.extend(own.0.iter().map(|(name, value)| (name.into(), value.into())));
    }
    Ok(ShellCall {
        argv: vec![script.shell.into(), "-c".into(), script.text.clone().into()],
        cwd: toolbox.roots().working_directory()?.to_owned(),
        seconds: toolbox.context.agent.timeouts.shell,
        variables,
        withheld: skill.parameter_names(),
    })
}

/// The digest of the skill's files as they are now; `None` when its script was read from others. Broken files have the script
/// of the version before them.
async fn digest(skill: &Arc<Skill>) -> Result<Option<String>, ToolFailure> {
    let read = {
        let skill = skill.clone();
        let reading = tokio::task::spawn_blocking(move || skill.digest_now());
        reading.await.map_err(|_| ToolErrorKind::Unknown.because(INTERNAL_FAILURE))?
    };
    let digest = read
        .map_err(|error| ToolErrorKind::Unknown.because(format!("the files of the skill cannot be read: {error}")))?;
    Ok((skill.error.is_some() || digest == skill.digest).then_some(digest))
}
