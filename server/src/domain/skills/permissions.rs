//! What a skill needs: what it says itself, beside what its files use.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a skill may do once it is installed. Nothing of it is enforced by the library: what a command reaches is decided on the
/// viber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillPermissions {
    /// Paths of the files that can be run, its main file among them if that is a script.
    pub scripts: Vec<String>,
    pub network: SkillNetwork,
    /// Variables that it says it needs.
    pub env: Vec<String>,
    /// Programs that it says it needs.
    pub bins: Vec<String>,
    /// Tools of the agent that it says it uses. That gives it none.
    pub tools: Vec<String>,
    /// Variables that its scripts read, beyond those.
    pub undeclared_env: Vec<String>,
    /// Programs that its scripts start, beyond those. Only well-known ones are recognised.
    pub undeclared_bins: Vec<String>,
}

/// Whether a skill's scripts use the network, as far as that can be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillNetwork {
    pub used: bool,
    /// The hosts that they name.
    pub hosts: Vec<String>,
}

impl SkillPermissions {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What this has and `other` has not.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self {
            scripts: missing(&self.scripts, &other.scripts),
            network: SkillNetwork {
                used: self.network.used && !other.network.used,
                hosts: missing(&self.network.hosts, &other.network.hosts),
            },
            env: missing(&self.env, &other.env),
            bins: missing(&self.bins, &other.bins),
            tools: missing(&self.tools, &other.tools),
            undeclared_env: missing(&self.undeclared_env, &other.undeclared_env),
            undeclared_bins: missing(&self.undeclared_bins, &other.undeclared_bins),
        }
    }
}

fn missing(list: &[String], from: &[String]) -> Vec<String> {
    let there: BTreeSet<&String> = from.iter().collect();
    list.iter().filter(|item| !there.contains(item)).cloned().collect()
}
