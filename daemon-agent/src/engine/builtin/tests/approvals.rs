//! People decide about calls and answer questions, at every moment of an answer's calls.

use protocol::{
    AgentMode, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision, DecisionScope, InjectionPoint, PauseCause,
    PausePoint, rules::ApprovalRules,
};

use super::{limits::ended, messages::message, *};

mod questions;

impl Fixture {
    /// A run that asks before every call which changes something.
    pub(super) fn asking(&self) -> EngineRun {
        let mut run = self.run("x");
        run.submit.mode = Some(AgentMode::AlwaysAsk);
        run
    }

    /// Sends Ada's decision about a question, changed by `more`.
    pub(super) fn respond(
        &self,
        question: &ApprovalRequest,
        decision: Decision,
        more: impl FnOnce(&mut ApprovalResponse),
    ) {
        let mut response = ApprovalResponse::new(question.approval_id.clone(), question.digest.clone(), decision);
        response.by = "Ada".to_owned();
        more(&mut response);
        self.approvals.answer(response);
    }

    fn all_asked(&self) -> Vec<ApprovalRequest> {
        let questions = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::ApprovalRequired(asked) => Some(*asked),
            _ => None,
        });
        questions.collect()
    }

    /// What happened to questions and their calls, in a word each.
    fn decided(&self) -> Vec<String> {
        let word = |event: AgentStreamEvent| match event {
            AgentStreamEvent::ToolCall { call_id, .. } => Some(format!("call {call_id}")),
            AgentStreamEvent::ToolResult { call_id, ok, .. } => Some(format!("result {call_id} {ok}")),
            AgentStreamEvent::ApprovalRequired(asked) => Some(format!("asks {}", asked.call_id.unwrap_or_default())),
            AgentStreamEvent::ApprovalExpired { reason, .. } => Some(format!("expired: {reason}")),
            AgentStreamEvent::ApprovalOutcome { call_id, ok, .. } => Some(format!("outcome {call_id} {ok}")),
            AgentStreamEvent::StateChange { waiting: Some(wait), .. } => Some(format!("waits for {:?}", wait.cause)),
            _ => None,
        };
        self.events().into_iter().filter_map(word).collect()
    }

    fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.home.workspace().join(path)).ok()
    }

    fn put(&self, path: &str, text: &str) {
        std::fs::write(self.home.workspace().join(path), text).expect("written");
    }
}

fn writes(path: &str, content: &str) -> (&'static str, String) {
    ("write_file", json!({ "path": path, "content": content }).to_string())
}

