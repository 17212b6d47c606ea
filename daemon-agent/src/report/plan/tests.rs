//! A session's plan on disk: under each policy, with other writers, and with what the Board knew.

use std::sync::atomic::{AtomicBool, Ordering};

use protocol::{SessionId, TaskId};

use super::*;
use crate::home::Home;

struct Fixture {
    folder: tempfile::TempDir,
    events: Arc<Mutex<Vec<Value>>>,
    submit: TaskSubmit,
}

fn place(policy: Policy, plan: Option<Value>) -> Fixture {
    let submit = json!({ "taskId": TaskId::new(1), "attempt": 1, "sessionId": SessionId::new(1), "agentId": "a",
        "goal": "g", "plan": plan, "planPolicy": policy });
    let submit = serde_json::from_value(submit).expect("a task");
    Fixture { folder: tempfile::tempdir().expect("a folder"), events: Arc::default(), submit }
}

impl Fixture {
    async fn fixture(&self, local: bool) -> PlanEditor {
        let events = self.events.clone();
        let sink = Sink::new(move |event| {
            if let AgentStreamEvent::Plan { plan } = event {
                held(&events).push(plan);
            }
            async {}
        });
        std::fs::create_dir_all(self.folder.path().join("workspace")).expect("made");
        let home = Home::at(self.folder.path());
        PlanEditor::open(&self.submit, &home, Workspace::open(&home), sink, local).await
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("workspace/sessions").join(self.submit.session_id.as_str()).join("task.md")
    }

    fn write(&self, text: &str) {
        std::fs::create_dir_all(self.file().parent().expect("a folder")).expect("made");
        std::fs::write(self.file(), text).expect("written");
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap_or_default()
    }

    fn reported(&self) -> Vec<Value> {
        std::mem::take(&mut held(&self.events))
    }
}

fn to(text: &str) -> impl Fn(&str) -> Result<String, plan::PlanError> + Send {
    let text = text.to_owned();
    move |_| Ok(text.clone())
}

#[tokio::test]
async fn at_once_a_change_is_the_file() {
    let place = place(Policy::Apply, None);
    let fixture = place.fixture(false).await;
    assert_eq!(fixture.change("", to("- [ ] a\n")).await, Ok(PlanOutcome::Applied));
    assert_eq!(place.read(), "- [ ] a\n");
    assert_eq!(fixture.change("", to("- [ ] a\n")).await, Ok(PlanOutcome::Same));
    let reported = place.reported();
    assert_eq!((reported.len(), reported[0]["markdown"].as_str()), (1, Some("- [ ] a\n")));
    assert_eq!(fixture.result().await.expect("a plan")["hash"], reported[0]["hash"]);
}

#[tokio::test]
async fn a_proposal_writes_nothing_but_ticks() {
    let place = place(Policy::Propose, None);
    place.write("# g\n- [ ] a\n- [ ] b\n");
    let fixture = place.fixture(false).await;
    assert_eq!(fixture.change("why", to("# g\n- [ ] a\n- [ ] b\n- [ ] c\n")).await, Ok(PlanOutcome::Proposed));
    assert_eq!(place.read(), "# g\n- [ ] a\n- [ ] b\n");
    let reported = place.reported();
    assert_eq!(reported[0]["proposal"], "# g\n- [ ] a\n- [ ] b\n- [ ] c\n");
    assert!(reported[0]["base"].is_string() && reported[0]["note"] == "why", "{reported:?}");
    let tick = |text: &str| Ok(text.replace("[ ] a", "[x] a"));
    assert_eq!(fixture.change("", tick).await, Ok(PlanOutcome::Both), "it goes on from what it proposed");
    assert_eq!(place.read(), "# g\n- [x] a\n- [ ] b\n");
    assert_eq!(place.reported()[1]["proposal"], "# g\n- [x] a\n- [ ] b\n- [ ] c\n");
}

