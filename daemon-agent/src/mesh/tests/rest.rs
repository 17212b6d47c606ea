//! Attempts at rest: they hold up no others, and go on in the next process unless more is known of them than their record says.

use protocol::{
    AgentEvent, AgentStreamEvent, ApprovalRequest, ApprovalResponse, Decision, InjectionPoint, MessageId, PauseCause,
    TaskMessage,
};
use serde_json::{Value, json};

use super::*;
use crate::{
    config::ProviderApi,
    engine::waiting::WaitingRecord,
    model::scripted::{ScriptedProvider, ScriptedReply},
    report::Place,
    tools::KeptResults,
};

fn progress(body: &EventBody) -> Option<&AgentStreamEvent> {
    match body {
        EventBody::Progress { event: AgentEvent { event, .. } } => Some(event),
        _ => None,
    }
}

fn waits_for(body: &EventBody, cause: PauseCause) -> bool {
    let wait = progress(body).and_then(|event| match event {
        AgentStreamEvent::StateChange { waiting, .. } => waiting.as_ref(),
        _ => None,
    });
    wait.is_some_and(|wait| wait.cause == cause)
}

fn chunk(delta: &Value) -> ScriptedReply {
    ScriptedReply::chunks(&[json!({ "choices": [{ "delta": delta, "finish_reason": "stop" }] })])
}

fn says(text: &str) -> ScriptedReply {
    chunk(&json!({ "content": text }))
}

fn writes(path: &str) -> ScriptedReply {
    let function = json!({ "name": "write_file", "arguments": json!({ "path": path, "content": "a" }).to_string() });
    chunk(&json!({ "tool_calls": [{ "index": 0, "id": "c", "function": function }] }))
}

impl Fixture {
    /// A viber whose agent asks before it writes.
    async fn asking(endpoint: &ScriptedProvider, max_tasks: usize) -> Self {
        let fixture = Self::new();
        let lab = endpoint.provider(ProviderApi::OpenAi).base_url;
        let file = |name: &str, text: &str| std::fs::write(fixture.folder.path().join(name), text).expect("written");
        let providers = format!("providers:\n  lab: {{ api: openai, baseUrl: \"{lab}\", apiKey: k }}\n");
        file("config.yaml", &format!("maxTasks: {max_tasks}\n{providers}"));
        file("agents/careful.yaml", "model: lab/m1\ncontextWindow: 32768\nmode: always_ask\n");
        fixture.killed().welcomed(&[]).await
    }

    /// Waits until it is at rest for this.
    async fn at_rest(&self, attempt: &AttemptRef, cause: PauseCause) {
        self.until(attempt, |body| waits_for(body, cause)).await;
        let mut changes = self.mesh.changes();
        while self.mesh.state().running.get(attempt).is_some_and(|live| live.rest.place() == Place::Taken) {
            changes.changed().await.expect("rings");
        }
    }

    /// Waits until it is at rest with a question.
    async fn question(&self, attempt: &AttemptRef) -> ApprovalRequest {
        self.at_rest(attempt, PauseCause::Approval).await;
        self.asked(attempt).await
    }

    /// The question that it asked first.
    async fn asked(&self, attempt: &AttemptRef) -> ApprovalRequest {
        let asked =
            self.until(attempt, |body| matches!(progress(body), Some(AgentStreamEvent::ApprovalRequired(_)))).await;
        match progress(&asked.body) {
            Some(AgentStreamEvent::ApprovalRequired(asked)) => (**asked).clone(),
            other => panic!("a question: {other:?}"),
        }
    }

    fn decision(asked: &ApprovalRequest) -> Command {
        let (id, digest) = (asked.approval_id.clone(), asked.digest.clone());
        Command::Approval(Box::new(ApprovalResponse::new(id, digest, Decision::Allow)))
    }

    /// On disk, but the process dies before it does anything with it.
    async fn journalled(&mut self, command: Command) {
        let numbered = NumberedCommand { cmd_seq: self.next_cmd, command };
        self.next_cmd += 1;
        self.mesh.journalled(vec![numbered]).await.expect("written");
    }

    fn record(&self, attempt: &AttemptRef) -> PathBuf {
        self.mesh.home().waiting_record(attempt)
    }

    fn written(&self) -> Option<String> {
        std::fs::read_to_string(self.mesh.home().workspace().join("a.txt")).ok()
    }

