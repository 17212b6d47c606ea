//! A session's plan: a file on its viber, and every version of it that was seen here.
//!
//! A change is an edit of the file, to the version that its author saw.

use protocol::{
    Instant, SessionId, TeamId, ViberId,
    plan::{self, Status, Step, Steps},
};

use crate::{
    actions::{
        After,
        files::{self, FileChange, FileOp},
    },
    db::{self, Change},
    domain::{By, Connection, Edit, EditState, Revision, Session, Source},
    error::{Error, Result},
    state::Board,
};

/// A change of a step is made anew on what somebody else wrote meanwhile, so often.
const TRIES: usize = 3;
/// Changes of a plan made here that are looked through for whose version it is.
const EDITS: u64 = 20;
/// The plan of sessions that began on the machine, as long as they have none of their own.
pub const OWN: &str = "task.md";
/// Sessions that are told when that one changed.
const TOLD: u64 = 50;
/// Files of a session that stand beside its plan and are shown with it.
pub const BESIDE: [&str; 2] = ["implementation_plan.md", "walkthrough.md"];

/// A plan as it stands.
#[derive(Clone, Debug)]
pub struct Now {
    pub markdown: String,
    pub hash: String,
    pub source: Source,
    pub at: Instant,
    /// Since when this may be old; `None`: it is so on the machine now.
    pub as_of: Option<Instant>,
    /// It is not on the machine yet.
    pub queued: bool,
}

/// What somebody wants the plan to say.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The version that they saw; `None`: there was none.
    pub base: Option<String>,
    pub text: String,
}

/// A step, and what somebody does to it.
#[derive(Clone, Debug)]
pub struct StepDeed {
    pub step: String,
    pub deed: Deed,
}

/// What somebody does to a step.
#[derive(Clone, Debug)]
pub enum Deed {
    Status(Status),
    Title(String),
    Up,
    Down,
    Remove,
    /// A new one at the end, whatever the id.
    Add(String),
}

/// The session of which `path` is the plan.
pub fn session_of(path: &str) -> Option<SessionId> {
    path.strip_prefix("sessions/")?.strip_suffix("/task.md")?.parse().ok()
}

/// Where a session's plan lies, beneath its viber's workspace.
pub fn path(session: &SessionId) -> String {
    format!("sessions/{session}/task.md")
}

