//! Commands about skills: made in their order, once each, also over restarts, and reported until the Board has it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use protocol::SkillState;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    clock::Clock,
    config::{ConfigSnapshot, Variables},
    home::Home,
    journal::Journal,
    mesh::{FetchAttachment, FetchPayload, MeshContext},
    outbox::{Outbox, Quota},
    skills::test_archive,
    workspace::Workspace,
};

struct SkillFixture {
    folder: tempfile::TempDir,
    mesh: Mesh,
    fetched: Arc<AtomicUsize>,
    next_seq: u64,
}

/// The text of the skill `tidy`.
fn main_file(body: &str) -> String {
    format!("---\nname: tidy\ndescription: Tidies up\n---\n{body}\n")
}

impl SkillFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        std::fs::write(home.agents().join("a.yaml"), "model: echo/1 # mine\n").expect("written");
        std::fs::write(home.agents().join("b.yaml"), "model: echo/1\nskills: [tidy, other]\n").expect("written");
        let fetched = Arc::default();
        let mesh = Self::mesh(&home, &fetched);
        Self { folder, mesh, fetched, next_seq: 1 }
    }

    /// The Board has the skill's first version at `/first`, is asked for the second one too early, and has no other.
    fn mesh(home: &Home, fetched: &Arc<AtomicUsize>) -> Mesh {
        let clock = Clock::fixed(protocol::Instant(1_700_000_000_000));
        let (sender, files) = watch::channel(Arc::new(ConfigSnapshot::read(home, &Variables::default())));
        tokio::spawn(crate::config::watch::follow(home.clone(), Variables::default(), sender));
        let outbox = Outbox::open(home.outbox(), Quota::default(), clock.clone()).expect("an outbox");
        let journal = Arc::new(Journal::open(home.journal(), &home.damaged(), clock.now()).expect("a journal"));
        let fetched = fetched.clone();
        let fetch: FetchPayload = Arc::new(move |path| {
            let n = fetched.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                match path.as_str() {
                    "/first" => Ok(test_archive(&[("SKILL.md", 0o644, &main_file("First"))]).0),
                    "/second" if n > 0 => Ok(test_archive(&[("SKILL.md", 0o644, &main_file("Second"))]).0),
                    "/second" => Err(FetchError::Later("too early".to_owned())),
                    "/huge" => Ok(vec![0; MAX_SKILL_ARCHIVE_BYTES as usize + 1]),
                    _ => Err(FetchError::Never(path)),
                }
            })
        });
        let carry: FetchAttachment = Arc::new(|file, _| Box::pin(async move { Err(FetchError::Never(file.name)) }));
        Mesh::new(MeshContext {
            workspace: Workspace::open(home),
            skills: Skills::open(home, Variables::default(), files.clone()),
            home: home.clone(),
            clock,
            outbox,
            journal,
            files,
            board: None,
            fetch,
            carry,
        })
    }

    /// The same home after the process was killed.
    async fn killed(self) -> Self {
        let mesh = Self::mesh(&Home::at(self.folder.path()), &self.fetched);
        let welcome = json!({"protocol": 1, "connEpoch": 1, "serverTime": mesh.clock().now(), "heartbeatSeconds": 10,
            "maxFrameBytes": 1 << 18, "window": {"events": 100, "bytes": 1 << 20}, "acked": [], "fence": [],
            "cmdsFrom": self.next_seq});
        mesh.welcomed(&serde_json::from_value(welcome).expect("a welcome")).await;
        Self { mesh, ..self }
    }

    fn install(path: &str, body: &str) -> Value {
        let digest = test_archive(&[("SKILL.md", 0o644, &main_file(body))]).1;
        json!({"type": "skill:install", "name": "tidy", "digest": digest, "url": path, "version": body})
    }

    /// Hands over these commands; returns the number of the last one.
    async fn commands(&mut self, commands: &[Value]) -> u64 {
        let first = self.next_seq;
        self.next_seq += commands.len() as u64;
        let numbered = commands.iter().zip(first..).map(|(command, cmd_seq)| {
            let mut command = command.clone();
            command["cmdSeq"] = cmd_seq.into();
            serde_json::from_value(command).expect("a command")
        });
        self.mesh.take(numbered.collect()).await.expect("journalled")
    }

    /// Waits for the outcome of a command.
    async fn outcome(&self, cmd_seq: u64) -> Result<(), String> {
        let mut bell = self.mesh.outcomes_bell();
        loop {
            bell.mark_unchanged();
            if let Some(done) = self.mesh.commands_done().into_iter().find(|done| done.cmd_seq == cmd_seq) {
                return if done.ok { Ok(()) } else { Err(done.error.expect("a reason")) };
            }
            timeout(Duration::from_secs(30), bell.changed()).await.expect("in time").expect("rings");
        }
    }

    async fn made(&mut self, command: Value) -> Result<(), String> {
        let cmd_seq = self.commands(&[command]).await;
        self.outcome(cmd_seq).await
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(path)).expect("there")
    }
}

