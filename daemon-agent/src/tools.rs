//! What an agent can do on the machine: read, write, edit, list, glob, grep, shell, and read again what a call answered.
//!
//! Owns the tools and their limits. Refuses paths outside the agent's spaces and the workspace. Makes no decision that
//! a model should make.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use protocol::{SessionId, TaskId, prune::ResultCaps};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    artifacts::Collector,
    clock::Clock,
    config::{
        Agent, Config,
        toolset::{ALL_TOOLS, LOAD_SKILL, MESH_TOOLS, MESSAGE_AGENT, STEPS_ONLY_TOOLS, SUPERVISOR_TOOLS},
    },
    home::Home,
    leftovers::Scratch,
    memory::CURATED_NAMES,
    model::ToolSpec,
    report::{Sink, memory::MemoryEditor, plan::PlanEditor},
    skills::{AgentSkills, Skill, Skills},
    workspace::{ProtectedPaths, SESSIONS_FOLDER, Workspace},
};

mod args;
mod edit;
mod mcp;
mod outcome;
mod paths;
mod proposal;
mod read;
mod records;
mod search;
mod shell;
mod timeout;
mod truncate;

pub use self::{
    args::CallArgs,
    mcp::QuestionDesk,
    outcome::{ToolErrorKind, ToolFailure, ToolOutcome},
    paths::ReadableFiles,
    proposal::{CallBounds, CallProposal, FileArea, ProposalSubject, ProposedFile},
    read::output::{KeptResults, cut, without_hint},
};
use self::{
    args::specs,
    mcp::McpAccess,
    paths::Roots,
    records::{artifact, memory, plan},
    timeout::CallDeadline,
};

/// The tool that reads whole results; its own are not kept.
pub const READ_OUTPUT: &str = "read_output";
/// Most skills that a model is offered as tools: providers refuse a request with more than 128 tools.
const MAX_SKILL_TOOLS: usize = 100;
/// Longest description of a tool that every provider takes, bytes.
const MAX_TOOL_DESCRIPTION_BYTES: usize = 1_000;
/// Why a skill is not used whose files are not the ones that may be.
const CHANGED_SKILL: &str = "the files of the skill are not the ones that people accepted; it can be used when they have \
    accepted these, or installed it again";
/// What is said of a tool that panicked.
const INTERNAL_FAILURE: &str = "the tool failed internally; the daemon's log says why";
/// What is said of a file system that hangs.
const NO_RESPONSE: &str = "the file system does not respond";

/// What the tools of one attempt may touch, and where they report.
#[derive(Clone)]
pub struct ToolContext {
    pub home: Home,
    pub workspace: Workspace,
    pub agent: Arc<Agent>,
    pub config: Arc<Config>,
    pub task_id: TaskId,
    /// Commands find the task and the attempt in their environment, so that they can tell attempts apart when something
    /// must not be done twice.
    pub attempt: u32,
    pub sink: Sink,
    /// Keeps and reports artifacts.
    pub collector: Collector,
    /// Cancelled when the task must end now; a running call then ends everything it started and returns.
    pub stop: CancellationToken,
}

/// The tools of one attempt. Dropping it removes the attempt's private TMPDIR.
pub struct Toolbox {
    context: ToolContext,
    /// The program that is started as `… hold`: this one, except in tests.
    hold: PathBuf,
    /// Created for the first command.
    scratch: Mutex<Option<Scratch>>,
    /// Why `context.stop` ended the calls under way, if not because the task was stopped.
    ended: OnceLock<String>,
    /// The session's plan; without it the plan tool is not offered.
    plan: Option<PlanEditor>,
    /// The memory; without it the memory tools are not offered.
    memory: Option<MemoryEditor>,
    /// The skills of the machine; without them none is offered.
    skills: Option<SkillAccess>,
    /// MCP servers; without them none of their tools is offered.
    mcp: Option<McpAccess>,
    /// Whether the attempt supervises the run of a playbook.
    is_supervisor: bool,
    /// Whether it can have others do something; `Some(true)`: another task asked for it.
    mesh: Option<bool>,
    /// Most tokens of a result.
    caps: ResultCaps,
    kept: KeptResults,
}

/// What an attempt uses skills with.
#[derive(Clone)]
struct SkillAccess {
    all: Skills,
    /// Those of the agent, as they were when somebody looked last.
    offered: AgentSkills,
    session: SessionId,
    clock: Clock,
}

