//! The key `delegates` of an agent's file: whom it may have do a part of its work. Without it, nobody.

use protocol::agent::is_id;

/// Longest name of a viber, or label with its value, bytes.
const MAX_PLACE_BYTES: usize = 200;

/// An agent that may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegate {
    pub agent: String,
    /// The name of a viber, or `label=value`; `None`: an agent of this machine.
    pub place: Option<String>,
}

impl Delegate {
    /// Reads an entry: `agent`, `agent@viber` or `agent@label=value`. `Err` is a sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{:?} is none of `agent`, `agent@viber` and `agent@label=value`", protocol::text::head(text, 100))
        };
        let (agent, place) = match text.trim().split_once('@') {
            Some((agent, place)) => (agent.trim(), Some(place.trim())),
            None => (text.trim(), None),
        };
        let is_place = |place: &&str| {
            let has_parts = place.split_once('=').is_none_or(|(key, value)| !key.is_empty() && !value.is_empty());
            (1..=MAX_PLACE_BYTES).contains(&place.len()) && !place.chars().any(char::is_control) && has_parts
        };
        if !is_id(agent) || place.is_some_and(|place| !is_place(&place)) {
            return Err(wrong());
        }
        Ok(Self { agent: agent.to_owned(), place: place.map(str::to_owned) })
    }

    /// As it is written.
    pub fn text(&self) -> String {
        match &self.place {
            Some(place) => format!("{}@{place}", self.agent),
            None => self.agent.clone(),
        }
    }

    /// The entry that a call means: of several of the same agent the one on this machine, unless it names a place.
    pub fn find<'a>(all: &'a [Self], agent: &str, place: Option<&str>) -> Option<&'a Self> {
        let mut of_agent = all.iter().filter(|known| known.agent == agent);
        match place {
            Some(_) => of_agent.find(|known| known.place.as_deref() == place),
            None => of_agent.clone().find(|known| known.place.is_none()).or_else(|| of_agent.next()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_people_write_them() {
        let read = |text: &str| Delegate::read(text).map(|read| (read.agent, read.place));
        let of = |agent: &str, place: Option<&str>| Ok((agent.to_owned(), place.map(str::to_owned)));
        assert_eq!(read("coder"), of("coder", None));
        assert_eq!(read(" reviewer @ m2 "), of("reviewer", Some("m2")));
        assert_eq!(read("tester@gpu=yes"), of("tester", Some("gpu=yes")));
        for wrong in ["", "@m2", "coder@", "co der", "../x", "tester@=yes", "tester@gpu=", "a@b\nc"] {
            assert!(read(wrong).is_err_and(|why| why.contains("agent@viber")), "{wrong:?}");
        }
    }

    #[test]
    fn the_agent_of_this_machine_is_meant_unless_another_is_named() {
        let all: Vec<Delegate> = ["coder@m2", "coder", "tester@gpu=yes"]
            .into_iter()
            .map(|text| Delegate::read(text).expect("an entry"))
            .collect();
        let find = |agent: &str, place: Option<&str>| Delegate::find(&all, agent, place).map(Delegate::text);
        assert_eq!(find("coder", None).as_deref(), Some("coder"));
        assert_eq!(find("coder", Some("m2")).as_deref(), Some("coder@m2"));
        assert_eq!(find("tester", None).as_deref(), Some("tester@gpu=yes"));
        assert_eq!(find("coder", Some("m3")), None);
        assert_eq!(find("writer", None), None);
    }
}
