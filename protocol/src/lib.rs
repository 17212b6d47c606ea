//! The wire between a viber and the Board: messages, identifiers, limits and close codes, used by both ends.
//!
//! Owns shapes and their limits. Refuses I/O, async, storage and policy: who may say what is decided by the
//! Board's `link` and the daemon's `mesh`.

pub mod adapter;
pub mod agent;
mod approval;
mod command;
mod confinement;
pub mod context;
mod event;
mod files;
mod frame;
mod ids;
mod instant;
pub mod limits;
pub mod mcp;
mod memory;
pub mod mesh;
pub mod path;
pub mod plan;
pub mod playbook;
pub mod provider_key;
pub mod prune;
pub mod rules;
pub mod sessions;
pub mod skill;
pub mod sniff;
pub mod space;
pub mod suggestion;
pub mod text;
pub mod tokens;
pub mod tool_result;
pub mod toolset;
pub mod transcript;
pub mod yaml;

pub use adapter::{AdapterInfo, AdapterState, InterruptSignal, LocalFile, UserContext, UserMessage};
pub use agent::{AgentInfo, Capability, ConfigError, DamageInfo, JobInfo, ProviderInfo};
pub use approval::{
    AffectedFile, AgentQuestion, AnswerOption, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision,
    DecisionScope, ModelPrice, ReachedLimit, TeamRules,
};
pub use command::{
    AgentMode, Attachment, BudgetProgress, Command, CompactRequest, InjectionPoint, LimitPolicy, PausePoint, Policy,
    ReportedDetail, SkillInstall, TaskLimits, TaskMessage, TaskSubmit, Turn, TurnPart, TurnRole,
};
pub use confinement::{ConfinedState, ConfinedSubject, Confinement, Granted, HiddenSecret};
pub use event::{
    ActivityState, AgentEvent, AgentStreamEvent, AgentWait, ArtifactRef, COMMAND_OUTPUT_TYPE, ErrorCode, Event,
    EventBody, MessageProgress, NextCall, NoticeLevel, OutputPlace, PauseCause, StepState, TaskError, TaskResult,
    Usage, UsageSource,
};
pub use files::{
    Entry, EntryKind, FOLDER_VERSION, FileMatch, FileMatches, FilePiece, Listing, WorkspaceWrite, WorkspaceWritten,
    WriteOp, WriteState,
};
pub use frame::{
    Acked, AttemptRef, BadFrame, CommandDone, Events, Fence, FromDaemon, Hello, Metrics, NumberedCommand, OutboxRange,
    ToDaemon, ViberState, Welcome, Window, parse_event,
};
pub use ids::*;
pub use instant::Instant;
pub use mcp::{MCP_CAPABILITY, McpChange, McpKind, McpServerInfo, McpState};
pub use memory::{
    Excerpt, MemoryFound, MemoryRanking, MemorySearch, MemorySource, Note, NoteKind, NoteOutcome, RecalledPassage,
};
pub use mesh::{
    AgentMessage, ChainLink, ChildAnnouncement, ChildReport, ChildState, DelegateRequest, MESH_CAPABILITY,
    MeshDirectory, MessageDirection, ParentCall, TreePlace,
};
pub use playbook::{PLAYBOOKS_CAPABILITY, PlaybookLedger, PlaybookTask};
pub use provider_key::{KeyOffer, KeyOfferQuery, KeySource, ProviderKeyChanged, ProviderKeyRemoval, SealedProviderKey};
pub use sessions::{LogPlace, LoggedLine, LoggedSession, SessionList, SessionPiece};
pub use skill::{
    SKILLS_CAPABILITY, SkillCheck, SkillInfo, SkillKind, SkillScope, SkillSource, SkillState, SkillTokens,
};
pub use space::{Change, ChangeKind, Commit, DiffPiece, Since, SpaceLog, SpaceStatus, Upstream};
