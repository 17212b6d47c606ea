//! Pure data: what teams, sessions, tasks and vibers are, and which transitions they allow. No I/O.

pub mod documents;
pub mod fleet;
pub mod people;
pub mod skills;
pub mod work;

pub use documents::{artifact, file, memory, plan, space};
pub use fleet::{connection, library, order, rollout, viber};
pub use people::{accounts, actor, input, login, name, prices, quota};
pub use work::{
    approval, assemble, committed, context, delegation, idempotency, logbook, playbook_run, search_terms, session,
    task, task_message,
};

pub use accounts::{Invitation, Member, Operator, Role, Team, Token};
pub use actor::{Actor, By};
pub use approval::{Approval, ApprovalOutline, ApprovalSettings, ApprovalState, CallConsequence};
pub use artifact::{Artifact, ArtifactKind, ArtifactOrigin, ArtifactState};
pub use committed::{Committed, Item, Report};
pub use connection::Connection;
pub use delegation::{Delegation, DelegationState, Kin, KinTask, MeshSettings, TaskTree, TreeMove};
pub use file::{Edit, EditState, File, FileReport, FileText};
pub use input::InvalidInput;
pub use library::{
    HeldSkill, LibrarySkill, QueuedInstall, SkillContents, SkillHolder, SkillOp, SkillOrigin, SkillReview,
    SkillReviewState, SkillVersion,
};
pub use login::{CookieState, CookieVerdict, Login};
pub use order::{AllowedTools, McpOrder, Order, OrderState, OrderedSkill, SkillOrder, open_orders};
pub use plan::{PlanSource, Proposal, ProposalState, Revision};
pub use playbook_run::{
    GateWord, PlaybookRun, RunEvent, RunEventKind, RunNeed, RunState, RunStep, SkippedStep, StepPhase, SupervisorCall,
    plan::{ChildTask, RunMove, RunSnapshot},
    transitions::StepPlace,
};
pub use prices::TeamPrices;
pub use quota::{StorageUse, size_words};
pub use rollout::{LabelProgress, RolloutCounts, RolloutState, SkillRollout};
pub use session::{Message, MessageRole, Part, Policies, PolicyChange, Session, SessionLine, SessionState};
pub use space::{Comment, Side, Space};
pub use task::{
    Attempt, Brief, Contact, ContactState, Delivery, OverflowRung, SmallerAttempt, Task, TaskKind, TaskState, Waiting,
    WaitingFor,
};
pub use task_message::{EarlierVersion, KnownEnd, TaskMessage, TaskMessageState};
pub use viber::{JoinToken, NamedViber, Viber, ViberFilter};

/// A value that is stored as one word.
pub trait Word: Sized + 'static {
    /// Every value, in order.
    const ALL: &'static [Self];

    /// The word for it.
    fn word(self) -> &'static str;
}

/// An enum that stands as a word in the database, in JSON and in pages: `as_str`, `FromStr`, `Display`, serde,
/// and its schema, which may have a name of its own (`Delivery as TaskDelivery`).
#[macro_export]
macro_rules! words {
    (@schema $name:ident) => { stringify!($name) };
    (@schema $name:ident $schema:ident) => { stringify!($schema) };
    ($(#[$doc:meta])* $name:ident $(as $schema:ident)? { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

        impl $name {
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

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let text = utoipa::openapi::Object::builder()
                    .schema_type(utoipa::openapi::Type::String)
                    .enum_values(Some([$($word),*]));
                text.into()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                $crate::words!(@schema $name $($schema)?).into()
            }
        }

        impl $crate::domain::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    };
}