    async fn completed(&self, attempt: &AttemptRef) -> String {
        match self.ending(attempt).await {
            EventBody::Completed { result } => result.text,
            other => panic!("completed: {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_next_process_goes_on_with_what_was_journalled_before_the_kill() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt"), says("One."), says("Two.")]).await;
    let mut fixture = Fixture::asking(&endpoint, 2).await;
    let attempt = fixture.submit_to("careful", "go", json!({})).await;
    let asked = fixture.question(&attempt).await;
    let message: TaskMessage =
        serde_json::from_value(json!({"taskId": attempt.task_id, "messageId": MessageId::new(1),
        "author": "Ada", "content": "And then?", "injectionMode": InjectionPoint::Followup}))
        .expect("a message");
    fixture.journalled(Command::Message(Box::new(message))).await;
    fixture.journalled(Fixture::decision(&asked)).await;
    let held = fixture.killed();
    assert_eq!(held.mesh.held(), std::slice::from_ref(&attempt), "the Board is told of it");
    let fixture = held.welcomed(&[]).await;
    assert_eq!(fixture.completed(&attempt).await, "Two.");
    assert_eq!((fixture.written().as_deref(), endpoint.seen().len()), (Some("a"), 3));
    let events = fixture.events(&attempt);
    assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64), "without a gap");
    let count = |like: &dyn Fn(&EventBody) -> bool| events.iter().filter(|event| like(&event.body)).count();
    assert_eq!(count(&|body| matches!(body, EventBody::Started { .. })), 1);
    assert_eq!(count(&|body| matches!(progress(body), Some(AgentStreamEvent::ApprovalRequired(_)))), 1);
    assert_eq!(count(&|body| waits_for(body, PauseCause::Approval)), 1);
    fixture.idle().await;
    assert!(!fixture.record(&attempt).exists());
}

#[tokio::test]
async fn what_lets_a_task_go_on_counts_before_and_after_a_restart() {
    let looks = || {
        let function = json!({ "name": "list_files", "arguments": "{}" });
        chunk(&json!({ "tool_calls": [{ "index": 0, "function": function }] }))
    };
    for (cause, came_before_kill) in [PauseCause::RateLimit, PauseCause::Budget, PauseCause::Paused]
        .into_iter()
        .flat_map(|cause| [(cause, true), (cause, false)])
    {
        let mut replies = match cause {
            PauseCause::RateLimit => vec![ScriptedReply::refusal(429, "{}").header("Retry-After", "3600")],
            PauseCause::Budget => vec![looks(), looks()],
            _ => Vec::new(),
        };
        replies.push(says("Done."));
        let endpoint = ScriptedProvider::start(replies).await;
        let mut fixture = Fixture::asking(&endpoint, 2).await;
        fixture.command(Command::Drain { drained: true }).await;
        let more = if cause == PauseCause::Budget { json!({ "leash": 1 }) } else { json!({}) };
        let attempt = fixture.submit_to("careful", "go", more).await;
        let AttemptRef { task_id, attempt: number } = attempt.clone();
        if cause == PauseCause::Paused {
            let at = protocol::PausePoint::Step;
            fixture.command(Command::Pause { task_id: task_id.clone(), attempt: number, at }).await;
        }
        fixture.command(Command::Drain { drained: false }).await;
        fixture.at_rest(&attempt, cause).await;
        let word = match cause {
            PauseCause::Budget => Fixture::decision(&fixture.asked(&attempt).await),
            _ => Command::Resume { task_id, attempt: number },
        };
        let fixture = if came_before_kill {
            fixture.journalled(word).await;
            fixture.killed().welcomed(&[]).await
        } else {
            let mut fixture = fixture.killed().welcomed(&[]).await;
            fixture.command(word).await;
            fixture
        };
        assert_eq!(fixture.completed(&attempt).await, "Done.", "{cause:?} {came_before_kill}");
    }
}

