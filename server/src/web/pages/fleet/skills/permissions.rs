//! What a skill may do, as lines: what it declares, and what its files use beyond that, against another version.

use std::collections::BTreeSet;

use crate::domain::skills::{PermissionChanges, SkillPermissions, marked};

/// Lines that are shown.
const MAX_LINES: usize = 200;
/// Additions that are named above the lines.
const MAX_NAMED_ADDITIONS: usize = 5;

/// One thing that a skill may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PermissionLine {
    /// What kind of thing.
    pub what: &'static str,
    pub name: String,
}

/// What it may do, and how that differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermissionsView {
    /// `add`, `del` or `same`, and the line.
    pub lines: Vec<(&'static str, PermissionLine)>,
    pub omitted: usize,
    /// What is new.
    pub added: Vec<PermissionLine>,
    pub more_added: usize,
    pub removed: usize,
}

fn lines(permissions: &SkillPermissions) -> Vec<PermissionLine> {
    let network = match (permissions.network.used, permissions.network.hosts.is_empty()) {
        (true, true) => vec!["hosts that it does not name".to_owned()],
        _ => permissions.network.hosts.clone(),
    };
    let kinds: [(&'static str, &[String]); 7] = [
        ("runs the file", &permissions.scripts),
        ("uses the network", &network),
        ("reads the variable", &permissions.env),
        ("needs the command", &permissions.bins),
        ("names the agent’s tool", &permissions.tools),
        ("reads, undeclared, the variable", &permissions.undeclared_env),
        ("starts, undeclared, the command", &permissions.undeclared_bins),
    ];
    let of = |(what, names): (&'static str, &[String])| {
        names.iter().map(|name| PermissionLine { what, name: marked(name) }).collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of).collect()
}

impl PermissionsView {
    /// Of a version, with what differs from another one.
    pub fn of(now: &SkillPermissions, changes: Option<&PermissionChanges>) -> Self {
        let mut added = changes.map(|changes| lines(&changes.added)).unwrap_or_default();
        let mut removed = changes.map(|changes| lines(&changes.removed)).unwrap_or_default();
        let here = lines(now);
        // A host that is named first does not make the network new.
        added.retain(|line| here.contains(line));
        removed.retain(|line| !here.contains(line));
        let new: BTreeSet<&PermissionLine> = added.iter().collect();
        let op = |line: &PermissionLine| if new.contains(line) { "add" } else { "same" };
        let mut all: Vec<_> = here.iter().map(|line| (op(line), line.clone())).collect();
        all.extend(removed.iter().map(|line| ("del", line.clone())));
        // What is new comes first, so that it is never among what is left out.
        all.sort_by_key(|(op, _)| match *op {
            "add" => 0,
            "del" => 1,
            _ => 2,
        });
        let omitted = all.len().saturating_sub(MAX_LINES);
        all.truncate(MAX_LINES);
        let more_added = added.len().saturating_sub(MAX_NAMED_ADDITIONS);
        added.truncate(MAX_NAMED_ADDITIONS);
        Self { lines: all, omitted, added, more_added, removed: removed.len() }
    }

    /// How many things are new.
    pub fn new_count(&self) -> usize {
        self.added.len() + self.more_added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::skills::SkillNetwork;

    #[test]
    fn what_is_new_comes_first() {
        let now = SkillPermissions {
            bins: vec!["git".to_owned(), "curl".to_owned()],
            network: SkillNetwork { used: true, hosts: vec!["notes.example".to_owned()] },
            ..SkillPermissions::default()
        };
        let changes = PermissionChanges {
            added: SkillPermissions { bins: vec!["curl".to_owned()], ..SkillPermissions::default() },
            removed: SkillPermissions { env: vec!["TOKEN".to_owned()], ..SkillPermissions::default() },
        };
        let view = PermissionsView::of(&now, Some(&changes));
        let shown: Vec<_> = view.lines.iter().map(|(op, line)| (*op, line.name.as_str())).collect();
        assert_eq!(shown, [("add", "curl"), ("del", "TOKEN"), ("same", "notes.example"), ("same", "git")]);
        assert_eq!((view.new_count(), view.removed), (1, 1));
        assert!(PermissionsView::of(&SkillPermissions::default(), None).lines.is_empty());
    }
}
