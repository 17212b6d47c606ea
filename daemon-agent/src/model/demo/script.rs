//! What the tour says and does, stage by stage.

use std::time::Duration;

use protocol::context::SUMMARY_HEADING;
use serde_json::json;

use super::{
    super::{Message, ModelRequest},
    ScriptedCall, call, quoted, shell,
};

/// The tour's position in a conversation.
pub(super) struct TourScene<'a> {
    goal: &'a str,
    /// Whether there was an earlier task.
    follow_up: bool,
    /// Tool results since the goal: tool, whether it succeeded, text.
    results: Vec<(&'a str, bool, &'a str)>,
    tools: Vec<&'a str>,
    workspace: String,
    pause: Duration,
}

/// One model call of the tour.
#[derive(Default)]
pub(super) struct TourStage {
    pub thought: String,
    pub said: String,
    pub call: Option<ScriptedCall>,
}

/// What people said, in a line each, when a conversation is to be summarized.
pub(super) fn summary(request: &ModelRequest) -> Option<TourStage> {
    let Some(Message::User(text)) = request.messages.first() else { return None };
    let is_conversation = text.starts_with("<conversation>") || text.starts_with("<summary>");
    if !is_conversation || !request.tools.is_empty() {
        return None;
    }
    if !request.system.contains(SUMMARY_HEADING) {
        return Some(TourStage { said: "Nothing to note.".to_owned(), ..TourStage::default() });
    }
    let turns = text.split("Person:\n").skip(1);
    let asked = turns.filter_map(|turn| turn.lines().next()).filter(|line| !line.starts_with("## "));
    let asked: String = asked.take(MAX_SUMMARY_LINES).map(|line| format!("- Asked: {}\n", quoted(line))).collect();
    let said = format!("{SUMMARY_HEADING}\n- The tour was shown; no model has read this.\n{asked}");
    Some(TourStage { said, ..TourStage::default() })
}

/// Lines of a summary.
const MAX_SUMMARY_LINES: usize = 6;
const PROVIDER_HINT: &str = "To let a real model work here, give this viber a provider:\n\n\
    - `daemon-agent key set anthropic` (or `openai`, `openrouter`, `deepseek`) on the machine asks for the key and keeps it there, or\n\
    - run a local Ollama: it needs no key, only `model: ollama/qwen3` in the agent's file, or\n\
    - add a `providers:` entry with your own `baseUrl` to `config.yaml`.\n\n\
    Then name the model under `defaults: { model: … }` in `config.yaml` or as `model:` in `agents/default.yaml`; no restart is needed.";

impl<'a> TourScene<'a> {
    pub fn of(request: &'a ModelRequest, pause: Duration) -> Self {
        let at = request.messages.iter().rposition(|message| matches!(message, Message::User(_)));
        let goal = at.map_or("", |at| match &request.messages[at] {
            Message::User(text) => text.as_str(),
            _ => "",
        });
        let since = &request.messages[at.map_or(0, |at| at + 1)..];
        let results = since.iter().filter_map(|message| match message {
            Message::Tool { tool, ok, content, .. } => Some((tool.as_str(), *ok, content.as_str())),
            _ => None,
        });
        let before = &request.messages[..at.unwrap_or(0)];
        let workspace =
            request.system.lines().find_map(|line| line.strip_prefix("Workspace: ")).unwrap_or(".").to_owned();
        Self {
            goal,
            follow_up: before.iter().any(|message| matches!(message, Message::Assistant(_))),
            results: results.collect(),
            tools: request.tools.iter().map(|tool| &*tool.name).collect(),
            workspace,
            pause,
        }
    }