#[tokio::test]
async fn a_skill_is_installed_for_agents_and_reported_with_them() {
    let mut fixture = SkillFixture::new();
    let mut install = SkillFixture::install("/first", "First");
    install["agents"] = json!(["a"]);
    fixture.made(install).await.expect("installed");
    assert_eq!(fixture.text("agents/a.yaml"), "model: echo/1 # mine\nskills: [tidy]\n");
    assert_eq!(fixture.text("agents/b.yaml"), "model: echo/1\nskills: [other]\n");
    let state = fixture.mesh.viber_state();
    let skills = state.skills.expect("skills");
    assert_eq!((skills[0].state, skills[0].agents.as_slice()), (SkillState::Ready, &["a".to_owned()][..]));
    assert_eq!(skills[0].source.version.as_deref(), Some("First"));
    let enable = |agents: &[&str]| json!({"type": "skill:enable", "name": "tidy", "agents": agents});
    fixture.made(enable(&["b"])).await.expect("enabled");
    assert_eq!(fixture.text("agents/b.yaml"), "model: echo/1\nskills: [other, tidy]\n");
    assert_eq!(fixture.mesh.viber_state().skills.expect("skills")[0].agents, ["b"]);
    assert!(fixture.made(enable(&["nobody"])).await.expect_err("no agent").contains("nobody"));
    std::fs::write(fixture.folder.path().join("skills/tidy/SKILL.md"), main_file("Changed")).expect("written");
    fixture.mesh.skills().rescan().await;
    let changed = fixture.mesh.viber_state().skills.expect("skills").remove(0);
    assert_eq!(changed.state, SkillState::Modified);
    fixture.made(json!({"type": "skill:accept", "name": "tidy", "digest": changed.digest})).await.expect("accepted");
    assert_eq!(fixture.mesh.viber_state().skills.expect("skills")[0].state, SkillState::Ready);
    fixture.made(json!({"type": "skill:remove", "name": "tidy"})).await.expect("removed");
    assert_eq!(fixture.mesh.viber_state().skills, Some(Vec::new()));
    assert_eq!(fixture.text("agents/b.yaml"), "model: echo/1\nskills: [other]\n", "no agent names it any more");
    let gone = json!({"type": "skill:enable", "name": "tidy", "agents": ["a"]});
    assert!(fixture.made(gone).await.expect_err("gone").contains("no skill tidy"));
    // Names of what is gone can be taken out.
    fixture.made(enable(&[])).await.expect("taken out");
    assert_eq!(fixture.text("agents/b.yaml"), "model: echo/1\nskills: [other]\n");
}

