//! The composer of a session: what is to be said, the files that go along, and who is to answer.

use askama::Template;
use protocol::{ArtifactId, SessionId, TeamId};

use crate::{
    db,
    domain::{Artifact, ArtifactKind, Role},
    error::Result,
    state::Board,
    web::pages::{conversation::Conversation, nonce, pane::artifacts::icon, preflight::AgentOptions},
    web::{extract::Caller, urls, view::filters},
};

/// Files that may wait for the next message.
const MAX_SHOWN_FILES: u64 = 64;
/// Largest picture that is shown before it is sent, bytes.
const MAX_THUMBNAIL_BYTES: u64 = 16 * 1024 * 1024;

/// The form for the next message, or why there is none.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_composer.html")]
pub struct Composer {
    say: Composing,
    action: String,
    /// The idempotency key: the same message sent twice is one message.
    pub key: String,
    pub draft: String,
    pub content: String,
    /// When the page answers a form: the address that shows it again.
    pub address: Option<String>,
    pub error: Option<String>,
    /// Who answers.
    options: AgentOptions,
    files: AttachedFiles,
}

/// Whether the reader may send messages here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Composing {
    Allowed,
    Refused(&'static str),
}

/// The files that go with the next message.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_attached.html")]
pub struct AttachedFiles {
    slug: String,
    files: Vec<AttachedFile>,
}

/// One of them.
#[derive(Clone, Debug)]
struct AttachedFile {
    id: ArtifactId,
    name: String,
    size: u64,
    icon: &'static str,
    /// The address of the picture that it is.
    picture: Option<String>,
}

impl Composer {
    pub fn of(board: &Board, conversation: &Conversation, waiting: &[Artifact], caller: &Caller) -> Self {
        let say = match (caller.role >= Role::Operator, &conversation.viber) {
            (false, _) => Composing::Refused(
                "You are a viewer here and have read access only. An admin can make you an operator.",
            ),
            (true, None) => {
                Composing::Refused("The viber of this session was removed. Start a new task on another one.")
            }
            (true, Some(_)) => Composing::Allowed,
        };
        // Who answered last answers again, unless somebody chooses otherwise.
        let model = conversation.current.as_ref().and_then(|task| task.model_asked());
        let options = conversation.viber.as_ref().map(|viber| {
            let agent = viber.agents.iter().find(|agent| agent.id == conversation.session.agent_id);
            AgentOptions::of(viber, agent, model)
        });
        Self {
            say,
            action: urls::session_verb(&caller.team.slug, &conversation.session.id, "messages"),
            key: nonce(board),
            draft: conversation.session.id.to_string(),
            content: String::new(),
            address: None,
            error: None,
            options: options.unwrap_or_default(),
            files: AttachedFiles::of(&caller.team.slug, waiting),
        }
    }
}

impl AttachedFiles {
    pub fn of(slug: &str, waiting: &[Artifact]) -> Self {
        let file = |artifact: &Artifact| {
            let size = artifact.size.unwrap_or(0);
            let is_picture = matches!(artifact.kind(), ArtifactKind::Image(_)) && size <= MAX_THUMBNAIL_BYTES;
            AttachedFile {
                picture: is_picture.then(|| urls::artifact_verb(slug, &artifact.id, "view")),
                id: artifact.id.clone(),
                name: artifact.name.clone(),
                size,
                icon: icon(artifact),
            }
        };
        Self { slug: slug.to_owned(), files: waiting.iter().map(file).collect() }
    }
}

/// The files that wait for a session's next message, in order.
pub async fn waiting(board: &Board, team: &TeamId, session: &SessionId) -> Result<Vec<Artifact>> {
    Ok(db::artifacts::waiting(&mut board.db.reader_of(team).await?, session, MAX_SHOWN_FILES).await?)
}