#[tokio::test]
async fn the_machines_file_goes_before_what_the_board_knew() {
    let place = place(Policy::Apply, Some(json!({ "markdown": "- [ ] old\n", "hash": "0".repeat(64) })));
    assert_eq!(place.fixture(false).await.now().await.markdown, "- [ ] old\n", "there is no file");
    assert_eq!(place.read(), "", "and none is made of it");
    place.write("- [ ] new\n");
    assert_eq!(place.fixture(false).await.now().await.markdown, "- [ ] new\n");
    assert!(place.reported().is_empty());
}

#[tokio::test]
async fn a_plan_that_comes_with_the_task_is_written() {
    let place = place(Policy::Propose, Some(json!({ "goal": "g", "steps": [{ "title": "a" }] })));
    place.write("- [ ] before\n");
    place.fixture(false).await;
    assert_eq!(place.read(), "# g\n\n- [ ] a\n");
    assert_eq!(place.reported().len(), 1);
}

#[tokio::test]
async fn a_session_of_the_machine_without_a_plan_has_the_workspaces() {
    let place = place(Policy::Apply, None);
    let fixture = place.fixture(true).await;
    assert_eq!(fixture.path(), "task.md");
    fixture.change("", to("- [ ] a\n")).await.expect("written");
    assert!(place.folder.path().join("workspace/task.md").exists());
    place.write("- [ ] own\n");
    assert!(place.fixture(true).await.path().starts_with("sessions/"));
}

#[tokio::test]
async fn what_somebody_writes_meanwhile_is_not_lost() {
    let place = place(Policy::Apply, None);
    place.write("- [ ] a\n");
    let fixture = place.fixture(false).await;
    let (first, file) = (AtomicBool::new(true), place.file());
    let change = move |text: &str| {
        if first.swap(false, Ordering::SeqCst) {
            std::fs::write(&file, format!("{text}- [ ] by hand\n")).expect("written");
        }
        Ok(text.replace("[ ] a", "[x] a"))
    };
    assert_eq!(fixture.change("", change).await, Ok(PlanOutcome::Applied));
    assert_eq!(place.read(), "- [x] a\n- [ ] by hand\n");
}

#[tokio::test]
async fn what_a_person_wrote_is_replaced_by_a_proposal_alone() {
    let place = place(Policy::Apply, None);
    let fixture = place.fixture(false).await;
    fixture.change("", to("- [ ] a\n- [ ] b\n")).await.expect("written");
    assert!(fixture.closed_files().iter().any(|file| file == fixture.path()), "also while it is the agent's own");
    assert_eq!(fixture.change("", to("- [ ] a\n- [ ] c\n")).await, Ok(PlanOutcome::Applied), "its own lines");
    place.reported();

    // Somebody adds a step: the agent ticks, and adds around it.
    place.write("- [ ] a\n- [ ] c\n- [ ] by hand\n");
    assert_eq!(fixture.change("", to("- [x] a\n- [ ] d\n- [ ] by hand\n")).await, Ok(PlanOutcome::Applied));
    assert_eq!(place.read(), "- [x] a\n- [ ] d\n- [ ] by hand\n");
    place.reported();
    assert_eq!(fixture.change("", to("- [x] a\n- [x] d\n")).await, Ok(PlanOutcome::Both));
    assert_eq!(place.read(), "- [x] a\n- [x] d\n- [ ] by hand\n", "the tick is made");
    let reported = place.reported();
    let proposal = reported.last().expect("a report");
    assert_eq!(proposal["proposal"], "- [x] a\n- [x] d\n");
    assert!(proposal["note"].as_str().is_some_and(|note| note.contains("a person wrote")), "{proposal}");

    // Also in the next attempt, and after the daemon's restart.
    let next = place.fixture(false).await;
    assert_eq!(next.change("", to("- [x] a\n- [x] d\n")).await, Ok(PlanOutcome::Proposed));
    // What a person accepts is the agent's text.
    place.write("- [x] a\n- [x] d\n");
    assert_eq!(next.change("", to("- [ ] other\n")).await, Ok(PlanOutcome::Applied));
    assert_eq!(place.read(), "- [ ] other\n");
}