#[tokio::test]
async fn what_cannot_be_done_says_why_and_holds_up_nothing() {
    let mut fixture = SkillFixture::new();
    let mut unknown = SkillFixture::install("/first", "First");
    unknown["agents"] = json!(["nobody"]);
    let commands = [
        unknown,
        SkillFixture::install("/nowhere", "First"),
        SkillFixture::install("/huge", "First"),
        SkillFixture::install("/first", "Second"),
        json!({"type": "skill:remove", "name": "tidy"}),
        json!({"type": "skill:accept", "name": "tidy", "digest": "ab"}),
        SkillFixture::install("/first", "First"),
    ];
    let last = fixture.commands(&commands).await;
    for (cmd_seq, word) in (1..last).zip(["nobody", "/nowhere", "MiB", "approved", "not installed", "has these files"])
    {
        let why = fixture.outcome(cmd_seq).await.expect_err(word);
        assert!(why.contains(word), "{why}");
    }
    fixture.outcome(last).await.expect("installed");
    let seqs: Vec<u64> = fixture.mesh.commands_done().iter().map(|done| done.cmd_seq).collect();
    assert_eq!(seqs, (1..=last).collect::<Vec<_>>(), "in their order");
}

#[tokio::test]
async fn outcomes_and_what_was_not_made_outlive_the_process() {
    let mut fixture = SkillFixture::new();
    let first = fixture.made(SkillFixture::install("/first", "First")).await;
    assert_eq!((first, fixture.fetched.load(Ordering::SeqCst)), (Ok(()), 1));
    let journal = &fixture.mesh.shared.context.journal;
    // Journalled, and killed before anything was made of it.
    let update: NumberedCommand = {
        let mut update = SkillFixture::install("/second", "Second");
        update["cmdSeq"] = 2.into();
        serde_json::from_value(update).expect("a command")
    };
    journal.commands(vec![update]).expect("written");
    fixture.next_seq = 3;
    let mut fixture = fixture.killed().await;
    fixture.outcome(2).await.expect("updated");
    assert_eq!(fixture.text("skills/tidy/SKILL.md"), main_file("Second"));
    assert_eq!(fixture.text("skills/.former/tidy/SKILL.md"), main_file("First"));
    assert_eq!(fixture.mesh.commands_done().len(), 2);
    fixture.mesh.outcomes_acknowledged(vec![1, 99]).await;
    // The same once more fetches nothing.
    fixture.made(SkillFixture::install("/second", "Second")).await.expect("a repetition");
    assert_eq!(fixture.fetched.load(Ordering::SeqCst), 2);
    let fixture = fixture.killed().await;
    let seqs: Vec<u64> = fixture.mesh.commands_done().iter().map(|done| done.cmd_seq).collect();
    assert_eq!(seqs, [2, 3]);
    fixture.mesh.outcomes_acknowledged(seqs).await;
    assert!(fixture.killed().await.mesh.commands_done().is_empty());
}

#[tokio::test]
async fn what_cannot_be_fetched_yet_is_fetched_later() {
    let mut fixture = SkillFixture::new();
    fixture.made(SkillFixture::install("/second", "Second")).await.expect("installed");
    assert_eq!(fixture.fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_board_that_puts_the_files_off_is_not_asked_without_end() {
    let asked = AtomicUsize::new(0);
    let limit = MAX_FETCH_FAILURES as usize;
    let put_off = || {
        let n = asked.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Err(FetchError::Later(format!("the Board answered 503, {n}"))) }
    };
    let why = fetch_patiently(put_off, || true, Duration::ZERO).await.expect_err("it ends");
    assert_eq!(why, format!("the Board answered 503, {limit} ({limit} times)"), "the last reason");
    // One that is away costs no patience.
    asked.store(0, Ordering::SeqCst);
    let comes_back = || {
        let n = asked.fetch_add(1, Ordering::SeqCst);
        let answer = if n < 3 * limit { Err(FetchError::Later("away".to_owned())) } else { Ok(Vec::new()) };
        async move { answer }
    };
    assert_eq!(fetch_patiently(comes_back, || false, Duration::ZERO).await, Ok(Vec::new()));
}
