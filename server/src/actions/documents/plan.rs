//! A session's plan: a file on its viber, and every revision of it that the Board saw.
//!
//! A change is an edit of the file version that its author saw.

use protocol::{
    Instant, SessionId, TeamId, ViberId,
    plan::{self, Status, Step, Steps},
};

use crate::{
    actions::{
        AfterCommit,
        files::{self, FileChange, FileOp},
    },
    db::{self, Change, DbError},
    domain::{By, Connection, Edit, EditState, PlanSource, Revision, Session},
    error::{Error, Result},
    state::Board,
};

/// How often a change of a step is repeated on what somebody else wrote meanwhile.
const MAX_EDIT_ATTEMPTS: usize = 3;
/// Recent edits searched for the author of a version.
const MAX_EXAMINED_EDITS: u64 = 20;
/// The plan of sessions that began on the machine, until they have one of their own.
pub const MACHINE_PLAN: &str = "task.md";
/// Sessions notified when the machine's plan changed.
const MAX_NOTIFIED_SESSIONS: u64 = 50;
/// Files of a session that are shown with its plan.
pub const COMPANION_FILES: [&str; 2] = ["implementation_plan.md", "walkthrough.md"];

/// The current plan of a session.
#[derive(Clone, Debug)]
pub struct CurrentPlan {
    pub markdown: String,
    pub hash: String,
    pub source: PlanSource,
    pub at: Instant,
    /// Since when this may be outdated; `None`: it is current.
    pub as_of: Option<Instant>,
    /// It waits for the viber and is not on the machine yet.
    pub queued: bool,
}

/// A new text for the plan.
#[derive(Clone, Debug)]
pub struct PlanDraft {
    /// The version that they saw; `None`: there was none.
    pub base: Option<String>,
    pub text: String,
}

/// A step and the change to it.
#[derive(Clone, Debug)]
pub struct StepEdit {
    pub step: String,
    /// The version of the plan that was seen: in the present one the step must be the same, whatever else was changed.
    pub base: Option<String>,
    pub action: StepAction,
}

/// A change to a step.
#[derive(Clone, Debug)]
pub enum StepAction {
    Status(Status),
    Title(String),
    Up,
    Down,
    Remove,
    /// A new one at the end, whatever the id.
    Add(String),
}

/// The session whose plan lies at `path`.
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

/// Whether a session began on its machine: without a plan of its own it uses the machine's.
pub fn borrows(session: &Session) -> bool {
    session.created_by == session.viber_id.as_str()
}