#[tokio::test]
async fn however_often_a_daemon_is_killed_nothing_is_reported_twice() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt"), says("Done.")]).await;
    let mut fixture = Fixture::asking(&endpoint, 2).await;
    let attempt = fixture.submit_to("careful", "go", json!({})).await;
    let asked = fixture.question(&attempt).await;
    let before = fixture.events(&attempt);
    for _ in 0..3 {
        fixture = fixture.killed().welcomed(&[]).await;
        let next = fixture.mesh.outbox().next(&attempt);
        let is_waiting_again = async || {
            let record = std::fs::read(fixture.record(&attempt)).expect("at rest");
            WaitingRecord::read(&record).expect("a record").next_seq == next
        };
        while !is_waiting_again().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    fixture.command(Fixture::decision(&asked)).await;
    assert_eq!((fixture.completed(&attempt).await.as_str(), endpoint.seen().len()), ("Done.", 2));
    let events = fixture.events(&attempt);
    assert_eq!(events[..before.len()], before);
    let repeated = events[before.len()..].iter().any(|event| {
        waits_for(&event.body, PauseCause::Approval)
            || matches!(
                progress(&event.body),
                Some(AgentStreamEvent::ApprovalRequired(_) | AgentStreamEvent::ToolCall { .. })
            )
    });
    assert!(!repeated, "{events:?}");
}

#[tokio::test]
async fn a_record_that_is_damaged_or_older_than_what_the_board_has_is_not_used() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt")]).await;
    for damage in [true, false] {
        let mut fixture = Fixture::asking(&endpoint, 2).await;
        let attempt = fixture.submit_to("careful", "go", json!({})).await;
        let asked = fixture.question(&attempt).await;
        fixture.journalled(Fixture::decision(&asked)).await;
        let next = fixture.mesh.outbox().next(&attempt);
        if damage {
            std::fs::write(fixture.record(&attempt), "{}").expect("written");
        }
        let acked = if damage { next - 1 } else { next };
        let fixture = fixture.killed().welcomed(&[(&attempt, acked)]).await;
        let (code, _) = code(&fixture.ending(&attempt).await).expect("an error");
        assert_eq!((code, fixture.written()), (ErrorCode::DaemonRestarted, None));
        assert!(!fixture.record(&attempt).exists());
        assert_eq!(std::fs::read_dir(fixture.mesh.home().damaged()).is_ok_and(|kept| kept.count() == 1), damage);
    }
}

#[tokio::test]
async fn what_is_not_wanted_any_more_does_not_go_on() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt")]).await;
    let mut fixture = Fixture::asking(&endpoint, 3).await;
    let mut attempts = Vec::new();
    for _ in 0..3 {
        let attempt = fixture.submit_to("careful", "go", json!({})).await;
        fixture.question(&attempt).await;
        attempts.push(attempt);
    }
    let [a, b, c] = [&attempts[0], &attempts[1], &attempts[2]];
    fixture.journalled(Command::Stop { task_id: a.task_id.clone(), attempt: 1, reason: "enough".to_owned() }).await;
    let stopped =
        json!({"stopped": [{"taskId": b.task_id, "attempt": 1}], "fence": [{"taskId": c.task_id, "minAttempt": 2}]});
    let fixture = fixture.killed().welcomed_with(stopped).await;
    for attempt in &attempts {
        assert!(matches!(fixture.ending(attempt).await, EventBody::Stopped { killed: 0, .. }));
    }
    let mut changes = fixture.mesh.changes();
    while !fixture.mesh.held().is_empty() {
        changes.changed().await.expect("rings");
    }
    assert!(attempts.iter().all(|attempt| !fixture.record(attempt).exists()));
}

#[tokio::test]
async fn one_at_rest_leaves_its_place_and_takes_one_again_in_order() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt"), writes("b.txt"), says("One."), says("Two.")]).await;
    let mut fixture = Fixture::asking(&endpoint, 1).await;
    let a = fixture.submit_to("careful", "go", json!({})).await;
    let asked_a = fixture.question(&a).await;
    let b = fixture.submit_to("careful", "go", json!({})).await;
    let asked_b = fixture.question(&b).await;
    let busy = fixture.submit("wait").await;
    fixture.started(&busy).await;
    let next = fixture.submit("wait").await;
    assert_eq!((fixture.mesh.load(), fixture.mesh.working()), ((3, 1), 1));
    for asked in [&asked_b, &asked_a] {
        fixture.command(Fixture::decision(asked)).await;
    }
    let mut changes = fixture.mesh.changes();
    while fixture.mesh.state().wanting.len() < 2 {
        changes.changed().await.expect("rings");
    }
    assert_eq!((fixture.written(), fixture.names(&next)), (None, vec!["task:accepted"]));
    let stop =
        |attempt: &AttemptRef| Command::Stop { task_id: attempt.task_id.clone(), attempt: 1, reason: String::new() };
    fixture.command(stop(&busy)).await;
    assert_eq!(fixture.completed(&b).await, "One.");
    assert_eq!(fixture.completed(&a).await, "Two.");
    fixture.started(&next).await;
    fixture.command(stop(&next)).await;
    fixture.idle().await;
}

