//! Every store on both databases: the same rows go in and the same come out.
//!
//! A story plays inside one change, on a database of its own, and says what it expects of each function. Another team
//! stands beside it all the time and must never be seen.

mod changes;
mod fleet;
mod lists;
mod people;
mod postgres;
mod reading;
mod runs;
mod texts;
mod titles;
mod work;

use board_tests::{Engine, postgres::Database};
use protocol::{Instant, MessageId, SessionId, TaskId, TeamId, ViberId};
use server::{
    db::{self, Db, DbError, Tx, TxFuture},
    domain::{By, Contact, ContactState, Delivery, Message, MessageRole, Policies, Session, Task, TaskState, Team},
    secret::audit_keys::AuditKeys,
};

/// When every story begins.
const NOW: Instant = Instant(1_790_000_000_000);

/// `seconds` after the beginning.
fn after(seconds: i64) -> Instant {
    Instant(NOW.0 + 1000 * seconds)
}

/// Plays `story` as one change on a fresh database.
async fn play(engine: Engine, story: for<'a> fn(&'a mut Tx) -> TxFuture<'a, Result<(), DbError>>) {
    let (_folder, db) = open(engine).await;
    let played = db.write(story).await;
    db.close().await;
    played.expect("the story's statements");
}

/// A fresh database, and where it lies on SQLite.
async fn open(engine: Engine) -> (tempfile::TempDir, Db) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = match engine {
        Engine::Sqlite => format!("sqlite://{}/board.db", folder.path().display()),
        Engine::Postgres => Database::with_schema().await.url,
    };
    let db = Db::open(&url).await.expect("a database");
    db.audit_chain().use_keys(audit_keys());
    (folder, db)
}

/// What every story's audit is sealed with.
fn audit_keys() -> AuditKeys {
    AuditKeys::new(&[7; 32], &[])
}

/// Each named story of one module, on both databases.
macro_rules! stories {
    ($($story:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $story() { crate::stores::play(board_tests::Engine::Sqlite, |tx| Box::pin(super::$story(tx))).await; })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $story() { crate::stores::play(board_tests::Engine::Postgres, |tx| Box::pin(super::$story(tx))).await; })*
        }
    };
}
use stories;

/// A team, as it is made.
async fn team(tx: &mut Tx, slug: &str) -> Result<Team, DbError> {
    let team = Team {
        id: TeamId::new(NOW.0),
        slug: slug.to_owned(),
        name: format!("The {slug}s"),
        claimed_at: None,
        suspended_at: None,
        lost_after_ms: 900_000,
        retention_days: 30,
        created_at: NOW,
    };
    db::teams::insert(tx, &team).await?;
    Ok(team)
}

/// A viber of `team`.
async fn viber(tx: &mut Tx, team: &TeamId, name: &str) -> Result<ViberId, DbError> {
    let id = ViberId::new(NOW.0);
    let labels = [("os".to_owned(), "linux".to_owned())].into();
    let joining = db::vibers::NewViber {
        id: &id,
        name,
        labels: &labels,
        hostname: "lab",
        platform: "linux/x86_64",
        version: "0.1.0",
        credential_hash: &format!("hash of {id}"),
    };
    db::vibers::insert(&mut tx.change(team, &By::board(), NOW), joining).await?;
    Ok(id)
}

/// A session of `team` on `viber`.
async fn session(tx: &mut Tx, team: &TeamId, viber: &ViberId, title: &str, at: Instant) -> Result<SessionId, DbError> {
    let session = Session {
        id: SessionId::new(at.0),
        viber_id: viber.clone(),
        agent_id: "default".into(),
        title: title.to_owned(),
        renamed_at: None,
        pinned_at: None,
        archived_at: None,
        last_seq: 0,
        created_by: "op".into(),
        created_at: at,
        active_at: at,
        policies: Policies::default(),
    };
    assert!(db::sessions::insert_unless_taken(&mut tx.of(team), &session).await?);
    assert!(!db::sessions::insert_unless_taken(&mut tx.of(team), &session).await?, "an id is given once");
    Ok(session.id)
}