/// The machine's own plan, for a session that began there.
async fn borrowed(board: &Board, team: &TeamId, session: &Session) -> Result<Option<CurrentPlan>> {
    if !borrows(session) {
        return Ok(None);
    }
    let shown = match files::read(board, team, &session.viber_id, MACHINE_PLAN, None).await {
        Ok(shown) => shown,
        Err(Error::NotFound | Error::Conflict { code: files::VIBER_AWAY, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(markdown) = shown.text().map(str::to_owned) else { return Ok(None) };
    let at = shown.mtime.unwrap_or_else(|| board.clock.now());
    let source = if shown.by.as_deref() == Some("agent") { PlanSource::Agent } else { PlanSource::File };
    Ok(Some(CurrentPlan {
        markdown,
        hash: shown.hash,
        source,
        at,
        as_of: shown.as_of,
        queued: shown.pending.is_some(),
    }))
}

/// Reads the plan of a session that began on the machine, so that it can be shown.
pub async fn adopt(board: &Board, team: &TeamId, session: &Session) {
    match current(board, team, &session.id).await {
        Ok(_) => {
            let mut after = AfterCommit::default();
            after.session(&session.id);
            after.publish(board, team);
        }
        Err(error) => tracing::debug!(session.id = %session.id, %error, "the plan of a session is not known"),
    }
}

/// The plan as it is on the machine, else its last known revision. `None`: there is none.
pub async fn current(board: &Board, team: &TeamId, id: &SessionId) -> Result<Option<CurrentPlan>> {
    let session = load(board, team, id).await?;
    let shown = match files::read(board, team, &session.viber_id, &path(id), None).await {
        Ok(shown) => shown,
        Err(Error::NotFound) => return borrowed(board, team, &session).await,
        Err(Error::Conflict { code: files::VIBER_AWAY, .. }) if borrows(&session) => {
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
        return Ok(Some(CurrentPlan {
            markdown,
            hash,
            source: PlanSource::Operator,
            at,
            as_of: shown.as_of,
            queued: true,
        }));
    }
    let by = shown.by.as_deref().unwrap_or("file");
    let revision = record_version(board, team, &session, (&text, &shown.hash), by).await?;
    Ok(Some(CurrentPlan { as_of: shown.as_of, ..of_revision(revision) }))
}

fn of_revision(revision: Revision) -> CurrentPlan {
    let Revision { markdown, hash, source, created_at: at, .. } = revision;
    CurrentPlan { markdown, hash, source, at, as_of: Some(at), queued: false }
}

async fn newest(board: &Board, team: &TeamId, id: &SessionId) -> Result<Option<Revision>> {
    Ok(db::plans::newest(&mut board.db.reader_of(team).await?, id).await?)
}

/// Records a version that was read from the machine; returns its revision.
async fn record_version(
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
        "agent" => (PlanSource::Agent, session.agent_id.clone()),
        _ => (PlanSource::File, "the machine".to_owned()),
    };
    let (id, viber) = (session.id.clone(), session.viber_id.clone());
    let (text, hash) = (text.to_owned(), hash.to_owned());
    let noting = board.change(team, &By::board(), move |tx| {
        let (id, viber) = (id.clone(), viber.clone());
        let (text, hash, author) = (text.clone(), hash.clone(), author.clone());
        Box::pin(async move {
            db::sessions::lock(tx, &id).await?;
            // A change made here may be read before its viber reports that it was applied.
            let edits = db::edits::of_file(tx, &viber, &path(&id), None, MAX_EXAMINED_EDITS).await?;
            let ours = edits.into_iter().find(|edit| edit.hash.as_ref() == Some(&hash));
            let (source, author) = match ours {
                Some(edit) if source != PlanSource::Agent => (PlanSource::Operator, edit.author),
                _ => (source, author),
            };
            let fresh = db::plans::NewRevision { hash: &hash, markdown: &text, source, author: &author, task: None };
            let added = db::plans::add(tx, &id, &fresh).await?;
            let newest = db::plans::newest(tx, &id).await?.ok_or(Error::NotFound)?;
            Ok::<_, Error>((newest, added.is_some()))
        })
    });
    let (revision, fresh) = noting.await?;
    if fresh {
        let mut after = AfterCommit::default();
        after.session(&session.id);
        after.publish(board, team);
    }
    Ok(revision)
}

/// Records an applied edit as a revision when the file is a session's plan.
pub async fn record_applied_edit(
    tx: &mut Change<'_>,
    viber: &ViberId,
    edit: &Edit,
) -> Result<Option<SessionId>, DbError> {
    let Some(id) = session_of(&edit.path) else { return Ok(None) };
    let (Some(markdown), Some(hash)) = (&edit.content, &edit.hash) else { return Ok(None) };
    let session = db::sessions::load(tx, &id).await?;
    if session.is_none_or(|session| session.viber_id != *viber) {
        return Ok(None);
    }
    db::sessions::lock(tx, &id).await?;
    let fresh =
        db::plans::NewRevision { hash, markdown, source: PlanSource::Operator, author: &edit.author, task: None };
    db::plans::add(tx, &id, &fresh).await?;
    Ok(Some(id))
}

/// Whether a file is a session's plan, one of its companions, or the machine's own plan.
pub fn belongs(path: &str) -> bool {
    session_of(path).is_some() || beside(path).is_some() || path == MACHINE_PLAN
}

/// The session whose plan has the file as a companion.
fn beside(path: &str) -> Option<SessionId> {
    let (id, name) = path.strip_prefix("sessions/")?.split_once('/')?;
    COMPANION_FILES.contains(&name).then(|| id.parse().ok()).flatten()
}

/// Reads a file of a workspace again after it changed, if it belongs to a session's plan.
pub async fn follow(board: Board, connection: Connection, path: String) {
    let team = &connection.team;
    if path == MACHINE_PLAN {
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
                record_version(&board, team, &session, (text, &shown.hash), by).await.map(drop)
            }
            _ => Ok(()),
        }
    };
    match seen.await {
        Ok(()) | Err(Error::NotFound) => {}
        Err(error) => tracing::warn!(session.id = %id, %error, "a plan was not read"),
    }
    let mut after = AfterCommit::default();
    after.session(&id);
    after.publish(&board, team);
}

/// Reads the machine's own plan again, and notifies the sessions that use it.
async fn follow_own(board: &Board, connection: &Connection) {
    let sessions = async {
        db::sessions::begun_on(
            &mut board.db.reader_of(&connection.team).await?,
            &connection.viber,
            MAX_NOTIFIED_SESSIONS,
        )
        .await
    };
    let sessions = sessions.await.unwrap_or_default();
    if sessions.is_empty() {
        return;
    }
    match files::read(board, &connection.team, &connection.viber, MACHINE_PLAN, None).await {
        Ok(_) | Err(Error::NotFound) => {}
        Err(error) => tracing::warn!(viber.id = %connection.viber, %error, "a machine's plan was not read"),
    }
    let mut after = AfterCommit::default();
    sessions.iter().for_each(|session| after.session(session));
    after.publish(board, &connection.team);
}

/// Writes the plan.
pub async fn put(board: &Board, team: &TeamId, by: &By, id: &SessionId, draft: PlanDraft) -> Result<Edit> {
    let session = load(board, team, id).await?;
    let content = plan::fits(draft.text).map_err(|why| Error::unacceptable("plan_too_large", why.to_string()))?;
    // What was shown is the machine's plan: the session starts one of its own.
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

/// Whether the session has a plan file of its own, or one is queued.
async fn has_own(board: &Board, team: &TeamId, session: &Session) -> Result<bool> {
    let (viber, path) = (&session.viber_id, path(&session.id));
    let mut tx = board.db.reader_of(team).await?;
    let waits = db::edits::pending(&mut tx, viber, &path).await?.is_some();
    let file = db::files::load(&mut tx, viber, &path).await?;
    Ok(waits || file.is_some_and(|file| file.hash.is_some()))
}

/// Applies an action to a step of the current plan; repeats it when the plan changed meanwhile.
pub async fn edit_step(board: &Board, team: &TeamId, by: &By, id: &SessionId, wanted: &StepEdit) -> Result<Edit> {
    let mut last = None;
    for _ in 0..MAX_EDIT_ATTEMPTS {
        let now = current(board, team, id).await?;
        let text = now.as_ref().map_or("", |now| now.markdown.as_str());
        if let Some(base) = wanted.base.as_ref().filter(|base| now.as_ref().is_none_or(|now| now.hash != **base)) {
            is_same_step(board, team, id, (base, &wanted.step), text).await?;
        }
        let text = changed(text, &wanted.step, &wanted.action)?;
        let edit = put(board, team, by, id, PlanDraft { base: now.map(|now| now.hash), text }).await?;
        if edit.state != EditState::Conflict {
            return Ok(edit);
        }
        // This conflict needs no decision: the change is repeated.
        files::settle(board, team, by, &edit, None).await?;
        last = Some(edit);
    }
    last.ok_or_else(|| Error::conflict("plan_changed", "the plan is being changed; try again"))
}

/// Refuses a change of a step that was another one in the version that its author saw.
async fn is_same_step(
    board: &Board,
    team: &TeamId,
    id: &SessionId,
    (base, step): (&str, &str),
    now: &str,
) -> Result<()> {
    let seen = db::plans::of_hash(&mut board.db.reader_of(team).await?, id, base).await?;
    let title = |text: &str| Steps::of(text).steps.into_iter().find(|known| known.id == step).map(|step| step.title);
    match (step.is_empty(), seen) {
        (true, _) => Ok(()),
        (false, Some(seen)) if title(&seen.markdown) == title(now) => Ok(()),
        (false, _) => Err(Error::conflict("plan_changed", "this step was changed meanwhile; look at it again")),
    }
}

fn changed(text: &str, step: &str, action: &StepAction) -> Result<String> {
    let mut steps = Steps::of(text);
    let unknown = || Error::conflict("no_such_step", "this step is not in the plan any more");
    if let StepAction::Add(title) = action {
        if title.trim().is_empty() {
            return Err(Error::unacceptable("bad_step", "say what the step is"));
        }
        steps.steps.push(Step { title: title.clone(), ..Step::default() });
    } else {
        let at = steps.steps.iter().position(|known| known.id == step).ok_or_else(unknown)?;
        match action {
            StepAction::Status(status) => steps.steps[at].status = *status,
            StepAction::Title(title) if title.trim().is_empty() => {
                return Err(Error::unacceptable("bad_step", "say what the step is"));
            }
            StepAction::Title(title) => steps.steps[at].title.clone_from(title),
            StepAction::Up if at > 0 => steps.steps.swap(at, at - 1),
            StepAction::Down if at + 1 < steps.steps.len() => steps.steps.swap(at, at + 1),
            StepAction::Remove => drop(steps.steps.remove(at)),
            StepAction::Up | StepAction::Down | StepAction::Add(_) => {}
        }
    }
    steps.onto(text).map_err(|why| Error::unacceptable("not_a_plan", why.to_string()))
}

/// Makes the plan what it was in revision `n`.
pub async fn restore(board: &Board, team: &TeamId, by: &By, id: &SessionId, n: u64) -> Result<Edit> {
    let wanted = db::plans::load(&mut board.db.reader_of(team).await?, id, n).await?;
    let text = wanted.ok_or(Error::NotFound)?.markdown;
    let now = current(board, team, id).await?;
    put(board, team, by, id, PlanDraft { base: now.map(|now| now.hash), text }).await
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
    fn an_action_changes_one_step() {
        let text = "# g\n- [ ] a\n- [ ] b\n";
        let done = |step: &str, action: StepAction| changed(text, step, &action).map_err(|error| error.to_string());
        assert_eq!(done("s2", StepAction::Status(Status::Done)).as_deref(), Ok("# g\n- [ ] a\n- [x] b\n"));
        assert_eq!(done("s1", StepAction::Up).as_deref(), Ok(text), "it is the first");
        let up = done("s2", StepAction::Up).expect("moved");
        assert!(up.find("b <!--") < up.find("a <!--"), "{up}");
        assert_eq!(done("s1", StepAction::Title("c\nd".into())).as_deref(), Ok("# g\n- [ ] c d\n- [ ] b\n"));
        assert_eq!(done("", StepAction::Add("c".into())).as_deref(), Ok("# g\n- [ ] a\n- [ ] b\n- [ ] c\n"));
        assert!(done("s9", StepAction::Remove).is_err() && done("s1", StepAction::Title(" ".into())).is_err());
    }
}
