//! What people call a version of a skill in the registry: `clawhub:SLUG@VERSION`.

use std::{fmt, str::FromStr};

/// Longest names and versions, characters; a slug of ClawHub has at most 200 (`convex/lib/skillZip.ts`,
/// `validateSlug`).
const MAX_WORD_CHARS: usize = 200;
/// What a source begins with.
const SCHEME: &str = "clawhub:";
/// What is said of anything else.
const EXPECTED: &str =
    "expected clawhub:SLUG@VERSION, such as clawhub:release-notes@1.4.2, or clawhub:@OWNER/SLUG@VERSION";

/// One version of one skill. It is no address, and none can be put into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryReference {
    /// The publisher, where several have a skill of this name.
    pub owner: Option<String>,
    pub slug: String,
    pub version: String,
}

impl FromStr for RegistryReference {
    /// A sentence for whoever wrote it.
    type Err = &'static str;

    fn from_str(source: &str) -> Result<Self, Self::Err> {
        let named = source.strip_prefix(SCHEME).ok_or(EXPECTED)?;
        let (name, version) = named.rsplit_once('@').ok_or(EXPECTED)?;
        let (owner, slug) = match name.strip_prefix('@').unwrap_or(name).split_once('/') {
            Some((owner, slug)) => (Some(owner), slug),
            None if name.starts_with('@') => return Err(EXPECTED),
            None => (None, name),
        };
        let is_good = owner.is_none_or(|owner| is_word(owner, "")) && is_word(slug, "") && is_word(version, "+");
        let own = |word: &str| word.to_owned();
        is_good.then(|| Self { owner: owner.map(own), slug: own(slug), version: own(version) }).ok_or(EXPECTED)
    }
}

/// As skills are named everywhere: without what it begins with.
impl fmt::Display for RegistryReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(owner) = &self.owner {
            write!(f, "@{owner}/")?;
        }
        write!(f, "{}@{}", self.slug, self.version)
    }
}

/// Letters, digits, `.`, `_` and `-`, and `more`; no two points in a row.
fn is_word(word: &str, more: &str) -> bool {
    word.len() <= MAX_WORD_CHARS
        && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !word.contains("..")
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c) || more.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_and_written_alike() {
        for named in ["release-notes@1.4.2", "a@1", "A.b_c@1.0.0-rc.1+build.7", "@ines/release-notes@1.4.2"] {
            let read: RegistryReference = format!("clawhub:{named}").parse().expect(named);
            assert_eq!(read.to_string(), named);
        }
        let read: RegistryReference = "clawhub:ines/a@1".parse().expect("an owner without @");
        assert_eq!((read.owner.as_deref(), read.slug.as_str(), read.version.as_str()), (Some("ines"), "a", "1"));
    }

    #[test]
    fn nothing_else_is_one() {
        let long = format!("clawhub:{}@1", "x".repeat(201));
        for source in [
            "",
            "clawhub:",
            "release-notes@1.4.2",
            "npm:a@1",
            "CLAWHUB:a@1",
            "clawhub:a",
            "clawhub:a@",
            "clawhub:@1",
            "clawhub:@ines/a",
            "clawhub:@a@1",
            "clawhub:/a@1",
            "clawhub:a/@1",
            "clawhub:a/b/c@1",
            "clawhub:../a@1",
            "clawhub:a@..",
            "clawhub:a@1 ",
            "clawhub: a@1",
            "clawhub:a@1?x=y",
            "clawhub:a@1#x",
            "clawhub:a&version=2@1",
            "clawhub:a%2fb@1",
            "clawhub:ä@1",
            "clawhub:a@1\n",
            "clawhub:http://127.0.0.1/@1",
            &long,
        ] {
            assert!(source.parse::<RegistryReference>().is_err(), "{source:?}");
        }
    }
}