async fn load(board: &Board, team: &TeamId, id: &SessionId) -> Result<Session> {
    let found = db::sessions::load(&mut board.db.reader_of(team).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// Whether a session began on its machine: without a plan of its own it goes by the machine's.
pub fn borrows(session: &Session) -> bool {
    session.created_by == session.viber_id.as_str()
}

/// The machine's own plan, for a session that began there.
async fn borrowed(board: &Board, team: &TeamId, session: &Session) -> Result<Option<Now>> {
    if !borrows(session) {
        return Ok(None);
    }
    let shown = match files::read(board, team, &session.viber_id, OWN, None).await {
        Ok(shown) => shown,
        Err(Error::NotFound | Error::Conflict { code: files::AWAY, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(markdown) = shown.text().map(str::to_owned) else { return Ok(None) };
    let at = shown.mtime.unwrap_or_else(|| board.clock.now());
    let source = if shown.by.as_deref() == Some("agent") { Source::Agent } else { Source::File };
    Ok(Some(Now { markdown, hash: shown.hash, source, at, as_of: shown.as_of, queued: shown.pending.is_some() }))
}

/// A session began on the machine: what its plan says is fetched, to be shown.
pub async fn adopt(board: &Board, team: &TeamId, session: &Session) {
    match now(board, team, &session.id).await {
        Ok(_) => {
            let mut after = After::default();
            after.session(&session.id);
            after.tell(board, team);
        }
        Err(error) => tracing::debug!(session.id = %session.id, %error, "the plan of a session is not known"),
    }
}

/// The plan as it is on the machine, else as it was heard of last. `None`: there is none.
pub async fn now(board: &Board, team: &TeamId, id: &SessionId) -> Result<Option<Now>> {
    let session = load(board, team, id).await?;
    let shown = match files::read(board, team, &session.viber_id, &path(id), None).await {
        Ok(shown) => shown,
        Err(Error::NotFound) => return borrowed(board, team, &session).await,
        Err(Error::Conflict { code: files::AWAY, .. }) if borrows(&session) => {
            return borrowed(board, team, &session).await;
        }
        Err(Error::Unavailable { .. }) => return Ok(newest(board, team, id).await?.map(of_revision)),
        Err(error) => return Err(error),
    };
    let Some(text) = shown.text() else {
        return Err(Error::unacceptable("not_a_plan", "the plan's file is no text, or larger than 1 MiB"));
    };
    let text = text.to_owned();
    if let Some(edit) = &shown.pending {
        let (markdown, hash, at) = (text, shown.hash.clone(), edit.created_at);
        return Ok(Some(Now { markdown, hash, source: Source::Operator, at, as_of: shown.as_of, queued: true }));
    }
    let by = shown.by.as_deref().unwrap_or("file");
    let revision = see(board, team, &session, (&text, &shown.hash), by).await?;
    Ok(Some(Now { as_of: shown.as_of, ..of_revision(revision) }))
}

fn of_revision(revision: Revision) -> Now {
    let Revision { markdown, hash, source, created_at: at, .. } = revision;
    Now { markdown, hash, source, at, as_of: Some(at), queued: false }
}

async fn newest(board: &Board, team: &TeamId, id: &SessionId) -> Result<Option<Revision>> {
    Ok(db::plans::newest(&mut board.db.reader_of(team).await?, id).await?)
}

/// Notes a version that was read from the machine, and answers its revision.
async fn see(
    board: &Board,
    team: &TeamId,
    session: &Session,
    (text, hash): (&str, &str),
    by: &str,
) -> Result<Revision> {
    let known = newest(board, team, &session.id).await?;
    if let Some(known) = known.filter(|known| known.hash == hash) {
        return Ok(known);
    }
    let (source, author) = match by {
        "agent" => (Source::Agent, session.agent_id.clone()),
        _ => (Source::File, "the machine".to_owned()),
    };
    let (id, viber) = (session.id.clone(), session.viber_id.clone());
    let (text, hash) = (text.to_owned(), hash.to_owned());
    let noting = board.change(team, &By::board(), move |tx| {
        let (id, viber) = (id.clone(), viber.clone());
        let (text, hash, author) = (text.clone(), hash.clone(), author.clone());
        Box::pin(async move {
            db::sessions::lock(tx, &id).await?;
            // A change from here may be heard of before its viber says that it made it.
            let edits = db::edits::of_file(tx, &viber, &path(&id), None, EDITS).await?;
            let ours = edits.into_iter().find(|edit| edit.hash.as_ref() == Some(&hash));
            let (source, author) = match ours {
                Some(edit) if source != Source::Agent => (Source::Operator, edit.author),
                _ => (source, author),
            };
            let fresh = db::plans::Fresh { hash: &hash, markdown: &text, source, author: &author, task: None };
            let added = db::plans::add(tx, &id, &fresh).await?;
            let newest = db::plans::newest(tx, &id).await?.ok_or(Error::NotFound)?;
            Ok::<_, Error>((newest, added.is_some()))
        })
    });
    let (revision, fresh) = noting.await?;
    if fresh {
        let mut after = After::default();
        after.session(&session.id);
        after.tell(board, team);
    }
    Ok(revision)
}

/// An edit of a file was made: when it is a session's plan, that is a revision.
pub async fn made(tx: &mut Change<'_>, viber: &ViberId, edit: &Edit) -> Result<Option<SessionId>, db::Error> {
    let Some(id) = session_of(&edit.path) else { return Ok(None) };
    let (Some(markdown), Some(hash)) = (&edit.content, &edit.hash) else { return Ok(None) };
    let session = db::sessions::load(tx, &id).await?;
    if session.is_none_or(|session| session.viber_id != *viber) {
        return Ok(None);
    }
    db::sessions::lock(tx, &id).await?;
    let fresh = db::plans::Fresh { hash, markdown, source: Source::Operator, author: &edit.author, task: None };
    db::plans::add(tx, &id, &fresh).await?;
    Ok(Some(id))
}

/// Whether a file is a session's plan, stands beside one, or is the machine's own.
pub fn belongs(path: &str) -> bool {
    session_of(path).is_some() || beside(path).is_some() || path == OWN
}

/// The session of a file that stands beside a plan.
fn beside(path: &str) -> Option<SessionId> {
    let (id, name) = path.strip_prefix("sessions/")?.split_once('/')?;
    BESIDE.contains(&name).then(|| id.parse().ok()).flatten()
}

/// A file of a workspace is another one now: when it belongs to a session, what it says is fetched.
pub async fn follow(board: Board, connection: Connection, path: String) {
    let team = &connection.team;
    if path == OWN {
        return follow_own(&board, &connection).await;
    }
    let beside = beside(&path);
    let Some(id) = session_of(&path).or_else(|| beside.clone()) else { return };
    let Ok(session) = load(&board, team, &id).await else { return };
    if session.viber_id != connection.viber {
        return;
    }
    let seen = async {
        let shown = files::read(&board, team, &connection.viber, &path, None).await?;
        let by = shown.by.as_deref().unwrap_or("file");
        match shown.text() {
            Some(text) if beside.is_none() && shown.pending.is_none() => {
                see(&board, team, &session, (text, &shown.hash), by).await.map(drop)
            }
            _ => Ok(()),
        }
    };
    match seen.await {
        Ok(()) | Err(Error::NotFound) => {}
        Err(error) => tracing::warn!(session.id = %id, %error, "a plan was not read"),
    }
    let mut after = After::default();
    after.session(&id);
    after.tell(&board, team);
}

/// The same for the machine's own plan.
async fn follow_own(board: &Board, connection: &Connection) {
    let sessions = async {
        db::sessions::begun_on(&mut board.db.reader_of(&connection.team).await?, &connection.viber, TOLD).await
    };
    let sessions = sessions.await.unwrap_or_default();
    if sessions.is_empty() {
        return;
    }
    match files::read(board, &connection.team, &connection.viber, OWN, None).await {
        Ok(_) | Err(Error::NotFound) => {}
        Err(error) => tracing::warn!(viber.id = %connection.viber, %error, "a machine's plan was not read"),
    }
    let mut after = After::default();
    sessions.iter().for_each(|session| after.session(session));
    after.tell(board, &connection.team);
}

/// Writes the plan.
pub async fn put(board: &Board, team: &TeamId, by: &By, id: &SessionId, draft: Draft) -> Result<Edit> {
    let session = load(board, team, id).await?;
    let content = plan::fits(draft.text).map_err(|why| Error::unacceptable("plan_too_large", why.to_string()))?;
    // What was shown is the machine's: the session begins a plan of its own.
    let base = if borrows(&session) && !has_own(board, team, &session).await? { None } else { draft.base };
    let seen = match &base {
        Some(hash) => db::plans::of_hash(&mut board.db.reader_of(team).await?, id, hash).await?,
        None => None,
    };
    let seen = seen.map(|revision| revision.markdown);
    let change = FileChange { path: path(id), base_hash: base, op: FileOp::Put { content, seen } };
    let edit = files::edit(board, team, by, &session.viber_id, change).await?;
    if edit.state == EditState::Refused {
        return Err(Error::unacceptable("viber_refused", edit.reason.clone().unwrap_or_default()));
    }
    Ok(edit)
}

/// Whether a file of its own is known.
async fn has_own(board: &Board, team: &TeamId, session: &Session) -> Result<bool> {
    let (viber, path) = (&session.viber_id, path(&session.id));
    let mut tx = board.db.reader_of(team).await?;
    let waits = db::edits::pending(&mut tx, viber, &path).await?.is_some();
    let file = db::files::load(&mut tx, viber, &path).await?;
    Ok(waits || file.is_some_and(|file| file.hash.is_some()))
}

/// Does something to a step of the plan as it stands; when it was changed meanwhile, to what it is then.
pub async fn do_step(board: &Board, team: &TeamId, by: &By, id: &SessionId, wanted: &StepDeed) -> Result<Edit> {
    let mut last = None;
    for _ in 0..TRIES {
        let now = now(board, team, id).await?;
        let text = now.as_ref().map_or("", |now| now.markdown.as_str());
        let text = changed(text, &wanted.step, &wanted.deed)?;
        let edit = put(board, team, by, id, Draft { base: now.map(|now| now.hash), text }).await?;
        if edit.state != EditState::Conflict {
            return Ok(edit);
        }
        // Nobody has to decide about this one: it is made anew.
        files::settle(board, team, by, &edit, None).await?;
        last = Some(edit);
    }
    last.ok_or_else(|| Error::conflict("plan_changed", "the plan is being changed; try again"))
}

fn changed(text: &str, step: &str, deed: &Deed) -> Result<String> {
    let mut steps = Steps::of(text);
    let unknown = || Error::conflict("no_such_step", "this step is not in the plan any more");
    if let Deed::Add(title) = deed {
        if title.trim().is_empty() {
            return Err(Error::unacceptable("bad_step", "say what the step is"));
        }
        steps.steps.push(Step { title: title.clone(), ..Step::default() });
    } else {
        let at = steps.steps.iter().position(|known| known.id == step).ok_or_else(unknown)?;
        match deed {
            Deed::Status(status) => steps.steps[at].status = *status,
            Deed::Title(title) if title.trim().is_empty() => {
                return Err(Error::unacceptable("bad_step", "say what the step is"));
            }
            Deed::Title(title) => steps.steps[at].title.clone_from(title),
            Deed::Up if at > 0 => steps.steps.swap(at, at - 1),
            Deed::Down if at + 1 < steps.steps.len() => steps.steps.swap(at, at + 1),
            Deed::Remove => drop(steps.steps.remove(at)),
            Deed::Up | Deed::Down | Deed::Add(_) => {}
        }
    }
    steps.onto(text).map_err(|why| Error::unacceptable("not_a_plan", why.to_string()))
}

/// Makes the plan what it was in the revision `n`.
pub async fn restore(board: &Board, team: &TeamId, by: &By, id: &SessionId, n: u64) -> Result<Edit> {
    let wanted = db::plans::load(&mut board.db.reader_of(team).await?, id, n).await?;
    let text = wanted.ok_or(Error::NotFound)?.markdown;
    let now = now(board, team, id).await?;
    put(board, team, by, id, Draft { base: now.map(|now| now.hash), text }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plans_path_names_its_session_and_nothing_else_does() {
        let id = SessionId::new(1);
        assert_eq!(session_of(&path(&id)), Some(id.clone()));
        for other in ["task.md", "sessions/x/task.md", "sessions/task.md", &format!("sessions/{id}/a/task.md")] {
            assert_eq!(session_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_deed_changes_one_step() {
        let text = "# g\n- [ ] a\n- [ ] b\n";
        let done = |step: &str, deed: Deed| changed(text, step, &deed).map_err(|error| error.to_string());
        assert_eq!(done("s2", Deed::Status(Status::Done)).as_deref(), Ok("# g\n- [ ] a\n- [x] b\n"));
        assert_eq!(done("s1", Deed::Up).as_deref(), Ok(text), "it is the first");
        let up = done("s2", Deed::Up).expect("moved");
        assert!(up.find("b <!--") < up.find("a <!--"), "{up}");
        assert_eq!(done("s1", Deed::Title("c\nd".into())).as_deref(), Ok("# g\n- [ ] c d\n- [ ] b\n"));
        assert_eq!(done("", Deed::Add("c".into())).as_deref(), Ok("# g\n- [ ] a\n- [ ] b\n- [ ] c\n"));
        assert!(done("s9", Deed::Remove).is_err() && done("s1", Deed::Title(" ".into())).is_err());
    }
}
