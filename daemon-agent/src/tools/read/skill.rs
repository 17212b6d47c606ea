//! `load_skill`: the instructions of a skill, or one of its files.

use serde_json::Value;

use crate::tools::{CHANGED_SKILL, SkillAccess, ToolErrorKind, ToolFailure, ToolOutcome, args::CallArgs};

/// Gives what `args` name, and remembers that the session has it.
pub(in crate::tools) async fn run(skills: &SkillAccess, args: &Value) -> ToolOutcome {
    let all = skills.all.clone();
    let (skills, args) = (skills.clone(), args.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let args = CallArgs::new(&args, &["name", "path"])?;
        let (name, path) = (args.text("name")?, args.optional_text("path")?);
        let found = skills.offered.find(name).filter(|skill| skill.is_instructions() && skill.is_for_models());
        let Some(skill) = found else { return Err(unknown(&skills, name)) };
        if !skill.is_usable() {
            return Err(ToolErrorKind::Permission.because(format!("not loaded: {CHANGED_SKILL}")));
        }
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            return skill.load_file(path).map_err(|why| ToolErrorKind::NotFound.because(why));
        }
        let text = skill.load();
        skills.all.remember_loaded(&skills.session, name);
        skills.all.count(skill, true, skills.clock.now());
        Ok(text)
    });
    match reading.await {
        Ok(Ok(text)) => ToolOutcome::done(text),
        Ok(Err(why)) => {
            if why.kind == ToolErrorKind::Permission {
                all.rescan().await;
            }
            ToolOutcome::refused(why)
        }
        Err(_) => ToolOutcome::refused(ToolErrorKind::Unknown.because(crate::tools::INTERNAL_FAILURE)),
    }
}

fn unknown(skills: &SkillAccess, name: &str) -> ToolFailure {
    let known: Vec<&str> = skills.offered.instructions().map(|skill| skill.name.as_str()).take(100).collect();
    let name = protocol::text::head(name, 80);
    ToolFailure {
        suggestion: Some("Call it with one of these names, or do without."),
        ..ToolErrorKind::NotFound.because(format!("there is no skill {name:?} to load; there are {}", known.join(", ")))
    }
}