#[tokio::test]
async fn a_daemon_that_ends_in_order_leaves_those_at_rest_as_they_are() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt"), says("Done.")]).await;
    let mut fixture = Fixture::asking(&endpoint, 2).await;
    let attempt = fixture.submit_to("careful", "go", json!({})).await;
    let asked = fixture.question(&attempt).await;
    fixture.mesh.finish_running().await;
    fixture.mesh.stop_running();
    fixture.command(Fixture::decision(&asked)).await;
    let before = fixture.events(&attempt).len();
    let fixture = fixture.killed();
    assert!(fixture.record(&attempt).exists() && fixture.written().is_none());
    assert_eq!(fixture.events(&attempt).len(), before);
    let fixture = fixture.welcomed(&[]).await;
    assert_eq!((fixture.completed(&attempt).await.as_str(), endpoint.seen().len()), ("Done.", 2));
}

#[tokio::test]
async fn an_order_to_stop_reaches_a_task_of_this_machine_in_the_next_process_unless_it_began_later() {
    let reason = || "enough".to_owned();
    let interrupt = |agent: &str| Command::Interrupt { target_agent_id: agent.to_owned(), reason: reason() };
    let orders = [Some(Command::StopAll { reason: reason() }), Some(interrupt("*")), Some(interrupt("careful")), None];
    for order in orders {
        let limited = || ScriptedReply::refusal(429, "{}").header("Retry-After", "3600");
        let endpoint = ScriptedProvider::start(vec![limited(), limited(), says("Done.")]).await;
        let mut fixture = Fixture::asking(&endpoint, 2).await;
        let asked = || LocalTask { goal: "go".to_owned(), agent: "careful".to_owned(), session: None, space: None };
        let earlier = fixture.mesh.begin_local("cli", asked()).await;
        fixture.at_rest(&earlier, PauseCause::RateLimit).await;
        fixture.journalled(interrupt("another")).await;
        match order {
            Some(order) => fixture.journalled(order).await,
            None => fixture.mesh.note_stop(vec![earlier.clone()], reason()).await.expect("written"),
        }
        let later = fixture.mesh.begin_local("cli", asked()).await;
        fixture.at_rest(&later, PauseCause::RateLimit).await;
        let mut fixture = fixture.killed().welcomed(&[]).await;
        assert!(matches!(fixture.ending(&earlier).await, EventBody::Stopped { reason, .. } if reason == "enough"));
        let AttemptRef { task_id, attempt } = later.clone();
        fixture.command(Command::Resume { task_id, attempt }).await;
        assert_eq!(fixture.completed(&later).await, "Done.");
        fixture.idle().await;
        assert_eq!(fixture.mesh.shared.context.journal.held().recent.len(), 0, "nothing is kept of what is over");
    }
}

#[tokio::test]
async fn results_are_kept_until_their_attempt_is_over() {
    let endpoint = ScriptedProvider::start(vec![writes("a.txt"), says("Done.")]).await;
    let mut fixture = Fixture::asking(&endpoint, 2).await;
    let attempt = fixture.submit_to("careful", "go", json!({})).await;
    let asked = fixture.question(&attempt).await;
    let folder = fixture.mesh.home().root().join("artifacts");
    // The other one was over before results were removed, or the process was killed before that.
    let other = TaskId::new(fixture.mesh.clock().now().millis() + 1);
    for (task, attempt) in [(&attempt.task_id, 1), (&other, 3)] {
        KeptResults::of(folder.join(task.as_str()), attempt).keep("c", "all of it").expect("kept");
    }
    let left = || KeptResults::attempts(&folder).into_iter().map(|(task, _)| task).collect::<Vec<_>>();
    let until = async |count: usize| {
        while left().len() > count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut fixture = fixture.killed().welcomed(&[]).await;
    tokio::time::timeout(Duration::from_secs(10), until(1)).await.expect("the other one goes");
    assert_eq!(left(), [attempt.task_id.to_string()]);
    fixture.command(Fixture::decision(&asked)).await;
    assert_eq!(fixture.completed(&attempt).await, "Done.");
    tokio::time::timeout(Duration::from_secs(10), until(0)).await.expect("its results go with it");
}