/// A task with its user message, queued, and an attempt.
async fn task(tx: &mut Tx, team: &TeamId, session: &SessionId, goal: &str, at: Instant) -> Result<Task, DbError> {
    let seq = db::sessions::reserve_seqs(&mut tx.change(team, &By::board(), at), session, 2).await?.expect("a session");
    let found = db::sessions::load(&mut tx.of(team), session).await?.expect("a session");
    let task = Task {
        id: TaskId::new(at.0),
        session_id: session.clone(),
        viber_id: found.viber_id.clone(),
        agent_id: "default".into(),
        message_id: MessageId::new(at.0),
        message_seq: seq,
        goal: goal.to_owned(),
        state: TaskState::Pending,
        delivery: Some(Delivery::Queued),
        waiting: None,
        pausing: None,
        smaller: Vec::new(),
        goes_on_from: None,
        kind: server::domain::TaskKind::Work,
        contact: Contact { state: ContactState::Disconnected, since: NOW },
        attempt: 1,
        stream: protocol::ReportedDetail::Full,
        mode: None,
        limits: protocol::TaskLimits { steps: Some(3), ..Default::default() },
        payload: serde_json::json!({}),
        model: None,
        result: None,
        error: None,
        usage: protocol::Usage::default(),
        origin: "board".into(),
        created_by: "op".into(),
        created_at: at,
        offered_at: None,
        started_at: None,
        ended_at: None,
        stopped_by: None,
        stop_confirmed_at: None,
    };
    let message = Message {
        id: task.message_id.clone(),
        session_id: session.clone(),
        seq,
        role: MessageRole::User,
        author: "op".into(),
        task_id: task.id.clone(),
        attempt: 0,
        parts: Vec::new(),
        created_at: at,
    };
    db::messages::insert(&mut tx.of(team), &message).await?;
    let said = server::domain::Part::text(goal);
    db::messages::append(&mut tx.change(team, &By::board(), at), &message.id, &[said]).await?;
    assert!(db::tasks::insert_unless_taken(&mut tx.change(team, &By::board(), at), &task).await?);
    assert!(
        !db::tasks::insert_unless_taken(&mut tx.change(team, &By::board(), at), &task).await?,
        "an id is given once"
    );
    db::attempts::insert(&mut tx.change(team, &By::board(), at), (&task.id, 1), &task.viber_id, seq + 1, None).await?;
    Ok(task)
}

