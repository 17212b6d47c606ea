//! The Board's side of memory: proposals about `MEMORY.md`, what went with a request, search.

mod browser;
mod proposals;
mod real;
mod search;
mod sent;

use board_tests::{
    Engine, FakeMachine, Fixture, Person,
    board::HOME,
    eventually,
    fake_daemon::{accepted, completed, progress, started, text},
};
use protocol::{EventBody, TaskSubmit};
use serde_json::{Value, json};

/// What `MEMORY.md` says at first.
const BEFORE: &str = "# Memory\n\n- The kiosk is in room 4.\n- Nobody likes retries.\n";
/// What the agent would like it to say.
const AFTER: &str = "# Memory\n\n- The kiosk is in room 4.\n- Nobody likes retries.\n- The team ships on Thursdays.\n";

/// A machine with a `MEMORY.md`.
async fn with_memory(engine: Engine) -> Fixture<FakeMachine> {
    let fixture = Fixture::on(engine).with_machine().await;
    fixture.viber.state().files.insert("MEMORY.md".to_owned(), BEFORE.to_owned());
    fixture
}

fn path(submit: &TaskSubmit) -> String {
    format!("/api/v1/sessions/{}/memory/proposals", submit.session_id)
}

/// What an agent proposes for its memory, and what people see of it.
trait Proposing {
    /// A task that is under way, and up to which event.
    async fn begin(&self, goal: &str) -> TaskSubmit;
    /// A task that proposes `wanted` for the version `base`, and is over.
    async fn propose(&self, base: Option<&str>, wanted: &str) -> TaskSubmit;
    /// The proposals that wait, as the API tells them.
    async fn waiting(&self, submit: &TaskSubmit) -> Vec<Value>;
    /// The address of the first one that waits.
    async fn one(&self, submit: &TaskSubmit) -> String;
    /// The tab, once it shows `wanted`.
    async fn tab(&self, reader: &Person, submit: &TaskSubmit, wanted: &str) -> String;
}

impl Proposing for Fixture<FakeMachine> {
    async fn begin(&self, goal: &str) -> TaskSubmit {
        self.submit(goal).await;
        let submit = self.viber.submitted().await;
        self.viber.report(&submit.task_id, submit.attempt, 1, vec![accepted(), started()]).await;
        submit
    }

    async fn propose(&self, base: Option<&str>, wanted: &str) -> TaskSubmit {
        let submit = self.begin("remember it").await;
        let memory =
            json!({ "proposal": wanted, "base": base.map(board_tests::fake_machine::hash), "note": "You said so." });
        let events = vec![text("I would keep that."), remembers(&memory), completed("Kept in mind.")];
        self.viber.report(&submit.task_id, submit.attempt, 3, events).await;
        self.operator.task_in(submit.task_id.as_str(), "completed").await;
        submit
    }

    async fn waiting(&self, submit: &TaskSubmit) -> Vec<Value> {
        let path = format!("{}?state=pending", path(submit));
        let list = self.operator.get(&path).await.expect(200).json();
        list["items"].as_array().expect("a list").clone()
    }

    async fn one(&self, submit: &TaskSubmit) -> String {
        let waiting = self.waiting(submit).await;
        format!("{}/{}", path(submit), waiting[0]["id"].as_str().expect("an id"))
    }

    async fn tab(&self, reader: &Person, submit: &TaskSubmit, wanted: &str) -> String {
        let path = format!("/t/{HOME}/sessions/{}?pane=memory", submit.session_id);
        eventually(&format!("the tab shows {wanted:?}"), || async {
            let html = reader.page(&path).await.expect(200).body;
            html.contains(wanted).then_some(html)
        })
        .await
    }
}

/// A `memory` event.
fn remembers(memory: &Value) -> EventBody {
    progress(&json!({ "type": "memory", "memory": memory }))
}
