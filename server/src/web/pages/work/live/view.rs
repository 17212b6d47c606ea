//! What a tab shows, by the name that its page gave it.

use protocol::{JoinTokenId, RunId, SessionId, SkillId, ViberId};

use crate::web::view::PageLocation;

/// What the tab shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    Rail,
    Home,
    Playbooks,
    Run(RunId),
    /// A version of a skill, and the orders that its page names.
    Skill(SkillId, String),
    Vibers,
    Viber(ViberId),
    /// What is at work on a viber; of one agent, or of all where it is empty.
    Bus(ViberId, String),
    Joining(JoinTokenId),
    Session(SessionId),
    Files {
        viber: ViberId,
        how: String,
        path: String,
    },
}

impl View {
    /// By the name that its page gave it.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.split_once(':') {
            None if text == "home" => Self::Home,
            None if text == "playbooks" => Self::Playbooks,
            None if text == "vibers" => Self::Vibers,
            None if text == "rail" => Self::Rail,
            Some(("run", id)) => Self::Run(id.parse().ok()?),
            Some(("skill", rest)) => {
                let (id, ordered) = rest.split_once(':')?;
                Self::Skill(id.parse().ok()?, ordered.to_owned())
            }
            Some(("viber", id)) => Self::Viber(id.parse().ok()?),
            Some(("bus", rest)) => {
                let (id, agent) = rest.split_once(':')?;
                Self::Bus(id.parse().ok()?, agent.to_owned())
            }
            Some(("join", id)) => Self::Joining(id.parse().ok()?),
            Some(("session", id)) => Self::Session(id.parse().ok()?),
            Some(("files", rest)) => {
                let mut parts = rest.splitn(3, ':');
                let (viber, how) = (parts.next()?.parse().ok()?, parts.next()?.to_owned());
                Self::Files { viber, how, path: parts.next()?.to_owned() }
            }
            _ => return None,
        })
    }

    /// Whether a file that changed is among what is shown: the file itself, or another one in the folder beside it.
    pub fn shows(&self, of: &ViberId, changed: &str) -> bool {
        let above = |path: &str| path.rsplit_once('/').map_or_else(String::new, |(above, _)| above.to_owned());
        match self {
            Self::Files { viber, .. } if viber != of => false,
            Self::Files { .. } if changed.is_empty() => true,
            Self::Files { how, path, .. } if how == "folder" => {
                path.is_empty() || changed.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'))
            }
            Self::Files { path, .. } => path == changed || above(path) == above(changed),
            // Its plan, and what stands beside it.
            Self::Session(id) => changed.is_empty() || changed.starts_with(&format!("sessions/{id}/")),
            _ => false,
        }
    }

    /// The page that it belongs to.
    pub fn location(&self) -> PageLocation {
        match self {
            Self::Rail => PageLocation::Elsewhere,
            Self::Home => PageLocation::Home,
            Self::Playbooks => PageLocation::Playbooks,
            Self::Run(id) => PageLocation::Run(id.clone()),
            Self::Skill(id, ordered) => PageLocation::Skill(id.clone(), ordered.clone()),
            Self::Vibers => PageLocation::Vibers,
            Self::Viber(id) => PageLocation::Viber(id.clone()),
            Self::Bus(id, agent) => PageLocation::Live(id.clone(), agent.clone()),
            Self::Joining(id) => PageLocation::Joining(id.clone()),
            Self::Session(id) => PageLocation::Session(id.clone()),
            Self::Files { viber, how, path } => PageLocation::Files(viber.clone(), how.clone(), path.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_named_exactly() {
        let id = SessionId::new(1);
        assert_eq!(View::parse(&format!("session:{id}")), Some(View::Session(id)));
        assert_eq!(View::parse("vibers"), Some(View::Vibers));
        let run = RunId::new(1);
        assert_eq!(View::parse(&format!("run:{run}")), Some(View::Run(run)));
        let skill = SkillId::new(1);
        assert_eq!(View::parse(&format!("skill:{skill}:")), Some(View::Skill(skill, String::new())));
        let viber = ViberId::new(1);
        assert_eq!(View::parse(&format!("bus:{viber}:a:b")), Some(View::Bus(viber, "a:b".to_owned())));
        for bad in
            ["", "skill:x:", "bus:x:", "session", "session:", "session:x", "settings:1", "viber:ses_1", "run:ses_1"]
        {
            assert_eq!(View::parse(bad), None, "{bad}");
        }
    }
}
