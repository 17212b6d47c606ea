//! What the team decided for all its tasks, as the Board told it last. It holds for tasks that begin on this machine.

use std::{fs, io};

use protocol::{TeamRules, rules::ApprovalRules};
use serde_json::Value;

use super::Mesh;
use crate::home;

impl Mesh {
    /// Keeps what the Board says, also for when it cannot be reached.
    pub async fn learn_team_rules(&self, told: &Value) -> io::Result<()> {
        let (file, text) = (self.home().team_rules(), told.to_string());
        let kept = tokio::task::spawn_blocking(move || match fs::read_to_string(&file) {
            Ok(known) if known == text => Ok(()),
            _ => home::write_private(&file, text.as_bytes()),
        });
        kept.await.map_err(io::Error::other)?
    }

    /// What holds now. The task ends before it begins where that cannot be read: it may restrict something.
    pub(super) async fn team_rules(&self) -> TeamRules {
        if self.shared.context.board.is_none() {
            // Nobody could answer.
            return TeamRules { approval_minutes: Some(0), ..TeamRules::default() };
        }
        let file = self.home().team_rules();
        let kept = tokio::task::spawn_blocking(move || fs::read_to_string(file)).await;
        match kept.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => TeamRules::default(),
            text => text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_else(unreadable),
        }
    }
}

fn unreadable() -> TeamRules {
    let unknown = vec!["state/team.json".to_owned()];
    TeamRules { rules: ApprovalRules { unknown, ..ApprovalRules::default() }, ..TeamRules::default() }
}
