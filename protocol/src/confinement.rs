//! What the commands of agents can reach on a machine, as that machine reports it.

use serde::{Deserialize, Serialize};

/// What keeps commands, what they were given, and what is hidden from them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Confinement {
    /// What of the kernel is used: `namespaces`, `landlock`, `seccomp`.
    pub layers: Vec<String>,
    /// One entry each for files, sockets, terminals, processes, network and memory.
    pub subjects: Vec<ConfinedSubject>,
    /// What every command was given beside where its agent works.
    pub granted: Granted,
    /// What is there on this machine and hidden from commands, by the word that opens it.
    pub hidden: Vec<HiddenSecret>,
}

/// One thing that commands could reach, and how far they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ConfinedSubject {
    /// `files`, `sockets`, `terminals`, `processes`, `network` or `memory`.
    pub name: String,
    pub state: ConfinedState,
    /// For people.
    pub sentence: String,
}

/// How far something is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ConfinedState {
    /// Commands reach what they were given and nothing else.
    Kept,
    /// They reach less than their user, and more than they were given.
    Partly,
    /// They reach what their user reaches; also what a newer daemon may call it.
    #[default]
    #[serde(other)]
    Open,
}

/// What `sandbox:` in `config.yaml` gives to commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Granted {
    pub write: Vec<String>,
    pub read: Vec<String>,
    pub sockets: Vec<String>,
    /// `open` or `none`.
    pub network: String,
    /// The most memory of all processes of a command together, bytes.
    pub memory: Option<u64>,
}

/// A group of hidden places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HiddenSecret {
    /// Opens it in `sandbox.read`.
    pub word: String,
    pub places: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_daemon_says_is_read_as_open() {
        let told = r#"{"layers":["vm"],"subjects":[{"name":"files","state":"sealed"},{"name":"memory","state":"kept"}],"more":1}"#;
        let read: Confinement = serde_json::from_str(told).expect("readable");
        assert_eq!(read.subjects[0].state, ConfinedState::Open);
        assert_eq!(read.subjects[1].state, ConfinedState::Kept);
    }
}