impl SkillAccess {
    /// Counts a use, beside the attempt's work.
    fn count(&self, skill: Arc<Skill>, ok: bool) {
        let (all, now) = (self.all.clone(), self.clock.now());
        tokio::task::spawn_blocking(move || all.count(&skill, ok, now));
    }
}

impl Toolbox {
    /// The tools of `context.agent`. Touches nothing yet.
    pub fn new(context: ToolContext) -> Self {
        let (hold, scratch, ended) = (crate::hold::own_program(), Mutex::new(None), OnceLock::new());
        let caps = context.agent.results.clone();
        let kept = KeptResults::of(context.home.artifacts(context.task_id.as_str()), context.attempt);
        let (plan, memory, skills, mcp, mesh) = (None, None, None, None, None);
        Self { context, hold, scratch, ended, plan, memory, skills, mcp, is_supervisor: false, mesh, caps, kept }
    }

    /// Uses `program` as the supervisor of commands instead of the running program.
    pub fn with_hold(mut self, program: impl Into<PathBuf>) -> Self {
        self.hold = program.into();
        self
    }

    /// The same for an agent that `change` makes of this one.
    pub fn with_agent(mut self, change: impl FnOnce(Agent) -> Agent) -> Self {
        self.context.agent = Arc::new(change(Agent::clone(&self.context.agent)));
        self.renew_skills();
        self.renew_mcp();
        self
    }

    /// Uses another configuration of the machine.
    pub fn with_config(mut self, config: Config) -> Self {
        self.context.config = Arc::new(config);
        self
    }

    /// Adds the session's plan.
    pub fn with_plan(mut self, plan: PlanEditor) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Adds the memory.
    pub fn with_memory(mut self, memory: MemoryEditor) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Adds the agent's skills, which `session` loads.
    pub fn with_skills(mut self, all: Skills, session: SessionId, clock: Clock) -> Self {
        let offered = all.of(&self.context.agent);
        self.skills = Some(SkillAccess { all, offered, session, clock });
        self
    }

    /// Adds what the supervisor of a playbook's run has. It has no servers: what they do, nobody has decided about at a gate.
    pub fn for_supervisor(mut self) -> Self {
        self.is_supervisor = true;
        self.mcp = None;
        self
    }

    /// Whether the tool is one with which the attempt supervises a run. What such a call wants is done by the Board.
    pub fn supervises_by(&self, name: &str) -> bool {
        self.is_supervisor && SUPERVISOR_TOOLS.contains(&name)
    }

    /// Adds what an attempt has that may have others do something. `is_child`: another task asked for it.
    pub fn in_mesh(mut self, is_child: bool) -> Self {
        self.mesh = Some(is_child);
        self
    }

    /// Whether the tool is one with which the agent has others do something. A supervisor has steps done instead.
    pub fn delegates_by(&self, name: &str) -> bool {
        let agent = &self.context.agent;
        let may_call = match self.mesh {
            _ if self.is_supervisor => false,
            None => false,
            Some(is_child) => !agent.delegates.is_empty() || is_child && name == MESSAGE_AGENT,
        };
        may_call && MESH_TOOLS.contains(&name) && agent.tools.iter().any(|tool| tool == name)
    }

    /// Takes up the skills as they are now. Returns whether others are offered than before.
    pub fn renew_skills(&mut self) -> bool {
        let Some(skills) = &mut self.skills else { return false };
        let offered = skills.all.of(&self.context.agent);
        let is_changed = offered != skills.offered;
        skills.offered = offered;
        is_changed
    }

    /// Has the files of all skills read again: the next call of the model has them as they are now.
    async fn rescan_skills(&self) {
        if let Some(skills) = &self.skills {
            skills.all.rescan().await;
        }
    }

    /// The skills that are offered.
    pub fn skills(&self) -> AgentSkills {
        self.skills.as_ref().map(|skills| skills.offered.clone()).unwrap_or_default()
    }

    fn skill_tool(&self, name: &str) -> Option<Arc<Skill>> {
        self.skills.as_ref()?.offered.tool(name).cloned()
    }

    /// Folders beside the agent's own whose files may be read.
    fn readable(&self) -> Vec<PathBuf> {
        self.skills.iter().flat_map(|skills| skills.offered.folders()).map(PathBuf::from).collect()
    }

