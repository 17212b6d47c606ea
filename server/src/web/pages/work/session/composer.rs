//! The composer of a session: what is to be said, the files that go along, and who is to answer.

use askama::Template;
use protocol::{ArtifactId, Capability, SessionId, TeamId};

use crate::{
    db,
    domain::{Artifact, ArtifactKind, Role},
    error::Result,
    state::Board,
    web::pages::{
        conversation::Conversation,
        nonce,
        pane::artifacts::icon,
        preflight::{AgentOptions, MAX_OFFERED_MODELS, OWN_MODEL},
    },
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
    /// What became of the message before it, when that is not what its author wanted.
    pub notice: Option<String>,
    /// Whether a task that runs can be told something.
    can_collect: bool,
    can_steer: bool,
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
#[template(path = "work/session_forms/_attached.html")]
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
    /// The answer to the form that attached it.
    is_new: bool,
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
        let newest = conversation.open.iter().chain(&conversation.current).max_by_key(|task| task.message_seq);
        let model = newest.and_then(|task| task.model_asked());
        let options = conversation.viber.as_ref().map(|viber| {
            let agent = viber.agents.iter().find(|agent| agent.id == conversation.session.agent_id);
            AgentOptions::as_before(viber, agent, model)
        });
        let can = |capability| conversation.capabilities().contains(&capability);
        Self {
            say,
            action: urls::session_verb(&caller.team.slug, &conversation.session.id, "messages"),
            key: nonce(board),
            draft: conversation.session.id.to_string(),
            content: String::new(),
            address: None,
            error: None,
            notice: None,
            can_collect: can(Capability::Queue),
            can_steer: can(Capability::Steer),
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
                is_new: false,
                size,
                icon: icon(artifact),
            }
        };
        Self { slug: slug.to_owned(), files: waiting.iter().map(file).collect() }
    }

    /// The same; these were attached just now.
    pub fn with_new(mut self, new: &[ArtifactId]) -> Self {
        self.files.iter_mut().for_each(|file| file.is_new = new.contains(&file.id));
        self
    }
}

/// The model that a message asks for: the one that was chosen; without a choice what the session's newest task asked for, as
/// long as the viber offers it.
pub async fn model(board: &Board, team: &TeamId, session: &SessionId, chosen: &str) -> Result<Option<String>> {
    if !chosen.is_empty() {
        return Ok(Some(chosen.to_owned()).filter(|chosen| chosen != OWN_MODEL));
    }
    let tx = &mut board.db.reader_of(team).await?;
    let Some(task) = tx.query(db::tasks::newest_of_session_query(session)).await? else { return Ok(None) };
    let Some(model) = task.model_asked() else { return Ok(None) };
    let viber = db::vibers::load(tx, &task.viber_id).await?;
    // As the composer words it: the agent's own model goes with the agent.
    let stays = viber.is_some_and(|viber| {
        let own = viber.agents.iter().find(|agent| agent.id == task.agent_id).is_some_and(|agent| agent.model == model);
        !own && viber.models().take(MAX_OFFERED_MODELS).any(|offered| offered == model)
    });
    Ok(stays.then(|| model.to_owned()))
}

/// The files that wait for a session's next message, in order.
pub async fn waiting(board: &Board, team: &TeamId, session: &SessionId) -> Result<Vec<Artifact>> {
    Ok(db::artifacts::waiting(&mut board.db.reader_of(team).await?, session, MAX_SHOWN_FILES).await?)
}
