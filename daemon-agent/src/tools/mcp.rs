//! Tools of MCP servers: a call with its progress, its questions for people, and its result as text and artifacts.

mod pictures;
mod questions;

use std::{
    io::{self, Seek, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use protocol::{AgentStreamEvent, mcp::MCP_PREFIX, text::head_and_tail};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{ToolErrorKind, ToolOutcome, Toolbox};
use crate::{
    artifacts::{ArtifactSource, NewArtifact},
    home::Home,
    mcp::{
        CallEvent, CallTerms, McpOutput, McpServers, McpTool, McpTools, OutputFile, OutputPart, WireError, call_events,
    },
    model::ToolSpec,
    workspace::hex,
};
use pictures::{ResultPictures, SeenPicture};
use questions::AskedPeople;
pub use questions::QuestionDesk;

/// Most tools that a model is offered in all: providers refuse a request with more than 128.
const MAX_OFFERED_TOOLS: usize = 128;
/// Longest description of a tool of a server, bytes.
const MAX_DESCRIPTION_BYTES: usize = 1_000;
/// Bytes of the schemas of all tools of servers that are offered: a model reads them with every call.
const MAX_OFFERED_BYTES: usize = 512 * 1024;
/// Longest text of a result that stands in it; a longer one is kept whole as an artifact, bytes.
const MAX_RESULT_BYTES: usize = 40 * 1024;
/// Time between two pieces of progress that are shown, and bytes of all of them.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
const MAX_PROGRESS_BYTES: usize = 64 * 1024;
/// How long a task waits for servers that nobody has listed yet.
const LISTING_TIMEOUT: Duration = Duration::from_secs(20);

/// What an attempt uses MCP servers with.
#[derive(Clone)]
pub(super) struct McpAccess {
    servers: McpServers,
    /// The agent's, as they were when somebody looked last.
    offered: McpTools,
    desk: QuestionDesk,
}

impl Toolbox {
    /// Adds the tools of the agent's MCP servers, whose questions go to `desk`.
    pub fn with_mcp(mut self, servers: McpServers, desk: QuestionDesk) -> Self {
        let offered = servers.of(&self.context.agent);
        self.mcp = Some(McpAccess { servers, offered, desk });
        self
    }

    /// Takes up the tools of servers as they are now. Returns whether others are offered than before.
    pub fn renew_mcp(&mut self) -> bool {
        let Some(mcp) = &mut self.mcp else { return false };
        let offered = mcp.servers.of(&self.context.agent);
        let is_changed = offered != mcp.offered;
        mcp.offered = offered;
        is_changed
    }

    /// Has servers listed that nobody has listed yet. Returns what people should know: which cannot be used, and why. One that
    /// takes its time goes on, and its tools are offered when it is ready.
    pub async fn list_mcp(&self) -> Vec<String> {
        let Some(mcp) = self.mcp.clone() else { return Vec::new() };
        let agent = self.context.agent.clone();
        let listing = tokio::spawn(async move { mcp.servers.list_unknown(&agent).await });
        let waiting = self.context.stop.run_until_cancelled(timeout(LISTING_TIMEOUT, listing));
        match waiting.await {
            Some(Ok(Ok(failed))) => {
                let words = |(name, why): (String, WireError)| {
                    format!("The MCP server {name} cannot be used: {}", why.told(&name))
                };
                failed.into_iter().map(words).collect()
            }
            Some(Err(_)) => {
                vec!["Some MCP servers are not ready yet; their tools are offered when they are.".to_owned()]
            }
            Some(Ok(Err(_))) | None => Vec::new(),
        }
    }

    pub(super) fn mcp_tool(&self, name: &str) -> Option<Arc<McpTool>> {
        self.mcp.as_ref().filter(|_| name.starts_with(MCP_PREFIX))?.offered.find(name).cloned()
    }

    /// The tools of servers as a model sees them, beside so many others.
    pub(super) fn mcp_specs(&self, others: usize) -> Vec<ToolSpec> {
        let (room, mut bytes) = (MAX_OFFERED_TOOLS.saturating_sub(others), MAX_OFFERED_BYTES);
        let fits = |tool: &&McpTool| {
            let left = bytes.checked_sub(tool.parameters.as_str().len());
            bytes = left.unwrap_or(bytes);
            left.is_some()
        };
        let tools = self.mcp.iter().flat_map(|mcp| mcp.offered.all()).filter(fits).take(room);
        let spec = |tool: &McpTool| ToolSpec {
            name: tool.name.clone().into(),
            description: protocol::text::head(&tool.description, MAX_DESCRIPTION_BYTES).to_owned().into(),
            parameters: tool.parameters.value(),
        };
        tools.map(spec).collect()
    }
}

/// Makes a call.
pub(super) async fn run(toolbox: &Toolbox, call_id: &str, tool: &McpTool, args: &Value) -> ToolOutcome {
    let Some(access) = &toolbox.mcp else { return ToolOutcome::refused("there is no such tool") };
    let (events, mut heard) = call_events();
    let context = &toolbox.context;
    let silence = Duration::from_secs(access.servers.timeout_of(&tool.server));
    let terms = CallTerms { task: &context.task_id, silence, stop: &context.stop, events };
    let asked = AskedPeople::new(&access.desk, &context.sink, call_id, tool);
    let mut progress = Progress::new(toolbox, call_id);
    let answered = {
        // The future of a call is large, and a task's stack is deep already.
        let mut calling = Box::pin(access.servers.call(&context.agent, tool, args, &terms));
        loop {
            tokio::select! {
                biased;
                answered = &mut calling => break answered,
                Some(event) = heard.recv() => match event {
                    CallEvent::Progress(line) => progress.add(&line).await,
                    CallEvent::Asked(elicitation) => tokio::select! {
                        biased;
                        answered = &mut calling => break answered,
                        () = asked.ask(elicitation) => {}
                    },
                },
            }
        }
    };
    asked.give_up("the call has ended").await;
    match answered {
        Ok(output) => outcome(toolbox, call_id, tool, output).await,
        Err(WireError::Stopped) => ToolOutcome::ended(toolbox.why_ended("stopped")),
        Err(why) => {
            let kind = match &why {
                WireError::TimedOut(_) => ToolErrorKind::Timeout,
                WireError::AuthRequired => ToolErrorKind::Permission,
                _ => ToolErrorKind::Unknown,
            };
            let words = why.told(&tool.server);
            ToolOutcome::refused(kind.because(format!("The call of the MCP server {} failed: {words}", tool.server)))
        }
    }
}

/// Progress as it is shown while the call runs, a line each.
struct Progress<'t> {
    toolbox: &'t Toolbox,
    call_id: &'t str,
    last: Option<Instant>,
    bytes: usize,
}

impl<'t> Progress<'t> {
    fn new(toolbox: &'t Toolbox, call_id: &'t str) -> Self {
        Self { toolbox, call_id, last: None, bytes: 0 }
    }

    async fn add(&mut self, line: &str) {
        let is_early = self.last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL);
        if is_early || self.bytes + line.len() > MAX_PROGRESS_BYTES {
            return;
        }
        (self.last, self.bytes) = (Some(Instant::now()), self.bytes + line.len() + 1);
        let (call_id, content) = (self.call_id.to_owned(), format!("{}\n", plain(line)));
        self.toolbox.context.sink.emit(AgentStreamEvent::ToolOutput { call_id, content, before: None }).await;
    }
}

