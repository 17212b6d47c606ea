//! A collector by itself: the three ways of adding an artifact, versions, limits.

use super::*;
use crate::artifacts::VERSIONS_FOLDER;

struct Fixture {
    folder: tempfile::TempDir,
    task: TaskId,
    collector: Collector,
    events: Arc<Mutex<Vec<AgentStreamEvent>>>,
    stop: CancellationToken,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let events: Arc<Mutex<Vec<AgentStreamEvent>>> = Arc::default();
        let hearing = events.clone();
        let sink = Sink::new(move |event| {
            hearing.lock().expect("no panic").push(event);
            async {}
        });
        let (task, stop) = (TaskId::new(1), CancellationToken::new());
        let collector = Collector::new(home, task.clone(), Clock::system(), sink, &stop);
        Self { folder, task, collector, events, stop }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join("artifacts").join(self.task.as_str()).join(name)
    }

    fn reported(&self) -> Vec<ArtifactRef> {
        let events = self.events.lock().expect("no panic");
        let reported = events.iter().filter_map(|event| match event {
            AgentStreamEvent::Artifact { artifact } => Some(artifact.clone()),
            _ => None,
        });
        reported.collect()
    }

    /// The warnings that people were shown.
    fn warned(&self) -> Vec<String> {
        let events = self.events.lock().expect("no panic");
        let texts = events.iter().filter_map(|event| match event {
            AgentStreamEvent::Notice { text, .. } => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }

    async fn content(&self, id: &str, kind: &str, text: &str) -> Result<ArtifactRef, String> {
        let from = ArtifactSource::Content(text.to_owned());
        self.collector.add(NewArtifact { id: id.to_owned(), title: None, kind: Some(kind.to_owned()), from }).await
    }
}

fn no_file(_: &str) -> Result<(File, String), String> {
    Err("no such file".to_owned())
}

#[tokio::test]
async fn what_is_added_is_a_file_with_its_facts_and_its_versions_stay() {
    let fixture = Fixture::new();
    let first = fixture.content("report", "markdown", "# One").await.expect("added");
    let second = fixture.content("report", "markdown", "# Two").await.expect("added");
    assert_eq!(fs::read_to_string(fixture.at("report.md")).expect("there"), "# Two");
    let kept = fixture.at(VERSIONS_FOLDER).join(first.sha256.as_deref().expect("measured"));
    assert_eq!(fs::read_to_string(kept).expect("the first version"), "# One");
    assert_ne!(first.artifact_id, second.artifact_id);
    assert_eq!((second.size, second.sniffed.as_deref()), (Some(5), Some("text/plain")));
    for bad in ["", "../x", "a/b", ".hidden", "a b", &"x".repeat(81)] {
        fixture.content(bad, "text", "x").await.expect_err(bad);
    }
    assert_eq!(fixture.reported().len(), 2);
}

#[tokio::test]
async fn files_that_appear_are_told_once_and_again_when_they_change() {
    let fixture = Fixture::new();
    fixture.content("report", "markdown", "# One").await.expect("added");
    fs::write(fixture.at("chart.svg"), "<svg/>").expect("a file");
    fs::write(fixture.at(".output-1.log"), "ours").expect("a file");
    std::os::unix::fs::symlink("/etc/passwd", fixture.at("passwd")).expect("a link");
    fixture.collector.look().await;
    fixture.collector.look().await;
    assert_eq!(fixture.reported().len(), 2);
    fs::write(fixture.at("chart.svg"), "<svg ></svg>").expect("a file");
    fs::write(fixture.at("report.md"), "# By hand").expect("a file");
    let mut result = TaskResult { text: "Done.".into(), ..TaskResult::default() };
    fixture.collector.finish(&mut result, no_file).await;
    let reported = fixture.reported();
    assert_eq!(reported.len(), 4);
    assert_eq!((reported[3].id.as_str(), reported[2].id.as_str()), ("report", "chart.svg"));
    let named: Vec<_> = result.artifact_refs.iter().map(|reported| reported.id.as_str()).collect();
    assert_eq!(named, ["chart.svg", "report"]);
}

#[tokio::test]
async fn an_answer_names_what_it_made() {
    let fixture = Fixture::new();
    let text = "Here:\n```json artifact_deltas\n[{\"id\":\"a\",\"type\":\"text/csv\",\"content\":\"x,y\\n1,2\\n\"},\
                {\"id\":\"link\",\"ref\":\"https://example.org/\"},{\"id\":\"../b\",\"content\":\"\"},{\"id\":\"c\",\"path\":\"/etc/shadow\"}]\n```\n";
    let mut result = TaskResult { text: text.into(), ..TaskResult::default() };
    fixture.collector.finish(&mut result, no_file).await;
    assert_eq!(fs::read_to_string(fixture.at("a.csv")).expect("there"), "x,y\n1,2\n");
    let refs: Vec<_> = result.artifact_refs.iter().filter_map(|reported| reported.reference.clone()).collect();
    assert_eq!(refs, [format!("artifacts/{}/a.csv", fixture.task), "https://example.org/".to_owned()]);
    let events = fixture.events.lock().expect("no panic");
    let notices = events.iter().filter(|event| matches!(event, AgentStreamEvent::Notice { .. })).count();
    assert_eq!(notices, 2);
}

/// No name is taken from people and agents because the daemon uses one like it.
#[tokio::test]
async fn a_name_like_one_of_the_daemons_is_an_artifact_all_the_same() {
    let fixture = Fixture::new();
    fixture.content("report", "markdown", "# One").await.expect("added");
    let names = ["answer.md", "call-1-args.txt", "call-1-result.txt", "output-1.log"];
    for name in names {
        fs::write(fixture.at(name), name).expect("a file");
    }
    fixture.collector.look().await;
    let found: Vec<String> = fixture.reported().into_iter().skip(1).map(|reported| reported.id).collect();
    assert_eq!(found, names);
    let again = fixture.content("output-1.log", "log", "mine").await.expect("added");
    assert_eq!(
        (again.id.as_str(), fs::read_to_string(fixture.at("output-1.log")).ok().as_deref()),
        (names[3], Some("mine"))
    );
}

/// A file of this size that takes no room on the disk.
fn sparse(path: &Path, size: u64) {
    File::create(path).and_then(|file| file.set_len(size)).expect("a sparse file");
}

#[tokio::test]
async fn a_file_that_is_too_large_is_told_once_and_not_read() {
    let fixture = Fixture::new();
    fixture.content("report", "markdown", "# One").await.expect("added");
    sparse(&fixture.at("a"), 12 << 40);
    fs::write(fixture.at("z.txt"), "small").expect("a file");
    fixture.collector.look().await;
    fixture.collector.look().await;
    assert_eq!(fixture.reported().last().map(|reported| reported.id.clone()).as_deref(), Some("z.txt"));
    let why = "it has 13194139533312 bytes, and an artifact has at most 16 GiB";
    assert_eq!(fixture.warned(), [format!("\"a\" is not an artifact: {why}")]);
    let from = ArtifactSource::File(File::open(fixture.at("a")).expect("there"), "a".into());
    let refused = fixture.collector.add(NewArtifact { id: "copy".into(), title: None, kind: None, from }).await;
    assert_eq!(refused.expect_err("too large"), format!("it could not be written: {why}"));
    assert!(!fixture.at("copy.bin").exists());
}

#[tokio::test]
async fn a_stop_ends_what_reads_a_large_file() {
    let fixture = Fixture::new();
    fixture.content("report", "markdown", "# One").await.expect("added");
    sparse(&fixture.at("a"), 16 << 30);
    fs::write(fixture.at("z.txt"), "small").expect("a file");
    let begin = std::time::Instant::now();
    let from = ArtifactSource::File(File::open(fixture.at("a")).expect("there"), "a".into());
    let adding = fixture.collector.add(NewArtifact { id: "copy".into(), title: None, kind: None, from });
    let stopping = async { fixture.stop.cancel() };
    let (added, ()) = tokio::join!(adding, stopping);
    assert!(added.expect_err("stopped").contains("the task ended before"));
    fixture.collector.look().await;
    assert!(begin.elapsed() < 3 * STUCK_READ_TIMEOUT, "{:?}", begin.elapsed());
    // Small files are reported all the same.
    assert_eq!(fixture.reported().last().map(|reported| reported.id.clone()).as_deref(), Some("z.txt"));
    assert_eq!(fixture.warned(), ["\"a\" is not an artifact: the task ended before all of it was read"]);
    assert!(!fixture.at("copy.bin").exists() && !fixture.at(".copy.bin.new").exists());
}
