//! People talk to a task while it runs: the real daemon, a Board that sends the messages, a scripted model.

use std::time::{Duration, Instant};

use board_tests::{
    FakeBoard, Llm, Viber, eventually,
    fake_board::Behaviour,
    llm::{Gate, Piece, Reply},
};
use protocol::{
    AgentStreamEvent, AttemptRef, Command, EventBody, InjectionPoint, MessageId, MessageProgress, StepState,
    TaskMessage,
};
use serde_json::{Value, json};

/// A viber at a Board that only sends what it is told to.
struct Talk {
    board: FakeBoard,
    viber: Viber,
    llm: Llm,
}

impl Talk {
    async fn with(api: &str, script: Vec<Reply>) -> Self {
        let (board, llm) = (FakeBoard::start(Behaviour::Serve).await, Llm::start(script).await);
        let mut viber = Viber::fresh("lab");
        board.enrol(&viber);
        viber.use_scripted_model(&llm, api);
        viber.run();
        Self { board, viber, llm }
    }

    fn say(&self, to: &AttemptRef, content: &str, injection_mode: InjectionPoint) {
        self.board.command(Command::Message(Box::new(TaskMessage {
            task_id: to.task_id.clone(),
            message_id: MessageId::new(1),
            rev: 1,
            author: "Ada".to_owned(),
            content: content.to_owned(),
            context: Some(json!({ "currentFile": "src/main.rs" })),
            attachments: Vec::new(),
            injection_mode,
            position: 1,
            withdrawn: false,
        })));
    }

    fn reports(&self, attempt: &AttemptRef) -> Vec<AgentStreamEvent> {
        let events = self.board.events(attempt).into_iter().filter_map(|event| match event.body {
            EventBody::Progress { event } => Some(event.event),
            _ => None,
        });
        events.collect()
    }

    async fn until(&self, attempt: &AttemptRef, like: impl Fn(&AgentStreamEvent) -> bool) -> AgentStreamEvent {
        eventually("the report", || async { self.reports(attempt).into_iter().find(&like) }).await
    }

    /// The text of the result.
    async fn result(&self, attempt: &AttemptRef) -> String {
        let ending = eventually("the end", || async {
            self.board.events(attempt).into_iter().find(|event| event.body.is_terminal())
        });
        match ending.await.body {
            EventBody::Completed { result } => result.text,
            other => panic!("{other:?}"),
        }
    }

    /// The progress of messages, with the turn in which they were told.
    fn progress(&self, attempt: &AttemptRef) -> Vec<(MessageProgress, Option<u32>)> {
        let states = self.reports(attempt).into_iter().filter_map(|event| match event {
            AgentStreamEvent::MessageState { state, turn, .. } => Some((state, turn)),
            _ => None,
        });
        states.collect()
    }
}

use MessageProgress::{Consumed, Delivered};

async fn steering_drops_the_answer(api: &str) {
    let half = Reply::Stream(vec![Piece::text("half an answer"), Piece::Wait(Gate::new())]);
    let talk = Talk::with(api, vec![half, Reply::text("With b, then.")]).await;
    let attempt = talk.board.submit("Fix it");
    talk.until(&attempt, |event| matches!(event, AgentStreamEvent::TextDelta { .. })).await;
    talk.say(&attempt, "Use b instead", InjectionPoint::Steer);
    assert_eq!(talk.result(&attempt).await, "With b, then.");
    let requests = talk.llm.requests();
    assert_eq!((requests.len(), requests[0].aborted), (2, true), "{api}");
    let again = requests[1].body.to_string();
    assert!(again.contains("Use b instead") && again.contains("src/main.rs") && again.contains("Ada"), "{again}");
    assert!(again.contains("Fix it") && !again.contains("half an answer"), "{again}");
    assert_eq!(talk.progress(&attempt), [(Delivered, None), (Consumed, Some(1))]);
    let steered = |event: &AgentStreamEvent| {
        matches!(event, AgentStreamEvent::Step { state: StepState::Discarded, reason: Some(reason), .. }
            if reason == "steered by Ada")
    };
    assert!(talk.reports(&attempt).iter().any(steered));
}

#[tokio::test]
async fn steering_drops_the_answer_of_each_provider() {
    for api in ["openai", "anthropic", "ollama"] {
        steering_drops_the_answer(api).await;
    }
}

#[tokio::test]
async fn steering_ends_a_command_and_the_model_hears_why() {
    let command = json!({ "command": "echo so far; touch begun; sleep 1000" });
    let calls = Reply::Stream(vec![
        Piece::call("c1", "shell", command),
        Piece::call("c2", "write_file", json!({ "path": "never.txt", "content": "x" })),
    ]);
    let talk = Talk::with("openai", vec![calls, Reply::text("I left it.")]).await;
    let attempt = talk.board.submit("Work");
    eventually("it runs", || async { talk.viber.space().join("begun").exists().then_some(()) }).await;
    let begin = Instant::now();
    talk.say(&attempt, "Leave that", InjectionPoint::Steer);
    talk.llm.asked(2).await;
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(2), "it had a moment to end: {took:?}");
    assert_eq!(talk.result(&attempt).await, "I left it.");
    let results: Vec<(bool, Value)> = talk
        .reports(&attempt)
        .into_iter()
        .filter_map(|event| match event {
            AgentStreamEvent::ToolResult { ok, result, .. } => Some((ok, result)),
            _ => None,
        })
        .collect();
    let [(false, ended), (false, passed_over)] = &results[..] else { panic!("{results:?}") };
    assert!(ended["note"].as_str().is_some_and(|note| note.contains("ended 2 s after Ada stepped in")), "{ended}");
    assert!(ended["output"].as_str().is_some_and(|output| output.contains("so far")), "{ended}");
    assert_eq!(passed_over, "not run: Ada stepped in");
    assert!(!talk.viber.space().join("never.txt").exists());
    let told = talk.llm.requests()[1].body.to_string();
    assert!(told.contains("2 s after Ada stepped in") && told.contains("Leave that"), "{told}");
}

#[tokio::test]
async fn what_is_said_to_a_waiting_task_outlives_the_daemon() {
    let mut talk = Talk::with("openai", vec![Reply::text("One."), Reply::text("Two.")]).await;
    talk.board.command(Command::Drain { drained: true });
    let attempt = talk.board.submit("First");
    talk.say(&attempt, "Then that", InjectionPoint::Followup);
    // Commands come in order: when the next one shows, the message is on the disk.
    let last = talk.board.submit("Last");
    eventually("all is accepted", || async { (!talk.board.events(&last).is_empty()).then_some(()) }).await;
    talk.viber.kill9();
    talk.viber.run();
    talk.board.command(Command::Drain { drained: false });
    assert_eq!(talk.result(&attempt).await, "Two.");
    assert_eq!(talk.progress(&attempt), [(Delivered, None), (Consumed, Some(2))]);
    let turn = talk.until(&attempt, |event| matches!(event, AgentStreamEvent::Turn { .. })).await;
    assert!(matches!(turn, AgentStreamEvent::Turn { n: 2, mode: Some(InjectionPoint::Followup), .. }), "{turn:?}");
}