/// Writes that wait for others are a part of their change: they are there for its reads, and gone when it fails.
async fn writes_that_wait_are_a_part_of_their_change(engine: Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = match engine {
        Engine::Sqlite => format!("sqlite://{}/board.db", folder.path().display()),
        Engine::Postgres => Database::with_schema().await.url,
    };
    let db = Db::open(&url).await.expect("a database");
    db.audit_chain().use_keys(audit_keys());
    let made = db.write(|tx| {
        Box::pin(async move {
            let home = team(tx, "home").await?.id;
            let lab = viber(tx, &home, "lab").await?;
            let talk = session(tx, &home, &lab, "talk", NOW).await?;
            let goal = task(tx, &home, &talk, "goal", NOW).await?;
            Ok::<_, DbError>((home, talk, goal))
        })
    });
    let (home, talk, goal) = made.await.expect("a change");
    let before =
        db::usage::load(&mut db.reader_of(&home).await.expect("a reader")).await.expect("a read").expect("a team");
    for outcome in ["fails", "panics", "is kept"] {
        let captured = (home.clone(), talk.clone(), goal.clone());
        let change = db.write(move |tx| {
            let (home, talk, goal) = captured.clone();
            Box::pin(async move {
                let answer = Message {
                    id: MessageId::new(NOW.0),
                    session_id: talk,
                    seq: goal.message_seq + 1,
                    role: MessageRole::Assistant,
                    author: "default".into(),
                    task_id: goal.id.clone(),
                    attempt: 1,
                    parts: Vec::new(),
                    created_at: NOW,
                };
                let mut change = tx.change(&home, &By::board(), NOW);
                let said = [server::domain::Part::text("one"), server::domain::Part::text("two")];
                db::messages::insert(&mut change, &answer).await?;
                db::messages::append(&mut change, &answer.id, &said).await?;
                assert_eq!(db::messages::parts(&mut change, &answer.id).await?, said, "what waits is read");
                let event = server::domain::Item { seq: 1, json: r#"{"seq":1,"type":"task:accepted"}"#.into() };
                let run = server::domain::Committed::new(goal.id.clone(), 1, 1, vec![event]);
                db::events::insert(&mut change, &run).await?;
                db::attempts::insert(&mut change, (&goal.id, 2), &goal.viber_id, 9, None).await?;
                match outcome {
                    "fails" => Err(DbError::Taken),
                    "panics" => panic!("as a test wants it"),
                    _ => Ok(()),
                }
            })
        });
        assert_eq!(change.await.is_ok(), outcome == "is kept", "{outcome}");
        let mut tx = db.reader_of(&home).await.expect("a reader");
        let kept = usize::from(outcome == "is kept");
        assert_eq!(db::messages::page(&mut tx, &talk, None, 9).await.expect("a read").len(), 1 + kept);
        assert_eq!(db::attempts::list(&mut tx, &goal.id).await.expect("a read").len(), 1 + kept, "{outcome}");
        assert_eq!(db::events::after(&mut tx, &goal.id, 1, 0, 9).await.expect("a read").len(), kept, "{outcome}");
        let now = db::usage::load(&mut tx).await.expect("a read").expect("a team");
        assert_eq!(now.used > before.used, outcome == "is kept", "{outcome}");
    }
    db.close().await;
}

#[tokio::test]
async fn writes_that_wait_sqlite() {
    writes_that_wait_are_a_part_of_their_change(Engine::Sqlite).await;
}

#[tokio::test]
async fn writes_that_wait_postgres() {
    writes_that_wait_are_a_part_of_their_change(Engine::Postgres).await;
}

/// A version stands as long as nobody commits, and no longer: also when another program writes to the database.
async fn versions(engine: Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let url = match engine {
        Engine::Sqlite => format!("sqlite://{}/board.db", folder.path().display()),
        Engine::Postgres => Database::with_schema().await.url,
    };
    let (ours, theirs) = (Db::open(&url).await.expect("a database"), Db::open(&url).await.expect("the same"));
    for (writer, n) in [(&ours, 1), (&theirs, 2), (&ours, 3)] {
        let before = ours.version().await.expect("a version");
        db::settings::value(&mut ours.reader().await.expect("a reader"), "n").await.expect("a read");
        let refused = writer.write(|tx| {
            Box::pin(async move {
                db::settings::set(tx, "undone", "").await?;
                Err::<(), _>(DbError::Taken)
            })
        });
        assert!(matches!(refused.await, Err(DbError::Taken)));
        let written = writer.write(move |tx| Box::pin(async move { db::settings::set(tx, "n", &n.to_string()).await }));
        written.await.expect("a change");
        let after = ours.version().await.expect("a version");
        assert_ne!(before, after, "write {n}");
        // PostgreSQL counts for all its databases together.
        let again = ours.version().await.expect("a version");
        assert!(engine == Engine::Postgres || after == again, "nothing happened since");
    }
    ours.close().await;
    theirs.close().await;
}

#[tokio::test]
async fn versions_sqlite() {
    versions(Engine::Sqlite).await;
}

#[tokio::test]
async fn versions_postgres() {
    versions(Engine::Postgres).await;
}
