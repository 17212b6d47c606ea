//! Vibers and the tokens that make them.

use std::collections::BTreeMap;

use protocol::{AgentInfo, DamageInfo, Instant, JobInfo, JoinTokenId, ProviderInfo, SkillInfo, ViberId};

use super::Contact;

/// One work machine, enrolled in one team.
#[derive(Clone, Debug, PartialEq)]
pub struct Viber {
    pub id: ViberId,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub hostname: String,
    pub platform: String,
    pub version: String,
    /// `landlock` or `unconfined`, `insecure`, …
    pub capabilities: Vec<String>,
    pub agents: Vec<AgentInfo>,
    pub skills: Vec<SkillInfo>,
    pub jobs: Vec<JobInfo>,
    pub providers: Vec<ProviderInfo>,
    /// Files of the daemon's own that it found damaged.
    pub damage: Vec<DamageInfo>,
    pub drained: bool,
    pub conn_epoch: u64,
    pub contact: Contact,
    pub seen_at: Option<Instant>,
    /// Two boots took turns on its credential.
    pub cloned_at: Option<Instant>,
    /// Tasks that run, and tasks that wait for it.
    pub running: u64,
    pub queued: u64,
    pub created_at: Instant,
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