fn answer_with(all: &[(&'static str, String)]) -> ScriptedReply {
    calls(&all.iter().map(|(name, args)| (*name, args.as_str())).collect::<Vec<_>>())
}

#[tokio::test]
async fn calls_of_one_answer_are_asked_together_and_made_in_their_order() {
    let endpoint = ScriptedProvider::start(vec![
        answer_with(&[
            writes("a.txt", "a\n"),
            ("read_file", r#"{"path":"b.txt"}"#.to_owned()),
            writes("b.txt", "new\n"),
        ]),
        says("Done."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    fixture.put("b.txt", "old\n");
    let running = tokio::spawn(run(fixture.asking()));
    fixture.question(2).await;
    let asked = fixture.all_asked();
    assert_eq!((asked[0].kind, asked[0].tool.as_str()), (ApprovalKind::Tool, "write_file"));
    assert_eq!(asked[0].preview, "--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+a\n");
    assert_eq!(asked[1].preview, "--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-old\n+new\n");
    assert_eq!(asked[0].reason, "the task's mode is always_ask");
    assert_eq!(asked[1].args, json!({ "path": "b.txt", "content": "new\n" }));
    assert_eq!(asked[1].rule.as_deref(), Some("write_file(b.txt)"));
    assert!(asked[0].files[0].hash.is_none() && asked[1].files[0].hash.is_some());
    assert!(asked.iter().all(|asked| asked.expires_at.is_some() && !asked.risk.is_empty() && !asked.cwd.is_empty()));
    // The later one first: it waits for its turn.
    fixture.respond(&asked[1], Decision::Allow, |_| {});
    tokio::task::yield_now().await;
    assert!(fixture.results().is_empty() && fixture.text("a.txt").is_none());
    fixture.respond(&asked[0], Decision::Allow, |_| {});
    result(ended(running).await);
    assert_eq!((fixture.text("a.txt").as_deref(), fixture.text("b.txt").as_deref()), (Some("a\n"), Some("new\n")));
    assert_eq!(
        fixture.decided(),
        [
            "call c0",
            "asks c0",
            "call c2",
            "asks c2",
            "waits for Approval",
            "result c0 true",
            "outcome c0 true",
            "call c1",
            "result c1 true",
            "result c2 true",
            "outcome c2 true",
        ]
    );
    let line = fixture.log().into_iter().rfind(|line| line["type"] == "approval").expect("in the session's log");
    assert_eq!((&line["decision"], &line["by"]), (&json!("allow"), &json!("Ada")));
}

#[tokio::test]
async fn a_denial_is_told_with_its_note_and_the_agent_goes_on() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Then not.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let asked = fixture.question(1).await;
    fixture.respond(&asked, Decision::Deny, |word| word.note = Some("Use b.txt.".to_owned()));
    assert_eq!(result(ended(running).await).text, "Then not.");
    assert_eq!(fixture.text("a.txt"), None);
    let told = &endpoint.conversation(1)[2].1;
    assert_eq!(told, "Not run: `write_file` was not allowed by Ada: Use b.txt.");
    assert_eq!(fixture.decided(), ["call c0", "asks c0", "waits for Approval", "result c0 false"]);
}

#[tokio::test]
async fn a_decision_holds_for_what_was_asked_and_once() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "new\n")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.put("a.txt", "one\n");
    let running = tokio::spawn(run(fixture.asking()));
    let first = fixture.question(1).await;
    fixture.put("a.txt", "two\n");
    fixture.respond(&first, Decision::Allow, |_| {});
    let second = fixture.question(2).await;
    assert!(second.digest != first.digest && second.approval_id != first.approval_id);
    assert!(second.preview.contains("-two"), "{}", second.preview);
    assert_eq!(fixture.text("a.txt").as_deref(), Some("two\n"), "nothing was run");
    // What was decided about the first question is no answer to the second.
    fixture.respond(&first, Decision::Allow, |_| {});
    fixture.respond(&second, Decision::Allow, |word| word.digest.clone_from(&first.digest));
    tokio::task::yield_now().await;
    assert!(fixture.results().is_empty());
    fixture.respond(&second, Decision::Allow, |_| {});
    result(ended(running).await);
    assert_eq!(fixture.text("a.txt").as_deref(), Some("new\n"));
    let changed = "expired: what the call would do has changed since it was asked";
    let expected = [
        "call c0",
        "asks c0",
        "waits for Approval",
        changed,
        "asks c0",
        "waits for Approval",
        "result c0 true",
        "outcome c0 true",
    ];
    assert_eq!(fixture.decided(), expected);
}

#[tokio::test]
async fn a_pause_holds_a_call_that_was_allowed_meanwhile() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "new\n")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.put("a.txt", "one\n");
    let running = tokio::spawn(run(fixture.asking()));
    let first = fixture.question(1).await;
    fixture.pause.pause(PausePoint::Tool);
    fixture.respond(&first, Decision::Allow, |_| {});
    let is_hold = |event: &AgentStreamEvent| matches!(event, AgentStreamEvent::StateChange { waiting: Some(wait), .. } if wait.cause == PauseCause::Paused);
    fixture.until(is_hold).await;
    // What changes while it is held is asked again, too.
    fixture.put("a.txt", "two\n");
    fixture.pause.resume(1);
    let second = fixture.question(2).await;
    assert!(fixture.results().is_empty());
    fixture.respond(&second, Decision::Allow, |_| {});
    result(ended(running).await);
    assert_eq!(fixture.text("a.txt").as_deref(), Some("new\n"));
}

#[tokio::test]
async fn what_an_earlier_call_writes_is_asked_when_its_turn_comes() {
    let edit = r#"{"path":"a.txt","oldText":"one","newText":"two"}"#.to_owned();
    let endpoint = ScriptedProvider::start(vec![
        answer_with(&[writes("a.txt", "one\n"), writes("a.txt", "one more\n"), ("edit_file", edit)]),
        says("Done."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    for n in 1..=3 {
        let asked = fixture.question(n).await;
        assert_eq!(fixture.all_asked().len(), n, "the next one is not known yet");
        fixture.respond(&asked, Decision::Allow, |_| {});
    }
    result(ended(running).await);
    assert_eq!(fixture.text("a.txt").as_deref(), Some("two more\n"));
    assert!(fixture.all_asked()[2].preview.contains("-one more\n+two more"));
}

#[tokio::test]
async fn a_decision_for_the_task_or_by_a_rule_holds_for_later_calls() {
    let endpoint = ScriptedProvider::start(vec![
        answer_with(&[writes("a.txt", "a"), writes("src/b", "b"), writes("src/c", "c")]),
        answer_with(&[writes("a.txt", "a"), writes("src/d", "d"), writes("a.txt", "other")]),
        says("Done."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    fixture.question(3).await;
    let asked = fixture.all_asked();
    assert_eq!(asked[1].rule.as_deref(), Some("write_file(src/**)"));
    fixture.respond(&asked[0], Decision::Allow, |word| word.scope = Some(DecisionScope::Task));
    fixture.respond(&asked[1], Decision::Allow, |word| {
        (word.scope, word.rule) = (Some(DecisionScope::Rule), Some("write_file(src/**)".to_owned()));
    });
    // The third is allowed by the rule, the next two by what was decided: only other arguments are asked about.
    let last = fixture.question(4).await;
    assert_eq!(last.args["content"], "other");
    fixture.respond(&last, Decision::Deny, |_| {});
    result(ended(running).await);
    assert_eq!((fixture.text("src/c").as_deref(), fixture.text("src/d").as_deref()), (Some("c"), Some("d")));
    assert!(fixture.decided().contains(&"expired: the call is allowed by now".to_owned()));
}

#[tokio::test]
async fn what_was_decided_goes_before_what_frees_the_call_meanwhile() {
    let endpoint = ScriptedProvider::start(vec![
        answer_with(&[writes("src/a", "a"), writes("src/b", "b"), writes("src/c", "c")]),
        says("Done."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    fixture.question(3).await;
    let asked = fixture.all_asked();
    fixture.respond(&asked[1], Decision::Deny, |_| {});
    fixture.respond(&asked[2], Decision::Allow, |word| {
        word.args = Some(json!({ "path": "src/d", "content": "d" }));
    });
    fixture.respond(&asked[0], Decision::Allow, |word| {
        (word.scope, word.rule) = (Some(DecisionScope::Rule), Some("write_file(src/**)".to_owned()));
    });
    result(ended(running).await);
    let texts = ["src/a", "src/b", "src/c", "src/d"].map(|path| fixture.text(path));
    assert_eq!(texts, [Some("a".to_owned()), None, None, Some("d".to_owned())]);
    assert_eq!(fixture.results()[1].2, "Not run: `write_file` was not allowed by Ada.");
}

#[tokio::test]
async fn what_somebody_says_while_an_allowed_call_is_held_goes_before_it() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("As you wish.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let asked = fixture.question(1).await;
    fixture.pause.pause(PausePoint::Tool);
    fixture.respond(&asked, Decision::Allow, |_| {});
    let is_hold = |event: &AgentStreamEvent| matches!(event, AgentStreamEvent::StateChange { waiting: Some(wait), .. } if wait.cause == PauseCause::Paused);
    fixture.until(is_hold).await;
    fixture.inbox.put(message("Write nothing", 1, InjectionPoint::Steer));
    fixture.pause.resume(1);
    assert_eq!(result(ended(running).await).text, "As you wish.");
    assert_eq!((fixture.text("a.txt"), fixture.all_asked().len()), (None, 1));
    let decided = fixture.decided();
    assert!(decided.contains(&"expired: somebody stepped in before it was followed".to_owned()), "{decided:?}");
}

#[tokio::test]
async fn a_change_that_cannot_be_shown_is_not_asked_about() {
    let long = "line\n".repeat(10_000);
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", &long)]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    result(run(fixture.asking()).await);
    let told = fixture.results().remove(0).2;
    assert!(told.ends_with("Write it in several calls."), "{told}");
    assert!(fixture.all_asked().is_empty() && fixture.text("a.txt").is_none());
}

#[tokio::test]
async fn changed_arguments_are_run_in_the_place_of_the_others_and_told() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let asked = fixture.question(1).await;
    let args = json!({ "path": "b.txt", "content": "b" });
    fixture.respond(&asked, Decision::Allow, |word| word.args = Some(args.clone()));
    result(ended(running).await);
    assert_eq!((fixture.text("a.txt"), fixture.text("b.txt").as_deref()), (None, Some("b")));
    let replacing = fixture.all_asked().remove(1);
    assert_eq!((replacing.replaces.as_ref(), &replacing.args), (Some(&asked.approval_id), &args));
    assert!(replacing.digest != asked.digest && replacing.preview.contains("+b"));
    let expected =
        ["call c0", "asks c0", "waits for Approval", "asks c0", "call c0", "result c0 true", "outcome c0 true"];
    assert_eq!(fixture.decided(), expected);
    let told = &endpoint.conversation(1)[2].1;
    let begin = r#"Ada changed the arguments of this call. It was made with {"content":"b","path":"b.txt"}"#;
    assert!(told.starts_with(begin) && told.contains("Created b.txt"), "{told}");
}

#[tokio::test]
async fn changed_arguments_are_judged_by_what_is_denied() {
    for (args, part) in [
        (json!({ "path": "secret/x", "content": "b" }), "`write_file(secret/**)` under `deny` of the team's rules"),
        (json!({ "path": "/etc/passwd", "content": "b" }), "forbidden path"),
        (json!({ "path": "b.txt" }), "\"content\" is missing"),
        (json!("b.txt"), "not a JSON object"),
    ] {
        let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Done.")]).await;
        let fixture = Fixture::new(&endpoint);
        let mut asking = fixture.asking();
        asking.submit.rules =
            ApprovalRules { deny: vec!["write_file(secret/**)".to_owned()], ..ApprovalRules::default() };
        let running = tokio::spawn(run(asking));
        let asked = fixture.question(1).await;
        fixture.respond(&asked, Decision::Allow, |word| word.args = Some(args));
        fixture.until(|event| matches!(event, AgentStreamEvent::ToolResult { .. })).await;
        fixture.stop.cancel();
        ended(running).await;
        let (_, ok, told) = fixture.results().remove(0);
        assert!(!ok && told.starts_with("Ada changed the arguments") && told.contains(part), "{told}");
        assert!(fixture.decided()[3].starts_with("expired: "), "{:?}", fixture.decided());
    }
}

#[tokio::test]
async fn what_is_denied_by_a_rule_is_neither_asked_nor_run() {
    let endpoint = ScriptedProvider::start(vec![
        answer_with(&[writes("secret/x", "a"), ("read_file", r#"{"path":"b.txt"}"#.to_owned())]),
        says("Done."),
    ])
    .await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.put("b.txt", "b");
    let rules = |deny: &[&str], ask: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|rule| (*rule).to_owned()).collect();
        ApprovalRules {
            deny: owned(deny),
            ask: owned(ask),
            allow: vec!["write_file".to_owned()],
            ..ApprovalRules::default()
        }
    };
    fixture.config.policy.rules = rules(&["write_file(secret/**)"], &[]).read().expect("rules");
    let mut asking = fixture.run("x");
    asking.submit.rules = rules(&[], &["read_file"]);
    let running = tokio::spawn(run(asking));
    // A tool that reads is asked about where a rule says so, in any mode.
    let asked = fixture.question(1).await;
    assert_eq!((asked.tool.as_str(), asked.rule), ("read_file", None));
    assert_eq!(asked.reason, "the rule `read_file` under `ask` of the team's rules");
    let question = fixture.all_asked().remove(0);
    fixture.respond(&question, Decision::Allow, |_| {});
    result(ended(running).await);
    let results = fixture.results();
    assert!(!results[0].1 && results[0].2.contains("under `deny` of policy.yaml"), "{results:?}");
    assert!(results[1].1 && fixture.text("secret/x").is_none());
}

#[tokio::test]
async fn the_machine_bounds_the_mode_and_rules_that_cannot_be_read_end_the_task() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.config.policy.max_mode = Some(AgentMode::AlwaysAsk);
    let mut free = fixture.run("x");
    free.submit.mode = Some(AgentMode::AlwaysExecute);
    let running = tokio::spawn(run(free));
    assert_eq!(fixture.question(1).await.reason, "`maxMode` in policy.yaml is always_ask");
    fixture.stop.cancel();
    ended(running).await;

    // A task that asks for a stricter mode than the machine's is not freer for it: the team allows nothing here.
    for (most, own) in [
        (AgentMode::AlwaysAsk, AgentMode::AlwaysAsk),
        (AgentMode::ViberDecides, AgentMode::ViberDecides),
        (AgentMode::ViberDecides, AgentMode::AlwaysAsk),
    ] {
        let endpoint = ScriptedProvider::start(vec![calls(&[("shell", r#"{"command":"touch a.txt"}"#)])]).await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.config.policy.max_mode = Some(most);
        let mut strict = fixture.run("x");
        strict.submit.mode = Some(own);
        strict.submit.rules = ApprovalRules { allow: vec!["shell(touch **)".to_owned()], ..ApprovalRules::default() };
        let running = tokio::spawn(run(strict));
        fixture.question(1).await;
        fixture.stop.cancel();
        ended(running).await;
    }

    let fixture = Fixture::new(&endpoint);
    let mut unreadable = fixture.run("x");
    unreadable.submit.rules = ApprovalRules { deny: vec!["shell(".to_owned()], ..ApprovalRules::default() };
    let error = error(run(unreadable).await);
    assert!(error.code == ErrorCode::BadRequest && error.message.contains("deny: “shell(” is no rule"), "{error:?}");
}

#[tokio::test]
async fn a_stop_ends_the_wait_at_once() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a"), writes("b.txt", "b")])]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let asked = fixture.question(2).await;
    fixture.stop.cancel();
    assert!(matches!(ended(running).await, EngineOutcome::Stopped { killed: 0 }));
    fixture.respond(&asked, Decision::Allow, |_| {});
    assert!(fixture.results().is_empty() && fixture.text("b.txt").is_none());
}

#[tokio::test]
async fn steering_denies_everything_that_is_asked() {
    let endpoint =
        ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a"), writes("b.txt", "b")]), says("As you wish.")])
            .await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    fixture.question(2).await;
    fixture.inbox.put(message("Write nothing", 1, InjectionPoint::Steer));
    assert_eq!(result(ended(running).await).text, "As you wish.");
    assert!(fixture.results().iter().all(|(_, ok, told)| !ok && told == "not run: Ada stepped in"));
    // Whatever is decided from now on is not followed.
    let over = "expired: somebody stepped in before it was followed";
    let expected = [
        "call c0",
        "asks c0",
        "call c1",
        "asks c1",
        "waits for Approval",
        "result c0 false",
        "result c1 false",
        over,
        over,
    ];
    assert_eq!(fixture.decided(), expected);
    assert_eq!(endpoint.roles(1), ["user", "assistant", "tool", "tool", "user"]);
    let denied = fixture.log().into_iter().filter(|line| line["type"] == "approval" && line["decision"] == "deny");
    assert_eq!(denied.count(), 2);
}

#[tokio::test]
async fn a_message_that_was_withdrawn_leaves_the_question_open() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let asked = fixture.question(1).await;
    let withdrawn = message("No!", 1, InjectionPoint::Steer);
    fixture.inbox.put(withdrawn.clone());
    fixture.inbox.put(protocol::TaskMessage { rev: 2, withdrawn: true, ..withdrawn });
    fixture.respond(&asked, Decision::Allow, |_| {});
    result(ended(running).await);
    assert_eq!((fixture.text("a.txt").as_deref(), fixture.all_asked().len()), (Some("a"), 1));
}

#[tokio::test]
async fn what_a_message_overtook_that_is_then_withdrawn_is_over() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let asked = fixture.question(1).await;
    fixture.pause.pause(protocol::PausePoint::Step);
    let steer = message("No!", 1, InjectionPoint::Steer);
    fixture.inbox.put(steer.clone());
    fixture.until(|event| matches!(event, AgentStreamEvent::ToolResult { .. })).await;
    // The task is held before its agent was told.
    fixture.inbox.put(protocol::TaskMessage { rev: 2, withdrawn: true, ..steer });
    fixture.pause.resume(1);
    result(ended(running).await);
    let expired = fixture.events().into_iter().any(|event| {
        matches!(event, AgentStreamEvent::ApprovalExpired { approval_id, .. } if approval_id == asked.approval_id)
    });
    assert!(expired && fixture.text("a.txt").is_none(), "nobody is to decide about it any more");
}

#[tokio::test]
async fn nobody_who_answers_in_time_is_a_denial() {
    let endpoint = ScriptedProvider::start(vec![answer_with(&[writes("a.txt", "a")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    let mut asking = fixture.asking();
    asking.submit.approval_minutes = Some(0);
    let running = tokio::spawn(run(asking));
    result(ended(running).await);
    let told = fixture.results().remove(0).2;
    assert!(told.starts_with("Not run: a person has to allow this, and nobody answered within"), "{told}");
    let expected = "expired: nobody answered within 0 minutes";
    assert_eq!(fixture.decided()[2..], ["waits for Approval", expected, "result c0 false"]);
}
