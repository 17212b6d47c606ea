//! Vibers and the tokens that make them.

use std::collections::BTreeMap;

use protocol::{
    AdapterInfo, AgentInfo, ConfinedState, Confinement, DamageInfo, Instant, JobInfo, JoinTokenId, McpServerInfo,
    ProviderInfo, SkillInfo, ViberId,
};
use serde::Deserialize;

use crate::domain::{Contact, ContactState};

/// One work machine, enrolled in one team.
#[derive(Clone, Debug, PartialEq)]
pub struct Viber {
    pub id: ViberId,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub hostname: String,
    pub platform: String,
    pub version: String,
    /// `namespaces`, `landlock`, `seccomp`, or `unconfined`; `insecure`, …
    pub capabilities: Vec<String>,
    pub agents: Vec<AgentInfo>,
    /// Only of a viber that was loaded by itself: they are most of what a viber reports, so lists leave them out.
    pub skills: Vec<SkillInfo>,
    /// MCP servers, of a viber that was loaded by itself.
    pub mcp: Vec<McpServerInfo>,
    pub jobs: Vec<JobInfo>,
    pub providers: Vec<ProviderInfo>,
    /// The daemon's own files that it found damaged.
    pub damage: Vec<DamageInfo>,
    /// What confines commands there; `None` when its daemon reports only a capability.
    pub confinement: Option<Confinement>,
    /// Its own ways to operators beside this Board.
    pub adapters: Vec<AdapterInfo>,
    pub drained: bool,
    pub conn_epoch: u64,
    pub contact: Contact,
    pub seen_at: Option<Instant>,
    /// Since when two daemons are known to share its credential.
    pub cloned_at: Option<Instant>,
    /// Tasks that run, and tasks that wait for it.
    pub running: u64,
    pub queued: u64,
    pub created_at: Instant,
}

/// A viber, as much of it as a list of many says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedViber {
    pub id: ViberId,
    pub name: String,
    pub is_connected: bool,
    pub seen_at: Option<Instant>,
}

impl Viber {
    /// Models that a task may name there, each as `provider/model`; none when its daemon offers no choice.
    pub fn models(&self) -> impl Iterator<Item = String> {
        let of = |provider: &ProviderInfo| {
            let id = provider.id.clone();
            provider.models.clone().into_iter().map(move |model| format!("{id}/{model}"))
        };
        self.providers.iter().flat_map(of)
    }

    /// Whether the kernel confines commands there; `None`: not reported yet.
    pub fn is_confined(&self) -> Option<bool> {
        let has = |word: &str| self.capabilities.iter().any(|known| known == word);
        if has("namespaces") || has("landlock") { Some(true) } else { has("unconfined").then_some(false) }
    }

    /// What of the confinement is open or only partly kept, except the network, which is its owner's choice.
    pub fn left_open(&self) -> Vec<&str> {
        let subjects = self.confinement.iter().flat_map(|confinement| &confinement.subjects);
        let left = subjects.filter(|subject| subject.state != ConfinedState::Kept && subject.name != "network");
        left.map(|subject| subject.name.as_str()).collect()
    }
}

/// Which vibers a list shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ViberFilter {
    #[default]
    All,
    /// A task runs there.
    Working,
    Online,
    /// Not connected, or not heard since the Board's start.
    Offline,
}

impl ViberFilter {
    /// Its word in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Working => "working",
            Self::Online => "online",
            Self::Offline => "offline",
        }
    }

    /// Whether a list with this filter shows the viber.
    pub fn admits(self, viber: &Viber) -> bool {
        match self {
            Self::All => true,
            Self::Working => viber.running > 0,
            Self::Online => viber.contact.state == ContactState::Connected,
            Self::Offline => viber.contact.state != ContactState::Connected,
        }
    }
}

/// A single-use token that enrols one viber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    pub id: JoinTokenId,
    pub labels: BTreeMap<String, String>,
    pub created_at: Instant,
    pub expires_at: Instant,
    pub used_at: Option<Instant>,
    pub viber_id: Option<ViberId>,
}
