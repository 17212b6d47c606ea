//! `add_artifact`: hands a text, or a file that the agent may read, to the people who gave the task.

use serde_json::Value;

use crate::{
    artifacts::{ArtifactSource, NewArtifact},
    tools::{ReadableFiles, ToolContext, ToolFailure, ToolOutcome, args::CallArgs},
};

/// Runs a call.
pub async fn run(context: &ToolContext, args: &Value) -> ToolOutcome {
    match add(context, args).await {
        Ok(said) => ToolOutcome::done(said),
        Err(why) => ToolOutcome::refused(why),
    }
}

async fn add(context: &ToolContext, args: &Value) -> Result<String, ToolFailure> {
    let args = CallArgs::new(args, &["id", "title", "type", "content", "path", "ref"])?;
    let from = match (args.optional_text("content")?, args.optional_text("path")?, args.optional_text("ref")?) {
        (Some(text), None, None) => ArtifactSource::Content(text.to_owned()),
        (None, Some(path), None) => {
            let (file, name) = open(context, path)?;
            ArtifactSource::File(file, name)
        }
        (None, None, Some(reference)) => ArtifactSource::Reference(reference.to_owned()),
        _ => return Err("give one of content, path and ref".into()),
    };
    let own = |name| Ok::<_, String>(args.optional_text(name)?.map(str::to_owned));
    // What is handed over as a file is called as it lies there, unless it is said otherwise.
    let path = own("path")?.filter(|path| !path.starts_with(['/', '~']));
    let title = own("title")?.or(path);
    let new = NewArtifact { id: args.text("id")?.to_owned(), title, kind: own("type")?, from };
    let added = context.collector.add(new).await?;
    let size = added.size.map_or_else(String::new, |size| format!(", {size} bytes"));
    Ok(format!("Saved as {}{size}. People see it beside the conversation.", added.id))
}

/// Opens a file that the agent may read, or one in the task's own folder.
fn open(context: &ToolContext, path: &str) -> Result<(std::fs::File, String), ToolFailure> {
    if let Some(opened) = context.collector.open(path) {
        return opened.map_err(ToolFailure::from);
    }
    ReadableFiles::of(&context.agent, &context.home).open(path)
}