#[tokio::test]
async fn a_plan_whose_author_is_unknown_is_a_persons() {
    let place = place(Policy::Apply, None);
    place.write("# Theirs\n\n- [ ] a\n");
    let fixture = place.fixture(false).await;
    assert_eq!(fixture.change("", to("# Mine\n\n- [ ] a\n")).await, Ok(PlanOutcome::Proposed));
    assert_eq!(place.read(), "# Theirs\n\n- [ ] a\n");
}

/// A person's editor or a command: what was in the file is kept either way, and is no agent's to replace.
#[tokio::test]
async fn what_was_found_in_the_file_is_made_again_and_counts_as_a_persons() {
    let place = place(Policy::Apply, None);
    let fixture = place.fixture(false).await;
    fixture.change("", to("- [ ] a\n- [ ] b\n")).await.expect("written");
    place.write("- [ ] a\n- [ ] b\n- [ ] theirs\n");
    place.reported();
    assert_eq!(fixture.take_up("- [ ] a\n- [ ] c\n- [ ] theirs\n").await, Ok(PlanOutcome::Applied));
    assert_eq!(place.read(), "- [ ] a\n- [ ] c\n- [ ] theirs\n");
    assert_eq!(place.reported(), Vec::<Value>::new(), "it is not reported as the agent's");
    assert_eq!(fixture.change("", to("- [ ] theirs\n- [ ] c\n")).await, Ok(PlanOutcome::Applied), "`a` is the agent's");
    place.reported();
    assert_eq!(fixture.change("", to("- [ ] theirs\n")).await, Ok(PlanOutcome::Proposed), "`c` may be a person's");
    assert_eq!(place.read(), "- [ ] theirs\n- [ ] c\n");

    // What would drop a person's line is proposed with how it came, whatever the agent proposed before.
    place.reported();
    assert_eq!(fixture.take_up("- [ ] c\n- [ ] d\n").await, Ok(PlanOutcome::Proposed));
    let reported = place.reported();
    assert_eq!((&reported[0]["proposal"], &reported[0]["note"]), (&json!("- [ ] c\n- [ ] d\n"), &json!(FOUND_NOTE)));
    place.write("- [ ] c\n- [ ] d\n");
    assert_eq!(fixture.change("", to("- [ ] e\n")).await, Ok(PlanOutcome::Proposed), "accepted, it is a person's");
}

#[tokio::test]
async fn a_version_that_was_not_written_leaves_no_claim() {
    let place = place(Policy::Apply, None);
    let fixture = place.fixture(false).await;
    fixture.change("", to("- [ ] a\n")).await.expect("written");
    let (first, file) = (AtomicBool::new(true), place.file());
    // Somebody writes the very line that the agent was about to write, and the agent then writes another one.
    let change = move |text: &str| {
        if first.swap(false, Ordering::SeqCst) {
            std::fs::write(&file, format!("{text}- [ ] b\n")).expect("written");
            return Ok("- [ ] a\n- [ ] b\n- [ ] c\n".to_owned());
        }
        Ok("- [ ] a\n- [ ] c\n".to_owned())
    };
    assert_eq!(fixture.change("", change).await, Ok(PlanOutcome::Proposed), "`b` is theirs");
    assert_eq!(place.read(), "- [ ] a\n- [ ] b\n");
}

#[tokio::test]
async fn a_version_that_could_not_be_written_leaves_no_claim() {
    let place = place(Policy::Apply, None);
    let fixture = place.fixture(false).await;
    let folder = place.file().parent().expect("a folder").to_owned();
    std::fs::create_dir_all(folder.parent().expect("a folder")).expect("made");
    std::os::unix::fs::symlink(place.folder.path(), &folder).expect("a link");
    fixture.change("", to("- [ ] a\n")).await.expect_err("a link is in the way");
    std::fs::remove_file(&folder).expect("removed");
    place.write("- [ ] a\n");
    assert_eq!(fixture.change("", to("- [ ] b\n")).await, Ok(PlanOutcome::Proposed), "`a` is a person's");
    assert_eq!(place.read(), "- [ ] a\n");
}
