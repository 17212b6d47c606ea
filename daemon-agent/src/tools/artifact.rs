//! `add_artifact`: a text, or a file that the agent may read, for the people who gave the task.

use serde_json::Value;

use super::{Outcome, Readable, ToolContext, args::Args};
use crate::artifacts::{From, New};

/// Runs a call.
pub(super) async fn run(context: &ToolContext, args: &Value) -> Outcome {
    match add(context, args).await {
        Ok(said) => Outcome::done(said),
        Err(why) => Outcome::refused(why),
    }
}

async fn add(context: &ToolContext, args: &Value) -> Result<String, String> {
    let args = Args::new(args, &["id", "title", "type", "content", "path", "ref"])?;
    let from = match (args.optional_text("content")?, args.optional_text("path")?, args.optional_text("ref")?) {
        (Some(text), None, None) => From::Content(text.to_owned()),
        (None, Some(path), None) => {
            let (file, name) = open(context, path)?;
            From::File(file, name)
        }
        (None, None, Some(reference)) => From::Reference(reference.to_owned()),
        _ => return Err("give one of content, path and ref".to_owned()),
    };
    let own = |name| Ok::<_, String>(args.optional_text(name)?.map(str::to_owned));
    let new = New { id: args.text("id")?.to_owned(), title: own("title")?, kind: own("type")?, from };
    let told = context.shelf.add(new).await?;
    let size = told.size.map_or_else(String::new, |size| format!(", {size} bytes"));
    Ok(format!("Kept as {}{size}. The people see it beside the conversation.", told.id))
}

/// Opens what the agent may read, or a file of the task's own folder.
fn open(context: &ToolContext, path: &str) -> Result<(std::fs::File, String), String> {
    if let Some(opened) = context.shelf.open(path) {
        return opened;
    }
    Readable::of(&context.agent, &context.home).open(path)
}
