//! The composer of a session: what is to be said, the files that go along, and who is to answer.

use askama::Template;
use protocol::{ArtifactId, Capability, InjectionPoint, SessionId, TeamId};

use super::slash::SlashCommand;
use crate::{
    db::{
        self,
        tasks::message_modes::{self, ChosenModes},
    },
    domain::{Artifact, ArtifactKind, Role},
    error::Result,
    state::Board,
    web::pages::{
        conversation::Conversation,
        nonce,
        pane::artifacts::icon,
        preflight::{AgentOptions, MAX_OFFERED_MODELS, OWN_MODEL, SkillWord, skill_words},
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
    /// What Enter does while a task runs, and what else can be done; empty where a task cannot be told anything.
    ways: Vec<SendingWay>,
    /// It was chosen for this session alone.
    chosen_here: bool,
    /// Whether a task can be held.
    can_pause: bool,
    /// Who answers.
    options: AgentOptions,
    /// Skills of the session's agent that a message can begin with.
    skills: Vec<SkillWord>,
    files: AttachedFiles,
}

/// A way of telling a running task something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingWay {
    mode: InjectionPoint,
    /// As the page names keys, and as it shows them.
    key: &'static str,
    key_shown: &'static str,
}

impl SendingWay {
    /// The ways that an agent can be told: what Enter does first. The others have one key each: Alt and Ctrl with Enter for
    /// *Collect* and *Steer* unless Enter does that, and what is free then for *Next*.
    fn all(usual: InjectionPoint, can: &[Capability]) -> Vec<Self> {
        use InjectionPoint::{Collect, Followup, Steer};
        if !can.contains(&Capability::Queue) {
            return Vec::new();
        }
        let possible = |mode: InjectionPoint| mode != Steer || can.contains(&Capability::Steer);
        let usual = if possible(usual) { usual } else { Collect };
        let key = |mode| match (mode, usual) {
            (mode, usual) if mode == usual => ("enter", "↵"),
            (Steer, _) | (Followup, Steer) => ("ctrl+enter", "Ctrl ↵"),
            (Collect, _) | (Followup, _) => ("alt+enter", "Alt ↵"),
        };
        let others = [Followup, Collect, Steer].into_iter().filter(|mode| *mode != usual && possible(*mode));
        let way = |mode| SendingWay { mode, key: key(mode).0, key_shown: key(mode).1 };
        std::iter::once(usual).chain(others).map(way).collect()
    }

    /// When the agent is told.
    fn effect(&self) -> &'static str {
        match self.mode {
            InjectionPoint::Followup => "The agent is told after this turn",
            InjectionPoint::Collect => "The agent is told at the end of this turn, with what else is collected",
            InjectionPoint::Steer => "The agent is told now: what it is writing is dropped",
        }
    }
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
    pub fn of(
        board: &Board,
        conversation: &Conversation,
        (waiting, modes): (&[Artifact], ChosenModes),
        caller: &Caller,
    ) -> Self {
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
        let skills = conversation.viber.as_ref().map(|viber| {
            let mut skills = skill_words(&viber.skills, &conversation.session.agent_id);
            // These are said to the conversation itself.
            skills.retain(|skill| SlashCommand::ALL.iter().all(|command| command.word() != skill.word));
            skills
        });
        let can = conversation.capabilities();
        Self {
            say,
            action: urls::session_verb(&caller.team.slug, &conversation.session.id, "messages"),
            key: nonce(board),
            draft: conversation.session.id.to_string(),
            content: String::new(),
            address: None,
            error: None,
            notice: None,
            ways: SendingWay::all(modes.used(), can),
            chosen_here: modes.here.is_some(),
            can_pause: can.contains(&Capability::Pause),
            options: options.unwrap_or_default(),
            skills: skills.unwrap_or_default(),
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

/// What the caller chose for Enter.
pub async fn modes(board: &Board, caller: &Caller, session: &SessionId) -> Result<ChosenModes> {
    let Some(operator) = caller.reader() else { return Ok(ChosenModes::default()) };
    Ok(message_modes::load(&mut board.db.reader_of(&caller.team.id).await?, operator, session).await?)
}

/// The files that wait for a session's next message, in order.
pub async fn waiting(board: &Board, team: &TeamId, session: &SessionId) -> Result<Vec<Artifact>> {
    Ok(db::artifacts::waiting(&mut board.db.reader_of(team).await?, session, MAX_SHOWN_FILES).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_one_key() {
        use InjectionPoint::{Collect, Followup, Steer};
        let both = [Capability::Queue, Capability::Steer];
        let keys = |usual, can: &[Capability]| {
            let ways = SendingWay::all(usual, can);
            ways.iter().map(|way| (way.mode, way.key)).collect::<Vec<_>>()
        };
        assert_eq!(keys(Followup, &both), [(Followup, "enter"), (Collect, "alt+enter"), (Steer, "ctrl+enter")]);
        assert_eq!(keys(Collect, &both), [(Collect, "enter"), (Followup, "alt+enter"), (Steer, "ctrl+enter")]);
        assert_eq!(keys(Steer, &both), [(Steer, "enter"), (Followup, "ctrl+enter"), (Collect, "alt+enter")]);
        // Who cannot be steered is told as the Board does it then.
        assert_eq!(keys(Steer, &both[..1]), [(Collect, "enter"), (Followup, "alt+enter")]);
        assert_eq!(keys(Followup, &[]), []);
    }
}