    /// The next stage; stages whose tool the agent does not have are skipped.
    pub fn stage(&self) -> TourStage {
        let stages = if self.follow_up { self.follow_up() } else { self.tour() };
        let mut stages =
            stages.into_iter().filter(|stage| stage.call.as_ref().is_none_or(|(name, _)| self.tools.contains(name)));
        let mut stage = stages.nth(self.results.len()).unwrap_or_else(|| self.end());
        if let Some((tool, false, said)) = self.results.last() {
            let said = said.lines().next().unwrap_or("");
            stage.said = format!(
                "That did not work (`{tool}`: {}), and I go on.\n\n{}",
                protocol::text::head(said, 200),
                stage.said
            );
        }
        stage
    }

    fn file(&self) -> String {
        format!("{}/tour.md", self.workspace)
    }

    fn tour(&self) -> Vec<TourStage> {
        let goal = quoted(self.goal);
        let stage = |thought: &str, said: String, call| TourStage { thought: thought.to_owned(), said, call };
        let file = format!(
            "# A tour of this viber\n\nThe goal was: {goal}\n\nThis file was written by the scripted model demo/tour with the tool write_file.\n"
        );
        vec![
            stage(
                "This is the built-in tour: a script, not a model. First a look at the workspace.",
                format!(
                    "You asked for {goal}. I am **demo/tour**, a script and not a language model: I cannot understand that goal. \
                     What I can do is show you that everything around a model works, with the real tools of this machine.\n\n\
                     First I list the workspace."
                ),
                call("list_files", json!({ "path": self.workspace, "depth": 1 })),
            ),
            stage(
                "The list is there. Next a small file.",
                "Now I write a small file there.".to_owned(),
                call("write_file", json!({ "path": self.file(), "content": file })),
            ),
            stage("", "And read it back, to be sure.".to_owned(), call("read_file", json!({ "path": self.file() }))),
            stage(
                "A harmless command shows how output streams.",
                "At last a command. Its output appears line by line while it runs; *Stop* would end it.".to_owned(),
                shell(&self.command()),
            ),
        ]
    }

    /// Five lines with pauses (as long as ten words), then the kind of machine.
    fn command(&self) -> String {
        let pause = (self.pause * 10).as_secs_f64();
        format!("for n in 1 2 3 4 5; do echo \"line $n of 5\"; sleep {pause:.3}; done; uname -sm; date -u +%Y-%m-%d")
    }

    fn follow_up(&self) -> Vec<TourStage> {
        let goal = self.goal.to_lowercase();
        let said: Vec<&str> = goal.split(|c: char| !c.is_alphanumeric()).collect();
        let about = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let stage =
            |said: String, call| vec![TourStage { thought: "A follow-up in the same session.".to_owned(), said, call }];
        let opening = format!("You went on with {}. I am still the script demo/tour", quoted(self.goal));
        if about(&["key", "keys", "provider", "model", "real", "help", "how"]) {
            return vec![];
        }
        if about(&["run", "shell", "command", "again", "stop", "slow"]) {
            return stage(format!("{opening}, but a command I can run again:"), shell(&self.command()));
        }
        if about(&["read", "show", "file", "md"]) {
            return stage(
                format!("{opening}, but the file I can show:"),
                call("read_file", json!({ "path": self.file() })),
            );
        }
        stage(
            format!(
                "{opening}: I remember that we spoke, because the Board sends the conversation along, but I cannot answer it. I look at the workspace once more:"
            ),
            call("list_files", json!({ "path": self.workspace, "depth": 1 })),
        )
    }

    fn end(&self) -> TourStage {
        let worked =
            self.results.iter().filter(|(_, ok, _)| *ok).map(|(tool, ..)| format!("`{tool}`")).collect::<Vec<_>>();
        let worked = match worked.len() {
            0 => "No tool was used this time.".to_owned(),
            _ => format!("These tools worked: {}.", worked.join(", ")),
        };
        let opening = if self.follow_up {
            format!("That is all the script knows about {}. {worked}", quoted(self.goal))
        } else {
            format!(
                "The tour is over. {worked} All of this really happened on this viber; only the words came from a script (demo/tour)."
            )
        };
        TourStage { said: format!("{opening}\n\n{PROVIDER_HINT}"), ..TourStage::default() }
    }
}