    /// Bounds the results that a call can divide into several: how much the model is given of one.
    pub fn bound_results(&mut self, caps: ResultCaps) {
        self.caps = caps;
    }

    /// Whole results of this attempt's calls, for `read_output`.
    pub fn kept_results(&self) -> KeptResults {
        self.kept.clone()
    }

    /// The calls from now on end with `stop`: a child of the task's own, so that they can be ended by themselves.
    pub fn begin_calls(&mut self, stop: CancellationToken) {
        self.context.stop = stop;
        self.ended = OnceLock::new();
    }

    /// Ends the calls under way; their results say `why`.
    pub fn end_calls(&self, why: String) {
        let _ = self.ended.set(why);
        self.context.stop.cancel();
    }

    /// Whether calls end at once.
    pub fn has_ended_calls(&self) -> bool {
        self.context.stop.is_cancelled()
    }

    /// Why calls were ended; `usual` if it was the task's stop.
    fn why_ended(&self, usual: &str) -> String {
        self.ended.get().cloned().unwrap_or_else(|| usual.to_owned())
    }

    /// The agent's tools as a model sees them: in the order of [`ALL_TOOLS`], those of a supervisor, then its skills and those of
    /// its MCP servers.
    pub fn specs(&self) -> Vec<ToolSpec> {
        let built_in = ALL_TOOLS.iter().chain([&LOAD_SKILL]).filter(|name| self.offers(name));
        let built_in = built_in.chain(SUPERVISOR_TOOLS.iter().filter(|name| self.supervises_by(name)));
        let offered = self.skills();
        let skills = offered.tools().filter(|_| !self.is_supervisor);
        let skills = skills.take(MAX_SKILL_TOOLS).map(|skill| ToolSpec {
            name: skill.name.clone().into(),
            description: protocol::text::head(skill.description(), MAX_TOOL_DESCRIPTION_BYTES).to_owned().into(),
            parameters: skill.parameters().unwrap_or_default(),
        });
        let mut all: Vec<ToolSpec> = built_in.filter_map(|name| specs::of(name)).chain(skills).collect();
        all.extend(self.mcp_specs(all.len()));
        all
    }

    /// Runs a call to its end, within `bounds` if it was looked at before. After `stop` it returns soon, with everything dead
    /// that it started; dropping the future has the same effect, but nothing is returned.
    pub async fn call(&self, call_id: &str, name: &str, args: &Value, bounds: Option<&CallBounds>) -> ToolOutcome {
        if !self.offers(name) {
            let mine: Vec<_> = self.specs().into_iter().map(|spec| spec.name).collect();
            return ToolOutcome::refused(format!("there is no tool {name:?}; the tools are {}", mine.join(", ")));
        }
        match name {
            "shell" => {
                let done = shell::run(self, call_id, args, bounds).await;
                self.context.collector.look().await;
                return done;
            }
            "add_artifact" => return artifact::run(&self.context, args).await,
            _ => {}
        }
        if let Some(tool) = self.mcp_tool(name) {
            return mcp::run(self, call_id, &tool, args).await;
        }
        if let Some(skills) = &self.skills {
            if name == LOAD_SKILL {
                return read::skill::run(skills, args).await;
            }
            if let Some(skill) = self.skill_tool(name) {
                let done = shell::run_skill(self, call_id, (&skill, args), bounds).await;
                skills.count(skill, done.ok);
                self.context.collector.look().await;
                return done;
            }
        }
        if let Some(memory) = self.memory.as_ref() {
            match name {
                "remember" => return memory::remember(memory, args).await,
                "search_memory" => {
                    let found = self.context.stop.run_until_cancelled(memory::search(memory, args)).await;
                    return found.unwrap_or_else(|| ToolOutcome::ended(self.why_ended("stopped")));
                }
                _ => {}
            }
        }
        if let Some(plan) = self.plan.as_ref().filter(|_| name == "update_plan") {
            return plan::run(plan, args).await;
        }
        let deadline = CallDeadline::within(self.context.agent.timeouts.default, self.context.stop.clone());
        let (context, name, args) = (self.context.clone(), name.to_owned(), args.clone());
        let (protected, bounds, readable) = (self.protected_paths(), bounds.cloned(), self.readable());
        let (kept, most_tokens) = (self.kept_results(), self.caps.of(&name));
        let time = deadline.clone();
        let running = tokio::task::spawn_blocking(move || {
            let roots = roots(&context)
                .with_readable(readable, args["path"].as_str())
                .with_protected_paths(protected)
                .with_bounds(bounds);
            match name.as_str() {
                "read_file" => read::run(&roots, &args, &deadline),
                READ_OUTPUT => read::output::run(&kept, &args, most_tokens, &deadline),
                "write_file" => edit::write(&roots, &args),
                "edit_file" => edit::edit(&roots, &args),
                "list_files" => search::list(&roots, &args, &deadline),
                "glob" => search::glob(&roots, &args, &deadline),
                "grep" => search::grep(&roots, &args, &deadline),
                _ => Err(format!("there is no tool {name:?}").into()),
            }
        });
        // The work checks its own limits; a file system that does not respond cannot.
        let bound = Duration::from_secs(self.context.agent.timeouts.default + 5);
        tokio::select! {
            biased;
            done = running => match done {
                Ok(Ok(text)) => ToolOutcome::done(text),
                Ok(Err(why)) if self.context.stop.is_cancelled() => ToolOutcome::ended(self.why_ended(&why.message)),
                Ok(Err(why)) if time.is_over() => ToolOutcome::refused(ToolErrorKind::Timeout.because(why.message)),
                Ok(Err(why)) => ToolOutcome::refused(why),
                Err(_) => ToolOutcome::refused(ToolErrorKind::Unknown.because(INTERNAL_FAILURE)),
            },
            () = self.context.stop.cancelled() => ToolOutcome::ended(self.why_ended("stopped")),
            () = tokio::time::sleep(bound) => ToolOutcome::refused(ToolErrorKind::Timeout.because(NO_RESPONSE)),
        }
    }

