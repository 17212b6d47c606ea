//! People talk to a task at every boundary of its loop.

use protocol::{
    ApprovalRequest, ApprovalResponse, Decision, InjectionPoint, MessageId, MessageProgress, StepState, TaskMessage,
    UsageSource,
};

use super::*;

mod bounds;

use InjectionPoint::{Collect, Followup, Steer};
use MessageProgress::{Consumed, Delivered};

pub(super) fn message(content: &str, position: u64, injection_mode: InjectionPoint) -> TaskMessage {
    TaskMessage {
        task_id: TaskId::new(1),
        message_id: MessageId::new(1),
        rev: 1,
        author: "Ada".to_owned(),
        content: content.to_owned(),
        context: None,
        attachments: Vec::new(),
        injection_mode,
        position,
        withdrawn: false,
    }
}

impl Fixture {
    /// Puts `message` in the inbox right before the first event like this.
    pub(super) fn say_at(&self, message: TaskMessage, like: impl Fn(&AgentStreamEvent) -> bool + Send + 'static) {
        let (inbox, mut message) = (self.inbox.clone(), Some(message));
        *self.hook.lock().expect("no test panics with it") = Box::new(move |event| {
            if message.is_some() && like(event) {
                inbox.put(message.take().expect("there"));
            }
        });
    }

    pub(super) async fn until(&self, like: impl Fn(&AgentStreamEvent) -> bool) {
        let seen = async {
            while !self.events().iter().any(&like) {
                self.reported.notified().await;
            }
        };
        timeout(Duration::from_secs(20), seen).await.expect("in time");
    }

    /// The events that tell how the talk went, in a word each.
    pub(super) fn talk(&self) -> Vec<String> {
        let word = |event: AgentStreamEvent| match event {
            AgentStreamEvent::Step { n, state, reason } => {
                let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                Some(format!("step {n} {state:?}{reason}"))
            }
            AgentStreamEvent::TextDelta { content } => Some(format!("says {content}")),
            AgentStreamEvent::MessageState { state: Consumed, turn, .. } => Some(format!("consumed in {}", turn?)),
            AgentStreamEvent::Turn { n, message_ids, mode } => {
                Some(format!("turn {n}: {} {}", message_ids.len(), mode?.as_str()))
            }
            AgentStreamEvent::ToolResult { tool, ok, .. } => Some(format!("{tool} {ok}")),
            AgentStreamEvent::ApprovalRequired(_) => Some("asks".to_owned()),
            _ => None,
        };
        self.events().into_iter().filter_map(word).collect()
    }

    /// Waits until the agent has asked people `n` times, and returns the last question.
    pub(super) async fn question(&self, n: usize) -> ApprovalRequest {
        let questions = || {
            self.events().into_iter().filter_map(|event| match event {
                AgentStreamEvent::ApprovalRequired(asked) => Some(*asked),
                _ => None,
            })
        };
        let seen = async {
            while questions().count() < n || !matches!(self.events().last(), Some(AgentStreamEvent::StateChange { .. }))
            {
                self.reported.notified().await;
            }
        };
        timeout(Duration::from_secs(20), seen).await.expect("in time");
        questions().next_back().expect("a question")
    }

    pub(super) fn allow(&self, question: &ApprovalRequest) {
        self.approvals.answer(ApprovalResponse::new(
            question.approval_id.clone(),
            question.digest.clone(),
            Decision::Allow,
        ));
    }

    pub(super) fn progress(&self) -> Vec<MessageProgress> {
        let states = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::MessageState { state, .. } => Some(state),
            _ => None,
        });
        states.collect()
    }
}

impl ScriptedProvider {
    /// Roles and contents of the messages of a request, without the system prompt.
    pub(super) fn conversation(&self, request: usize) -> Vec<(String, String)> {
        let messages = self.seen()[request].body["messages"].as_array().expect("messages").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        messages[1..].iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }

    pub(super) fn roles(&self, request: usize) -> Vec<String> {
        self.conversation(request).into_iter().map(|(role, _)| role).collect()
    }
}

pub(super) fn is_text(event: &AgentStreamEvent) -> bool {
    matches!(event, AgentStreamEvent::TextDelta { .. })
}

fn is_usage(event: &AgentStreamEvent) -> bool {
    matches!(event, AgentStreamEvent::Usage(_))
}

#[tokio::test]
async fn steering_drops_the_answer_that_streams_and_what_it_said() {
    for said in ["", "half an answer"] {
        let body =
            if said.is_empty() { String::new() } else { format!("data: {}\n\n", delta(json!({ "content": said }))) };
        let mut endpoint =
            ScriptedProvider::start(vec![ScriptedReply::stream(&body).silent(), says("As you wish.")]).await;
        let fixture = Fixture::new(&endpoint);
        let running = tokio::spawn(run(fixture.run("Fix it")));
        if said.is_empty() {
            while endpoint.seen().is_empty() {
                tokio::task::yield_now().await;
            }
        } else {
            fixture.until(is_text).await;
        }
        let context = Some(json!({ "currentFile": "src/a.rs", "selection": "fn a()" }));
        fixture.inbox.put(TaskMessage { context, ..message("Use b instead", 1, Steer) });
        // Without the message, the silent stream is given up after 90 s.
        let outcome = timeout(Duration::from_secs(20), running).await.expect("at once").expect("no panic");
        let ended = result(outcome);
        assert_eq!(ended.text, "As you wish.");
        // What the dropped call cost is estimated, and added to what the other one did.
        assert!(ended.usage.source == UsageSource::Estimated && ended.usage.input_tokens > 10, "{:?}", ended.usage);
        let counts = fixture.events().iter().filter(|event| is_usage(event)).count();
        assert_eq!(counts, 2);
        timeout(Duration::from_secs(20), endpoint.hang_up()).await.expect("the endpoint sees it");
        let mut expected = vec![
            "step 1 Started".to_owned(),
            "step 1 Discarded (steered by Ada)".to_owned(),
            "consumed in 1".to_owned(),
            "step 2 Started".to_owned(),
            "says As you wish.".to_owned(),
            "step 2 Finished".to_owned(),
        ];
        if !said.is_empty() {
            expected.insert(1, format!("says {said}"));
        }
        assert_eq!(fixture.talk(), expected);
        let told = "<message from=\"Ada\">\nCurrent file: src/a.rs\n<selection>\nfn a()\n</selection>\n\nUse b instead\n</message>";
        let expected = [("user", "Fix it"), ("user", told)].map(|(role, text)| (role.to_owned(), text.to_owned()));
        assert_eq!(endpoint.conversation(1), expected);
        let line = fixture.log().into_iter().find(|line| line["type"] == "message").expect("in the session's log");
        assert_eq!(
            (&line["author"], &line["text"], &line["mode"]),
            (&json!("Ada"), &json!("Use b instead"), &json!("steer"))
        );
    }
}

#[tokio::test]
async fn what_there_is_no_further_call_for_does_not_count_as_told() {
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::stream("").silent()]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = protocol::TaskLimits { steps: Some(1), ..stopping() };
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(|event| matches!(event, AgentStreamEvent::StateChange { .. })).await;
    fixture.inbox.put(message("Use b instead", 1, Steer));
    let outcome = timeout(Duration::from_secs(20), running).await.expect("at once").expect("no panic");
    assert_eq!((error(outcome).code, fixture.progress()), (ErrorCode::BudgetExceeded, vec![Delivered]));
}

