//! The tools: what each is called, who may use it, and what it takes. What they do lies in the files beneath, by what it
//! is about.

mod artifacts;
mod events;
mod messages;
mod needs;
mod playbooks;
mod search;
pub mod tasks;
mod vibers;

use serde_json::{Value, json};

use super::{context::ToolContext, refusal::ToolAnswer, wait::Wait};
use crate::{
    domain::Role,
    error::Result,
    web::{api::page::Page, urls},
};

crate::words! {
    /// A tool, by the name that clients call.
    BoardTool {
        ListVibers = "list_vibers",
        SubmitTask = "submit_task",
        GetTask = "get_task",
        SendMessage = "send_message",
        StopTask = "stop_task",
        ListArtifacts = "list_artifacts",
        ReadArtifact = "read_artifact",
        Search = "search",
        ListPlaybooks = "list_playbooks",
        RunPlaybook = "run_playbook",
    }
}

/// What a tool says about itself.
pub struct ToolText {
    pub title: &'static str,
    pub description: &'static str,
    /// The JSON Schema of its arguments.
    pub input: Value,
}

/// What a call came to.
pub enum Called {
    Answer(ToolAnswer),
    /// Its answer is due when something has happened, or after a while.
    Wait(Box<Wait>),
}

impl From<Value> for Called {
    fn from(structured: Value) -> Self {
        Self::Answer(structured.into())
    }
}

impl BoardTool {
    /// The least role of a token that may call it.
    pub fn role(self) -> Role {
        match self {
            Self::SubmitTask | Self::SendMessage | Self::StopTask | Self::RunPlaybook => Role::Operator,
            Self::ListVibers
            | Self::GetTask
            | Self::ListArtifacts
            | Self::ReadArtifact
            | Self::Search
            | Self::ListPlaybooks => Role::Viewer,
        }
    }

    /// The tool as a list shows it.
    pub fn describe(self) -> Value {
        let ToolText { title, description, input } = self.text();
        let (reads, stops) = (self.role() == Role::Viewer, self == Self::StopTask);
        json!({
            "name": self.as_str(), "title": title, "description": description, "inputSchema": input,
            "annotations": { "title": title, "readOnlyHint": reads, "destructiveHint": stops,
                "idempotentHint": reads || stops, "openWorldHint": !reads && !stops },
        })
    }

    fn text(self) -> ToolText {
        match self {
            Self::ListVibers => vibers::text(),
            Self::SubmitTask => tasks::submit_text(),
            Self::GetTask => tasks::get_text(),
            Self::SendMessage => messages::text(),
            Self::StopTask => tasks::stop_text(),
            Self::ListArtifacts => artifacts::list_text(),
            Self::ReadArtifact => artifacts::read_text(),
            Self::Search => search::text(),
            Self::ListPlaybooks => playbooks::list_text(),
            Self::RunPlaybook => playbooks::run_text(),
        }
    }

    /// Calls it. `arguments` is an object. A role that is too low is refused, and noted, as by the API.
    pub async fn call(self, context: &ToolContext, arguments: Value) -> Result<Called> {
        let object = format!("POST {} {self}", urls::MCP);
        context.caller.require(self.role(), &context.board, &object).await?;
        Ok(match self {
            Self::ListVibers => vibers::list(context, arguments).await?.into(),
            Self::SubmitTask => tasks::submit(context, arguments).await?.into(),
            Self::GetTask => tasks::get(context, arguments).await?,
            Self::SendMessage => messages::send(context, arguments).await?.into(),
            Self::StopTask => tasks::stop(context, arguments).await?.into(),
            Self::ListArtifacts => artifacts::list(context, arguments).await?.into(),
            Self::ReadArtifact => Called::Answer(artifacts::read(context, arguments).await?),
            Self::Search => search::search(context, arguments).await?.into(),
            Self::ListPlaybooks => playbooks::list(context, arguments).await?.into(),
            Self::RunPlaybook => playbooks::run(context, arguments).await?.into(),
        })
    }
}

/// A closed schema: an object with these properties, of which some are required, and no others.
fn closed(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The schemas of a page's two arguments, `cursor` and `limit`.
fn page_properties() -> (Value, Value) {
    let cursor = json!({ "type": "string", "maxLength": 512, "description": "The next of the page before." });
    let words = "Items of a page; 20 when absent.";
    (cursor, json!({ "type": "integer", "minimum": 1, "maximum": 200, "description": words }))
}

/// The schema of a key.
fn key_property() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 255,
        "description": "Your own name for this call. Within 24 hours the same call with the same key is done once and \
            answered again; another call with that key is refused." })
}

/// Items of a page when a call names no number.
const DEFAULT_PAGE_ITEMS: u32 = 20;

/// The page that a call asks for.
fn page(cursor: Option<String>, limit: Option<u32>) -> Result<Page> {
    Page::read(cursor, Some(&limit.unwrap_or(DEFAULT_PAGE_ITEMS).to_string()))
}
