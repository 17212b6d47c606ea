//! A viber as the API shows it.

use std::collections::BTreeMap;

use protocol::{AdapterInfo, AgentInfo, Confinement, DamageInfo, Instant, ProviderInfo, ViberId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain;

/// Whether the viber was heard within its lease, and since when. `unheard`: it was connected when the Board ended,
/// and has not dialled in since the Board's start.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Contact)]
pub struct ContactResource {
    pub state: domain::ContactState,
    pub since: Instant,
}

impl From<domain::Contact> for ContactResource {
    fn from(contact: domain::Contact) -> Self {
        Self { state: contact.state, since: contact.since }
    }
}

/// One work machine, enrolled in the team.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Viber)]
pub struct ViberResource {
    pub id: ViberId,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub hostname: String,
    pub platform: String,
    pub version: String,
    pub contact: ContactResource,
    /// The agents as the viber's files describe them; one with `error` or `refuses` takes no task.
    pub agents: Vec<AgentInfo>,
    /// The model providers it knows; keys never leave the viber.
    pub providers: Vec<ProviderInfo>,
    pub capabilities: Vec<String>,
    /// The daemon's own files that it found damaged, `{file, at, bytes}`; it keeps the originals.
    pub damage: Vec<DamageInfo>,
    /// Number of running tasks.
    pub running: u64,
    /// Number of tasks that wait for it.
    pub queued: u64,
    /// Whether it is drained: it takes no new task until the drain is ended.
    pub drained: bool,
    /// Whether commands of agents are confined by the kernel.
    pub confined: bool,
    /// What commands can access there, in words, by subject; absent when the daemon does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// The machine's own ways to operators (`websocket`, `slack`), each with its state and last error.
    pub adapters: Vec<AdapterInfo>,
    /// When two machines used its credential alternately: the home may have been copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloned_at: Option<Instant>,
    pub created_at: Instant,
}

impl From<domain::Viber> for ViberResource {
    fn from(viber: domain::Viber) -> Self {
        Self {
            confined: viber.is_confined() == Some(true),
            id: viber.id,
            name: viber.name,
            labels: viber.labels,
            hostname: viber.hostname,
            platform: viber.platform,
            version: viber.version,
            contact: viber.contact.into(),
            agents: viber.agents,
            providers: viber.providers,
            capabilities: viber.capabilities,
            damage: viber.damage,
            confinement: viber.confinement,
            adapters: viber.adapters,
            running: viber.running,
            queued: viber.queued,
            drained: viber.drained,
            cloned_at: viber.cloned_at,
            created_at: viber.created_at,
        }
    }
}