#[tokio::test]
async fn what_steers_before_a_call_is_told_with_it_together_and_in_order() {
    let endpoint = ScriptedProvider::start(vec![says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.inbox.put(message("second", 2, Steer));
    fixture.inbox.put(TaskMessage { author: "Bo".to_owned(), ..message("first", 1, Steer) });
    result(run(fixture.run("x")).await);
    assert_eq!(fixture.steps(), [(1, StepState::Started), (1, StepState::Finished)]);
    let told = &endpoint.conversation(0)[1].1;
    assert_eq!(told, "<message from=\"Bo\">\nfirst\n</message>\n\n<message from=\"Ada\">\nsecond\n</message>");
    assert_eq!(fixture.progress(), [Delivered, Delivered, Consumed, Consumed]);
}

#[tokio::test]
async fn a_wait_for_the_provider_is_not_shortened_by_steering() {
    let limited = ScriptedReply::refusal(429, "{}").header("Retry-After", "1");
    let endpoint = ScriptedProvider::start(vec![limited, says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.say_at(message("hurry", 1, Steer), |event| {
        matches!(event, AgentStreamEvent::StateChange { state: ActivityState::Waiting, .. })
    });
    let begun = std::time::Instant::now();
    result(run(fixture.run("x")).await);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let talk = fixture.talk();
    assert!(talk[1].starts_with("step 1 Discarded") && !talk[1].contains("steered"), "{talk:?}");
    assert_eq!(talk[2..4], ["consumed in 1", "step 2 Started"]);
}

#[tokio::test]
async fn a_tool_that_ends_in_time_keeps_its_result_and_the_next_is_not_begun() {
    let endpoint = ScriptedProvider::start(vec![
        calls(&[("list_files", "{}"), ("write_file", r#"{"path":"a.txt","content":"x"}"#)]),
        says("Then not."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    fixture.say_at(message("Write nothing", 1, Steer), |event| matches!(event, AgentStreamEvent::ToolCall { .. }));
    assert_eq!(result(run(fixture.run("x")).await).text, "Then not.");
    let results = fixture.results();
    assert!(results[0].1 && !results[1].1 && results[1].2 == "not run: Ada stepped in", "{results:?}");
    assert!(!fixture.home.workspace().join("a.txt").exists());
    assert_eq!(endpoint.roles(1), ["user", "assistant", "tool", "tool", "user"]);
    let talk = fixture.talk();
    let expected = ["list_files true", "write_file false", "consumed in 1", "step 2 Started"];
    assert_eq!(talk[2..6], expected, "{talk:?}");
}

/// A loop that does nothing yet.
pub(super) async fn idle_loop(fixture: &Fixture) -> AgentLoop {
    let run = fixture.run("x");
    let context = ToolContext {
        home: run.home.clone(),
        workspace: run.memory.workspace(),
        agent: run.agent.clone(),
        config: run.config.clone(),
        task_id: run.submit.task_id.clone(),
        attempt: 1,
        sink: run.sink.clone(),
        collector: run.collector.clone(),
        stop: run.stop.clone(),
    };
    let model = Model::for_agent(&run.agent, &run.config).expect("a model");
    let log = SessionLog::of(&run.submit, &run.home, Clock::system());
    let gate = Gate::of(&run).expect("a gate");
    AgentLoop::open(run, model, (Toolbox::new(context), gate), log, &Clock::system()).await
}

#[tokio::test]
async fn a_tool_that_goes_on_is_ended_after_two_seconds_but_not_when_the_message_is_withdrawn() {
    let endpoint = ScriptedProvider::start(vec![says("never asked")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut agent_loop = idle_loop(&fixture).await;
    let stop = CancellationToken::new();
    agent_loop.tools.begin_calls(stop.clone());
    let withdrawn = message("No!", 1, Steer);
    fixture.inbox.put(withdrawn.clone());
    let begun = std::time::Instant::now();
    let people = async {
        tokio::task::yield_now().await;
        fixture.inbox.put(TaskMessage { rev: 2, withdrawn: true, ..withdrawn });
        tokio::task::yield_now().await;
        // The two seconds are those of whoever still steers.
        fixture.inbox.put(TaskMessage { author: "Bo".to_owned(), ..message("No!", 1, Steer) });
    };
    let calls = async { tokio::join!(agent_loop.finished_or_steered(stop.cancelled()), people) };
    timeout(Duration::from_secs(20), calls).await.expect("ended");
    assert!(begun.elapsed() >= Duration::from_secs(2));
    assert!(!fixture.stop.is_cancelled(), "the task goes on");
    let refused = agent_loop.tools.call("c1", "shell", &json!({ "command": "true" }), None).await;
    assert_eq!(refused.result, "ended 2 s after Bo stepped in");
}

#[tokio::test]
async fn steering_at_the_end_of_a_turn_goes_on_in_it() {
    let endpoint = ScriptedProvider::start(vec![says("One."), says("Two.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.say_at(message("More", 1, Steer), is_usage);
    assert_eq!(result(run(fixture.run("x")).await).text, "Two.");
    assert_eq!(endpoint.roles(1), ["user", "assistant", "user"]);
    assert_eq!(endpoint.conversation(1)[1].1, "One.");
    let talk = fixture.talk();
    assert_eq!(talk[2..5], ["step 1 Finished", "consumed in 1", "step 2 Started"], "{talk:?}");
}

#[tokio::test]
async fn collected_messages_are_one_turn_and_each_followup_is_one() {
    let endpoint = ScriptedProvider::start(["One.", "Two.", "Three.", "Four."].map(says).to_vec()).await;
    let fixture = Fixture::new(&endpoint);
    for (n, mode) in [Collect, Collect, Collect, Followup, Followup].into_iter().enumerate() {
        fixture.inbox.put(message(&format!("m{n}"), n as u64, mode));
    }
    let withdrawn = message("never", 9, Followup);
    fixture.inbox.put(withdrawn.clone());
    fixture.inbox.put(TaskMessage { rev: 2, withdrawn: true, ..withdrawn });
    let result = result(run(fixture.run("x")).await);
    assert_eq!((result.text.as_str(), result.summary.as_str(), result.usage.input_tokens), ("Four.", "Four.", 40));
    let expected = [
        "step 1 Started",
        "says One.",
        "step 1 Finished",
        "turn 2: 3 collect",
        "consumed in 2",
        "consumed in 2",
        "consumed in 2",
        "step 2 Started",
        "says Two.",
        "step 2 Finished",
        "turn 3: 1 followup",
        "consumed in 3",
        "step 3 Started",
        "says Three.",
        "step 3 Finished",
        "turn 4: 1 followup",
        "consumed in 4",
        "step 4 Started",
        "says Four.",
        "step 4 Finished",
    ];
    assert_eq!(fixture.talk(), expected);
    let told = &endpoint.conversation(1)[2].1;
    assert!(told.find("m0") < told.find("m1") && told.find("m1") < told.find("m2") && !told.contains("m3"), "{told}");
    assert_eq!(endpoint.roles(3), ["user", "assistant", "user", "assistant", "user", "assistant", "user"]);
    assert!(!endpoint.seen().iter().any(|request| request.body.to_string().contains("never")));
}

#[tokio::test]
async fn rounds_count_anew_in_each_turn_and_limits_of_the_task_do_not() {
    let script = || vec![calls(&[("list_files", "{}")]), says("One."), calls(&[("list_files", "{}")]), says("Two.")];
    let endpoint = ScriptedProvider::start(script()).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.max_steps = 2;
    fixture.inbox.put(message("again", 1, Followup));
    assert_eq!(result(run(fixture.run("x")).await).text, "Two.");
    for (limits, left) in [
        (protocol::TaskLimits { steps: Some(2), ..stopping() }, true),
        (protocol::TaskLimits { tokens: Some(30), ..stopping() }, true),
        (protocol::TaskLimits { steps: Some(3), ..stopping() }, false),
    ] {
        let endpoint = ScriptedProvider::start(script()).await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.limits = limits;
        fixture.inbox.put(message("again", 1, Followup));
        let outcome = run(fixture.run("x")).await;
        if left {
            // What there is no room for is left to the Board.
            assert_eq!((result(outcome).text.as_str(), fixture.progress()), ("One.", vec![Delivered]));
        } else {
            assert_eq!(error(outcome).code, ErrorCode::BudgetExceeded);
        }
    }
}

#[tokio::test]
async fn steering_denies_a_plan_that_waits_and_is_part_of_the_next() {
    let endpoint = ScriptedProvider::start(vec![says("- [ ] a"), says("- [ ] b"), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut asked = fixture.run("Fix it");
    asked.submit.approve_first = true;
    let running = tokio::spawn(run(asked));
    fixture.question(1).await;
    fixture.inbox.put(message("Use b", 1, Steer));
    fixture.allow(&fixture.question(2).await);
    let outcome = timeout(Duration::from_secs(20), running).await.expect("in time").expect("no panic");
    assert_eq!(result(outcome).text, "Done.");
    let talk = fixture.talk();
    let after: Vec<_> = talk.iter().skip_while(|word| *word != "asks").take(3).collect();
    assert_eq!(after, ["asks", "consumed in 1", "step 2 Started"]);
    for request in [1, 2] {
        let conversation = endpoint.conversation(request);
        let (role, last) = conversation.last().expect("a message");
        assert!(role == "user" && last.contains("Use b"), "also with the approved plan: {conversation:?}");
    }
    let is_told = |event: &AgentStreamEvent| {
        matches!(event, AgentStreamEvent::MessageState { state: MessageProgress::Consumed, .. })
    };
    let is_over = |event: &AgentStreamEvent| matches!(event, AgentStreamEvent::ApprovalExpired { .. });
    let events = fixture.events();
    let told = events.iter().position(is_told).expect("it was told");
    assert!(events[told..].iter().any(is_over), "nobody decides about that plan any more");
    assert!(endpoint.conversation(1)[0].1.contains("- [ ] a"), "the refused plan");
    let line = fixture.log().into_iter().find(|line| line["type"] == "approval").expect("in the session's log");
    assert_eq!(line["decision"], "deny");
}

#[tokio::test]
async fn a_stop_comes_before_everything_that_was_said() {
    let endpoint = ScriptedProvider::start(vec![says("One."), says("Two.")]).await;
    for mode in [Steer, Collect, Followup] {
        let fixture = Fixture::new(&endpoint);
        let (stop, inbox) = (fixture.stop.clone(), fixture.inbox.clone());
        *fixture.hook.lock().expect("no test panics with it") = Box::new(move |event| {
            if is_usage(event) {
                inbox.put(message("More", 1, mode));
                stop.cancel();
            }
        });
        let outcome = run(fixture.run("x")).await;
        assert!(matches!(outcome, EngineOutcome::Stopped { .. }), "{outcome:?}");
        assert_eq!(fixture.progress(), [Delivered]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_races_the_end_is_told_or_never_heard_of() {
    let endpoint = ScriptedProvider::start(vec![says("Yes.")]).await;
    for n in 0..200 {
        let fixture = Fixture::new(&endpoint);
        let mode = [Steer, Collect, Followup][n % 3];
        // The last answer is there, and the inbox is about to be closed.
        let (inbox, reached) = (fixture.inbox.clone(), Arc::new(Notify::new()));
        let reaching = reached.clone();
        *fixture.hook.lock().expect("no test panics with it") = Box::new(move |event| {
            if is_usage(event) {
                reaching.notify_one();
            }
        });
        let racer = tokio::spawn(async move {
            reached.notified().await;
            for _ in 0..n * 13 {
                tokio::task::yield_now().await;
            }
            inbox.put(message("And?", 1, mode));
        });
        let outcome = run(fixture.run("x")).await;
        assert!(matches!(outcome, EngineOutcome::Completed(_)), "{outcome:?}");
        racer.await.expect("no panic");
        let progress = fixture.progress();
        assert!(progress.is_empty() || progress == [Delivered, Consumed], "{progress:?}");
    }
}