    /// Whether the agent has this tool.
    pub fn offers(&self, name: &str) -> bool {
        let is_there = match name {
            "update_plan" => self.plan.is_some(),
            "remember" | "search_memory" => self.memory.is_some(),
            LOAD_SKILL => return self.skills().instructions().any(Skill::is_for_models),
            _ if MESH_TOOLS.contains(&name) => return self.delegates_by(name),
            _ if self.supervises_by(name) => return true,
            _ if self.skill_tool(name).is_some() || self.mcp_tool(name).is_some() => return !self.is_supervisor,
            _ => !self.is_supervisor || !STEPS_ONLY_TOOLS.contains(&name),
        };
        is_there && ALL_TOOLS.contains(&name) && self.context.agent.tools.iter().any(|tool| tool == name)
    }

    /// What this attempt must not write in the workspace: plans, the memory if the session's policy says that changes are
    /// proposed, and everything that belongs to other sessions.
    fn protected_paths(&self) -> ProtectedPaths {
        let mut protected = ProtectedPaths::default();
        if let Some(plan) = &self.plan {
            protected.session = plan.folder().strip_prefix(SESSIONS_FOLDER).map(|way| way.trim_matches('/').to_owned());
            protected.files.extend(plan.closed_files());
        }
        if self.memory.as_ref().is_some_and(MemoryEditor::proposes) {
            protected.files.extend(CURATED_NAMES.map(str::to_owned));
        }
        protected
    }

    fn roots(&self) -> Roots {
        roots(&self.context)
    }

    fn scratch(&self) -> io::Result<PathBuf> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if scratch.is_none() {
            let made = Scratch::new()?;
            crate::fault::note("scratch", &self.context.task_id, 0, made.path().display());
            *scratch = Some(made);
        }
        Ok(scratch.as_ref().map(|scratch| scratch.path().to_owned()).unwrap_or_default())
    }
}

/// Opened for every call: a space may come and go while a task runs.
fn roots(context: &ToolContext) -> Roots {
    Roots::open(&context.agent, &context.home).with_write_listener(context.workspace.clone())
}

/// Whether calls of this tool only speak to people, or ask after other agents: what they change is for people to read, or for
/// them to decide about.
pub fn speaks_to_people(name: &str) -> bool {
    matches!(name, "update_plan" | "add_artifact" | "remember" | "ask_operator" | "list_agents" | "check_task")
}

/// Whether calls of this tool change nothing, so that several may run in parallel.
pub fn is_read_only(name: &str) -> bool {
    matches!(name, "read_file" | "read_output" | "list_files" | "glob" | "grep" | "search_memory" | LOAD_SKILL)
}
