//! Identifiers: a prefix and a UUIDv7, sortable by creation and greppable in logs.
//!
//! One newtype each, parsed at the edge: a value of such a type is well formed, never more.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{NoContext, Timestamp, Uuid};

/// Why a text is not an identifier of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadId {
    /// The prefix that was expected, without its underscore.
    pub expected: &'static str,
}

impl fmt::Display for BadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an identifier of the form {}_<uuid>", self.expected)
    }
}

impl std::error::Error for BadId {}

macro_rules! ids {
    ($($(#[doc = $doc:literal])* $name:ident = $prefix:literal;)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The part before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// A new identifier made at `now` (milliseconds since the epoch): 48 bits of time, 74 random bits (RFC 9562).
            pub fn new(now: i64) -> Self {
                let now = now.max(0).unsigned_abs();
                let at = Timestamp::from_unix(NoContext, now / 1000, ((now % 1000) * 1_000_000) as u32);
                Self(format!(concat!($prefix, "_{}"), Uuid::new_v7(at).simple()))
            }

            /// The text form, `prefix_` and 32 hexadecimal digits.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let bad = BadId { expected: $prefix };
                let digits = text.strip_prefix(concat!($prefix, "_")).ok_or_else(|| bad.clone())?;
                let hex = digits.len() == 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if hex { Ok(Self(text.to_owned())) } else { Err(bad) }
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let text = utoipa::openapi::Object::builder()
                    .schema_type(utoipa::openapi::Type::String)
                    .description(Some(concat!($($doc),*).trim()))
                    .pattern(Some(concat!("^", $prefix, "_[0-9a-f]{32}$")))
                    .examples([concat!($prefix, "_0192d1c7a0f07a3cb1f0c6f8d1f1a2b3")]);
                text.into()
            }
        }

        #[cfg(feature = "schema")]
        impl utoipa::ToSchema for $name {}

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// A tenant.
    TeamId = "team";
    /// A person with an account.
    OperatorId = "op";
    /// A signed-in device of an operator: the `sid` of its cookie.
    LoginId = "sid";
    /// A work machine, enrolled in one team.
    ViberId = "vib";
    /// One conversation with one agent on one viber.
    SessionId = "ses";
    /// One unit of work in a session.
    TaskId = "task";
    /// One message of a session.
    MessageId = "msg";
    /// Something a task produced.
    ArtifactId = "art";
    /// A decision that waits for a person.
    ApprovalId = "apr";
    /// A change of a workspace's file that somebody made on the Board.
    EditId = "edt";
    /// A change that an agent would like to be made.
    ProposalId = "prp";
    /// A remark on a line of a file, not sent yet.
    CommentId = "cmt";
    /// A scheduled prompt on a viber.
    JobId = "job";
    /// One version of a skill in a team's library.
    SkillId = "skl";
    /// One rollout of a version of a skill, label by label.
    RolloutId = "rol";
    /// One run of a playbook.
    RunId = "run";
    /// An invitation to a team.
    InvitationId = "inv";
    /// An API token.
    TokenId = "tok";
    /// A join token.
    JoinTokenId = "jtk";
    /// One start of a daemon process: tells a crash from a reconnect.
    BootId = "boot";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_survives_its_text_form_and_sorts_by_time() {
        let early = TaskId::new(1_700_000_000_000);
        let late = TaskId::new(1_700_000_000_001);
        assert_eq!(early.as_str().parse::<TaskId>().as_ref(), Ok(&early));
        assert!(early < late);
    }

    #[test]
    fn another_kind_or_a_broken_text_is_refused() {
        let task = TaskId::new(1).to_string();
        assert!(task.parse::<SessionId>().is_err());
        for text in ["", "task_", "task_xyz", "task_../../etc", &task.to_uppercase(), &format!("{task}0")] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
    }
}
