//! What pages say of a version: its review, where it comes from, and its digest in short.

use crate::{
    domain::{LibrarySkill, SkillOrigin, SkillReviewState, skills::marked},
    web::view::Badge,
};

/// Longest version that a cell shows, bytes.
const MAX_VERSION_BYTES: usize = 24;

/// The first `groups` groups of four digits.
pub fn short_digest(digest: &str, groups: usize) -> String {
    let digits: Vec<char> = digest.chars().take(4 * groups).collect();
    digits.chunks(4).map(|four| four.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
}

/// The version, or the beginning of the digest of one that says none.
pub fn version(version: Option<&str>, digest: &str) -> String {
    match version.filter(|version| !version.trim().is_empty()) {
        Some(version) => marked(protocol::text::head(version, MAX_VERSION_BYTES)),
        None => short_digest(digest, 2),
    }
}

/// Whether it may be installed.
pub fn review_badge(state: SkillReviewState) -> Badge {
    match state {
        SkillReviewState::Unreviewed => Badge { state: "waiting", icon: "waiting", word: "Waits for review" },
        SkillReviewState::Approved => Badge { state: "done", icon: "done", word: "Approved" },
        SkillReviewState::Rejected => Badge { state: "stopped", icon: "stopped", word: "Rejected" },
    }
}

/// Where it comes from, in words; `giver` is the viber that it was taken from, if that is still there.
pub fn origin(skill: &LibrarySkill, giver: Option<&str>) -> String {
    match skill.origin {
        SkillOrigin::Upload => "Upload".to_owned(),
        SkillOrigin::Clawhub => format!("ClawHub, {}", marked(skill.reference.as_deref().unwrap_or(""))),
        SkillOrigin::Viber => format!("Taken from {}", giver.unwrap_or("a viber that is gone")),
    }
}

/// `1 file`, `2 files`.
pub fn count(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_in_fours() {
        assert_eq!(short_digest("c07a11fe5b2093d4ff", 2), "c07a 11fe");
        assert_eq!(short_digest("c07a11", 4), "c07a 11");
        assert_eq!(version(Some(" "), "c07a11fe5b"), "c07a 11fe");
        assert_eq!(version(Some("1.0\u{200b}"), ""), "1.0⟨U+200B⟩");
    }
}
