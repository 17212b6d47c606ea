//! A supervisor: its calls are done by the Board, wait at rest, and end the attempt with the run.

use protocol::{AgentMode, ApprovalKind, ApprovalRequest, Decision, InjectionPoint, PauseCause, PlaybookTask, RunId};

use super::{limits::ended, messages::message, *};

/// Twenty-nine days: more than any team lets a question stay open.
const LONG_MILLIS: i64 = 29 * 24 * 60 * 60 * 1000;
const TWO_STEPS: &[(&str, &str)] =
    &[("run_step", r#"{"step":1}"#), ("run_step", r#"{"step":"2","instruction":"Mind the gap."}"#)];
const FINISH: (&str, &str) = ("finish", r#"{"summary":"It is released."}"#);

impl Fixture {
    /// A run of the supervisor of a playbook, or of one of its steps.
    fn of_playbook(&self, step: Option<&str>) -> EngineRun {
        let mut run = self.run("Release it.");
        run.submit.playbook = Some(PlaybookTask { run_id: RunId::new(1), step: step.map(str::to_owned) });
        run
    }

    fn answer_step(&self, asked: &ApprovalRequest, answer: &str) {
        self.word(asked, Decision::Answer, |word| word.answer = Some(answer.to_owned()));
    }
}

/// What was put to the Board.
fn step_calls(events: &[AgentStreamEvent]) -> Vec<ApprovalRequest> {
    let asked = events.iter().filter_map(|event| match event {
        AgentStreamEvent::ApprovalRequired(asked) => Some((**asked).clone()),
        _ => None,
    });
    asked.collect()
}

fn tools(endpoint: &ScriptedProvider) -> Vec<String> {
    let tools = endpoint.seen()[0].body["tools"].as_array().expect("tools").clone();
    tools.iter().map(|tool| tool["function"]["name"].as_str().expect("a name").to_owned()).collect()
}

fn system(endpoint: &ScriptedProvider) -> String {
    endpoint.seen()[0].body["messages"][0]["content"].as_str().expect("a system prompt").to_owned()
}

#[tokio::test]
async fn steps_of_one_answer_wait_together_in_every_mode_and_finishing_ends_the_attempt() {
    for mode in [AgentMode::AlwaysExecute, AgentMode::AlwaysAsk] {
        let endpoint = ScriptedProvider::start(vec![calls(TWO_STEPS), calls(&[FINISH]), says("never asked")]).await;
        let fixture = Fixture::new(&endpoint);
        let mut supervising = fixture.of_playbook(None);
        (supervising.submit.mode, supervising.submit.approval_minutes) = (Some(mode), Some(5));
        let running = tokio::spawn(run(supervising));
        fixture.question(2).await;
        let asked = step_calls(&fixture.events());
        let seen: Vec<_> = asked.iter().map(|asked| (asked.kind, asked.tool.as_str(), asked.args.clone())).collect();
        let args = [json!({ "step": "1" }), json!({ "step": "2", "instruction": "Mind the gap." })];
        assert_eq!(seen, args.map(|args| (ApprovalKind::Step, "run_step", args)));
        assert_ne!(asked[0].digest, asked[1].digest);
        let now = Clock::system().now().millis();
        assert!(asked.iter().all(|asked| asked.expires_at.is_some_and(|at| at.millis() - now > LONG_MILLIS)));
        assert_eq!(fixture.waits().pop().map(|wait| wait.cause), Some(PauseCause::Child));
        fixture.answer_step(&asked[1], "Step 2 is done.");
        tokio::task::yield_now().await;
        assert!(fixture.results().is_empty(), "in their order");
        fixture.word(&asked[0], Decision::Deny, |word| word.note = Some("Ada does not want it.".to_owned()));
        let last = fixture.question(3).await;
        assert_eq!((last.kind, last.tool.as_str()), (ApprovalKind::Step, "finish"));
        assert_eq!(last.args, json!({ "summary": "It is released." }));
        fixture.answer_step(&last, "The run is over.");
        let result = result(ended(running).await);
        assert_eq!((result.text.as_str(), endpoint.seen().len()), ("It is released.", 2), "no further model call");
        let results = fixture.results();
        let results: Vec<_> = results.iter().map(|(tool, ok, text)| (tool.as_str(), *ok, text.as_str())).collect();
        let expected = [
            ("run_step", false, "Ada does not want it."),
            ("run_step", true, "Step 2 is done."),
            ("finish", true, "The run is over."),
        ];
        assert_eq!(results, expected);
        let told = endpoint.conversation(1);
        assert!(told[2].1.contains("Ada does not want it.") && told[3].1 == "Step 2 is done.", "{told:?}");
        let said = |event: &AgentStreamEvent| matches!(event, AgentStreamEvent::TextDelta { content } if content == "It is released.");
        assert!(fixture.events().iter().any(said), "people read it in the conversation");
    }
}

#[tokio::test]
async fn what_a_supervisor_waits_for_outlives_the_process() {
    let endpoint = ScriptedProvider::start(vec![calls(TWO_STEPS), calls(&[FINISH])]).await;
    let mut fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    fixture.question(2).await;
    let before = fixture.killed(running).await;
    let asked = step_calls(&before);
    let running = tokio::spawn(run(fixture.resumed(&before)));
    let _open: Vec<_> =
        asked.iter().map(|asked| fixture.approvals.ask(asked.approval_id.clone(), asked.digest.clone())).collect();
    asked.iter().for_each(|asked| fixture.answer_step(asked, "done"));
    let last = fixture.question(1).await;
    assert_eq!(last.tool, "finish", "nothing is put to the Board a second time");
    fixture.answer_step(&last, "The run is over.");
    assert_eq!((result(ended(running).await).text.as_str(), endpoint.seen().len()), ("It is released.", 2));
    assert!(tools(&endpoint).iter().any(|tool| tool == "finish"));
    assert_eq!(endpoint.roles(1), ["user", "assistant", "tool", "tool"]);
}

#[tokio::test]
async fn a_run_that_is_finished_stays_so_while_other_calls_wait() {
    let endpoint = ScriptedProvider::start(vec![calls(&[FINISH, TWO_STEPS[0]]), says("never asked")]).await;
    let mut fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    fixture.question(2).await;
    fixture.answer_step(&step_calls(&fixture.events())[0], "The run is over.");
    fixture.until(|event| matches!(event, AgentStreamEvent::ToolResult { .. })).await;
    let before = fixture.killed(running).await;
    let waiting = step_calls(&before)[1].clone();
    let running = tokio::spawn(run(fixture.resumed(&before)));
    let _open = fixture.approvals.ask(waiting.approval_id.clone(), waiting.digest.clone());
    fixture.word(&waiting, Decision::Deny, |word| word.note = Some("The run is over.".to_owned()));
    assert_eq!((result(ended(running).await).text.as_str(), endpoint.seen().len()), ("It is released.", 1));
}

#[tokio::test]
async fn nobody_else_has_the_tools_of_a_supervisor() {
    for step in [None, Some("1")] {
        let endpoint = ScriptedProvider::start(vec![calls(TWO_STEPS), says("Done.")]).await;
        let fixture = Fixture::new(&endpoint);
        let other = if step.is_some() { fixture.of_playbook(step) } else { fixture.run("x") };
        assert_eq!(result(run(other).await).text, "Done.");
        let results = fixture.results();
        assert!(
            results.iter().all(|(_, ok, text)| !ok && text.contains("there is no tool \"run_step\"")),
            "{results:?}"
        );
        assert!(step_calls(&fixture.events()).is_empty() && !system(&endpoint).contains("<supervisor>"));
        assert!(!tools(&endpoint).iter().any(|tool| toolset::SUPERVISOR_TOOLS.contains(&tool.as_str())));
    }
    let endpoint = ScriptedProvider::start(vec![says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.tools = ["read_file", "write_file", "shell", "add_artifact"].map(str::to_owned).to_vec();
    result(run(fixture.of_playbook(None)).await);
    assert_eq!(
        tools(&endpoint),
        ["read_file", "run_step", "add_step", "skip_step", "finish"],
        "it does no step's work itself, whatever its file says"
    );
    assert!(system(&endpoint).contains("<supervisor>"));
}

#[tokio::test]
async fn a_supervisor_is_offered_no_tool_of_an_mcp_server() {
    for is_supervisor in [false, true] {
        let endpoint = ScriptedProvider::start(vec![calls(&[("mcp__fs__read", "{}")]), says("Done.")]).await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.agent.mcp = vec![crate::config::McpUse { server: "fs".to_owned(), tools: None }];
        let mut one = if is_supervisor { fixture.of_playbook(None) } else { fixture.run("x") };
        one.mcp = crate::mcp::McpServers::knowing(&fixture.home, "fs", &["read"]);
        assert_eq!(result(run(one).await).text, "Done.");
        assert_eq!(tools(&endpoint).iter().any(|tool| tool == "mcp__fs__read"), !is_supervisor);
        let results = fixture.results();
        let is_unknown = results[0].2.contains("there is no tool \"mcp__fs__read\"");
        assert!(!results[0].1 && is_unknown == is_supervisor, "{results:?}");
    }
}

#[tokio::test]
async fn whoever_steps_in_is_heard_and_takes_nothing_back() {
    let add = ("add_step", r#"{"agent":"coder","instruction":"Look again.","after":[1]}"#);
    let endpoint = ScriptedProvider::start(vec![calls(&[TWO_STEPS[0], add]), says("I wait.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    fixture.question(2).await;
    let asked = step_calls(&fixture.events());
    assert_eq!(asked[1].args, json!({ "agent": "coder", "instruction": "Look again.", "after": ["1"] }));
    fixture.answer_step(&asked[1], "It is step 1a.");
    fixture.inbox.put(message("Not today.", 1, InjectionPoint::Steer));
    assert_eq!(result(ended(running).await).text, "I wait.");
    let results = fixture.results();
    assert!(!results[0].1 && results[0].2.contains("stepped in before this was answered"), "{results:?}");
    assert_eq!(results[1], ("add_step".to_owned(), true, "It is step 1a.".to_owned()));
    let given_up = |event: &AgentStreamEvent| match event {
        AgentStreamEvent::ApprovalExpired { approval_id, .. } => Some(approval_id.clone()),
        _ => None,
    };
    let given_up: Vec<_> = fixture.events().iter().filter_map(given_up).collect();
    assert_eq!(given_up, [asked[0].approval_id.clone()], "the Board knows that nobody waits for it");
    assert!(endpoint.conversation(1).pop().is_some_and(|(role, said)| role == "user" && said.contains("Not today.")));
}

#[tokio::test]
async fn a_call_that_cannot_be_read_is_put_to_nobody() {
    let endpoint = ScriptedProvider::start(vec![
        calls(&[("run_step", "{}"), ("skip_step", r#"{"step":"1"}"#), ("finish", r#"{"text":"x"}"#)]),
        says("Done."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    assert_eq!(result(run(fixture.of_playbook(None)).await).text, "Done.");
    let results = fixture.results();
    for ((_, ok, text), word) in
        results.iter().zip(["\"step\" is missing", "\"reason\" is missing", "unknown argument"])
    {
        assert!(!ok && text.contains(word), "{text}");
    }
    assert!(results.len() == 3 && step_calls(&fixture.events()).is_empty());
}

#[tokio::test]
async fn what_stands_before_a_step_in_an_answer_is_made_before_it() {
    let look = ("list_files", "{}");
    let third = ("run_step", r#"{"step":3}"#);
    let endpoint =
        ScriptedProvider::start(vec![calls(&[TWO_STEPS[0], look, TWO_STEPS[1], third]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    let first = fixture.question(1).await;
    assert_eq!((step_calls(&fixture.events()).len(), first.args), (1, json!({ "step": "1" })));
    assert_eq!(fixture.results().len(), 0);
    fixture.answer_step(&step_calls(&fixture.events())[0], "done");
    fixture.question(3).await;
    assert_eq!(fixture.results().len(), 2, "the Board was asked only then");
    let asked = step_calls(&fixture.events());
    assert_eq!((asked.len(), &asked[2].args), (3, &json!({ "step": "3" })), "these two together");
    asked[1..].iter().for_each(|asked| fixture.answer_step(asked, "done"));
    assert_eq!(result(ended(running).await).text, "Done.");
}

#[tokio::test]
async fn a_run_may_have_more_steps_than_its_supervisor_has_rounds() {
    let step = |args| calls(&[("run_step", args)]);
    let steps = [r#"{"step":1}"#, r#"{"step":2}"#, r#"{"step":3}"#].map(step);
    let endpoint = ScriptedProvider::start(steps.into_iter().chain([calls(&[FINISH])]).collect()).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.max_steps = 2;
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    for n in 1..=4 {
        let asked = fixture.question(n).await;
        fixture.answer_step(&asked, "done");
    }
    assert_eq!(result(ended(running).await).text, "It is released.");
    // One that asks for the same thing over and over ends all the same.
    let endpoint = ScriptedProvider::start([(); 4].map(|()| calls(&TWO_STEPS[..1])).into()).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.max_steps = 2;
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    for n in 1..=3 {
        let asked = fixture.question(n).await;
        fixture.answer_step(&asked, "Step 1 is done.");
    }
    assert_eq!((error(ended(running).await).code, endpoint.seen().len()), (ErrorCode::MaxStepsReached, 3));
}

#[tokio::test]
async fn only_an_answer_of_the_board_is_one() {
    let endpoint = ScriptedProvider::start(vec![calls(&[FINISH]), says("I go on.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.of_playbook(None)));
    let asked = fixture.question(1).await;
    let other = ApprovalRequest { digest: "another".to_owned(), ..asked.clone() };
    fixture.answer_step(&other, "of something else");
    fixture.word(&asked, Decision::Allow, |_| {});
    fixture.answer_step(&asked, "the second word");
    assert_eq!(result(ended(running).await).text, "I go on.");
    let results = fixture.results();
    assert!(results.len() == 1 && !results[0].1 && results[0].2.contains("does not say why"), "{results:?}");
}
