//! Pure data: what teams, sessions, tasks and vibers are, and which transitions they allow. No I/O.

pub mod actor;
pub mod artifact;
pub mod assemble;
pub mod committed;
pub mod file;
pub mod history;
pub mod logbook;
pub mod login;
pub mod memory;
pub mod name;
pub mod once;
pub mod people;
pub mod plan;
pub mod session;
pub mod space;
pub mod task;
pub mod viber;

pub use actor::{Actor, By};
pub use artifact::{Artifact, Kind, Origin, Place};
pub use committed::{Committed, Item, Report};
pub use file::{Edit, EditState, File, Heard, Text};
pub use login::{CookieState, CookieWorth, Login};
pub use people::{Invitation, Member, Operator, Role, Team, Token};
pub use plan::{Approval, ApprovalState, Proposal, ProposalState, Revision, Source};
pub use session::{Author, Message, Part, Policies, PolicyChange, Session, SessionLine};
pub use space::{Comment, Side, Space};
pub use task::{Attempt, Brief, Contact, ContactState, Delivery, Task, TaskState, Waiting, WaitingFor};
pub use viber::{JoinToken, Viber};

/// An enum that stands as a word in the database, in JSON and in pages: `as_str`, `FromStr`, `Display`, serde.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    other => Err(format!("{other:?} is not one of {:?}", [$($word),*])),
                }
            }
        }

        impl From<$name> for $crate::db::Arg {
            fn from(value: $name) -> Self {
                Self::from(value.as_str())
            }
        }
    };
}