/// A result: its text, and its files as artifacts.
async fn outcome(toolbox: &Toolbox, call_id: &str, tool: &McpTool, output: McpOutput) -> ToolOutcome {
    let own =
        format!("mcp-{}", protocol::text::head(&hex(format!("{}/{call_id}", toolbox.context.attempt).as_bytes()), 12));
    let (mut texts, mut pictures) = (Vec::new(), ResultPictures::default());
    for part in output.parts {
        texts.push(match part {
            OutputPart::Text(text) => plain(&text),
            OutputPart::File(file) => {
                let (size, what) = (file.bytes.len(), plain(protocol::text::head(&file.media_type, 80)));
                match keep(toolbox, named(&own, &file.bytes), file).await {
                    Ok(kept) => {
                        let note = pictures.take(kept.seen, kept.path);
                        format!("[{what}, {size} bytes: kept as the artifact {}{note}]", kept.id)
                    }
                    Err(why) => format!("[{what}, {size} bytes: not kept: {why}]"),
                }
            }
        });
    }
    let mut text = texts.join("\n");
    if text.len() > MAX_RESULT_BYTES {
        let whole = NewArtifact {
            id: named(&own, text.as_bytes()),
            title: Some(format!("Result of {}", tool.name)),
            kind: Some("text/plain".to_owned()),
            from: ArtifactSource::Content(text.clone()),
        };
        let place = match toolbox.context.collector.add(whole).await {
            Ok(kept) => format!("all of it is the artifact {}", kept.id),
            Err(why) => format!("the rest is not kept: {why}"),
        };
        text = format!("{}\n[{} bytes in all; {place}]", head_and_tail(&text, MAX_RESULT_BYTES), text.len());
    }
    match output.is_error {
        false => ToolOutcome { pictures: pictures.into_all(), ..ToolOutcome::done(text) },
        // With a failed result Anthropic takes text alone.
        true => ToolOutcome::refused(ToolErrorKind::Unknown.because(text)),
    }
}

/// The id of what a call brought: some models give every call the same id.
fn named(own: &str, bytes: &[u8]) -> String {
    format!("{own}-{}", protocol::text::head(&hex(bytes), 12))
}

/// Text that every store takes.
fn plain(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A file of a result that is kept as an artifact.
struct KeptFile {
    id: String,
    path: PathBuf,
    /// `None`: it is no picture.
    seen: Option<SeenPicture>,
}

/// Keeps a file of a result as an artifact.
async fn keep(toolbox: &Toolbox, id: String, file: OutputFile) -> Result<KeptFile, String> {
    let OutputFile { name, media_type, bytes } = file;
    let home = toolbox.context.home.clone();
    let writing = tokio::task::spawn_blocking(move || (written(&home, &bytes), SeenPicture::of(&bytes)));
    let (written, seen) = writing.await.map_err(|error| error.to_string())?;
    let written = written.map_err(|error| error.to_string())?;
    let ending = name.rsplit('/').next().unwrap_or_default().to_owned();
    let kept = NewArtifact {
        id,
        title: Some(plain(&name)),
        kind: Some(media_type).filter(|kind| !kind.is_empty()),
        from: ArtifactSource::File(written, ending),
    };
    let kept = toolbox.context.collector.add(kept).await?;
    let path = toolbox.context.home.root().join(kept.reference.unwrap_or_default());
    Ok(KeptFile { id: kept.id, path, seen })
}

fn written(home: &Home, bytes: &[u8]) -> io::Result<std::fs::File> {
    let mut file = home.nameless_file()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
