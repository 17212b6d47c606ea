//! A task that only waits goes on in another process: the same question, no second model call, no second call of a tool.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{OnceLock, atomic::Ordering},
};

use protocol::{
    AgentWait, ApprovalRequest, ApprovalResponse, AttemptRef, Decision, DecisionScope, InjectionPoint, Instant,
    MessageProgress, PauseCause, PausePoint, TaskLimits,
};

use super::{
    limits::{ended, with_clock},
    messages::message,
    *,
};
use crate::engine::waiting::{self, ReportedSince, ReportedState, Resumed, WaitingRecord};

/// A rest whose place is given back whenever it is wanted.
pub(super) fn granted(record: PathBuf, place: Place) -> Rest {
    let own: Arc<OnceLock<Rest>> = Arc::default();
    let given = own.clone();
    let rest = Rest::new(
        record,
        place,
        || Some(1),
        move |place| {
            if let Some(rest) = own.get().filter(|_| place == Place::Wanted) {
                rest.give_place();
            }
        },
    );
    let _ = given.set(rest.clone());
    rest
}

fn is_wait(event: &AgentStreamEvent) -> bool {
    matches!(event, AgentStreamEvent::StateChange { state: ActivityState::Waiting, .. })
}

/// What a log has of these events.
fn reported(events: &[AgentStreamEvent]) -> ReportedSince {
    let mut reported = ReportedSince::default();
    for event in events {
        match event {
            AgentStreamEvent::ApprovalRequired(asked) => drop(reported.questions.insert(asked.approval_id.clone())),
            AgentStreamEvent::ToolCall { call_id, .. } => drop(reported.calls.insert(call_id.clone())),
            AgentStreamEvent::StateChange { waiting, .. } => {
                reported.state = Some(ReportedState { wait: waiting.clone() });
            }
            _ => {}
        }
    }
    reported
}

impl Fixture {
    fn record_file(&self) -> PathBuf {
        self.home.waiting_record(&AttemptRef { task_id: self.task.clone(), attempt: 1 })
    }

    fn record(&self) -> WaitingRecord {
        WaitingRecord::read(&std::fs::read(self.record_file()).expect("at rest")).expect("a record")
    }

    /// Waits until it is at rest, and kills the process. Everything that was reported so far is forgotten.
    pub(super) async fn killed(&mut self, running: tokio::task::JoinHandle<EngineOutcome>) -> Vec<AgentStreamEvent> {
        let at_rest = async {
            while !self.events().last().is_some_and(is_wait) || self.rest.place() != Place::Free {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), at_rest).await.expect("in time");
        running.abort();
        assert!(running.await.is_err_and(|error| error.is_cancelled()));
        let before = self.events();
        self.events.lock().expect("no test panics with it").clear();
        (self.approvals, self.inbox) = (Approvals::default(), Inbox::default());
        before
    }

    /// The run of the next process, whose log has these events.
    pub(super) fn resumed(&mut self, events: &[AgentStreamEvent]) -> EngineRun {
        let record = self.record();
        self.rest = granted(self.record_file(), Place::Free);
        self.inbox = Inbox::of(record.messages.clone());
        self.pause = PauseSwitch::of(record.pause);
        self.active_time = ActiveTime::counted(record.worked);
        let mut run = self.run("x");
        run.submit = record.submit.clone();
        run.resumed = Some(Box::new(Resumed { record, reported: reported(events) }));
        run
    }

    pub(super) fn word(
        &self,
        question: &ApprovalRequest,
        decision: Decision,
        more: impl FnOnce(&mut ApprovalResponse),
    ) {
        let mut response = ApprovalResponse::new(question.approval_id.clone(), question.digest.clone(), decision);
        more(&mut response);
        self.approvals.answer(response);
    }

    /// The ids of the questions that were reported.
    fn asked_ids(&self) -> Vec<String> {
        let ids = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::ApprovalRequired(asked) => Some(asked.approval_id.to_string()),
            _ => None,
        });
        ids.collect()
    }
}

fn write_two() -> ScriptedReply {
    calls(&[
        ("write_file", r#"{"path":"a.txt","content":"a"}"#),
        ("read_file", r#"{"path":"a.txt"}"#),
        ("write_file", r#"{"path":"b.txt","content":"b"}"#),
    ])
}

#[tokio::test]
async fn an_approval_is_the_same_one_and_its_call_is_made_once() {
    let endpoint = ScriptedProvider::start(vec![write_two(), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let last = fixture.question(2).await;
    let before = fixture.killed(running).await;
    let first = before.iter().find_map(|event| match event {
        AgentStreamEvent::ApprovalRequired(asked) => Some((**asked).clone()),
        _ => None,
    });
    let first = first.expect("a question");
    let running = tokio::spawn(run(fixture.resumed(&before)));
    // Twice: the second kill comes after one call was made.
    let _open = [&first, &last].map(|asked| fixture.approvals.ask(asked.approval_id.clone(), asked.digest.clone()));
    fixture.word(&first, Decision::Allow, |_| {});
    let again = fixture.killed(running).await;
    assert!(fixture.home.workspace().join("a.txt").exists() && !fixture.home.workspace().join("b.txt").exists());
    let asked = again.iter().filter(|event| matches!(event, AgentStreamEvent::ApprovalRequired(_))).count();
    let called = again.iter().filter(|event| matches!(event, AgentStreamEvent::ToolCall { .. })).count();
    assert_eq!((asked, called), (0, 1), "only the call that reads is new");
    std::fs::remove_file(fixture.home.workspace().join("a.txt")).expect("written");
    let running = tokio::spawn(run(fixture.resumed(&[before, again].concat())));
    let _open = fixture.approvals.ask(last.approval_id.clone(), last.digest.clone());
    fixture.word(&last, Decision::Allow, |_| {});
    assert_eq!(result(ended(running).await).text, "Done.");
    assert!(!fixture.home.workspace().join("a.txt").exists() && fixture.home.workspace().join("b.txt").exists());
    assert_eq!(endpoint.seen().len(), 2);
    assert_eq!(endpoint.roles(1), ["user", "assistant", "tool", "tool", "tool"]);
    assert!(!fixture.record_file().exists());
}

#[tokio::test]
async fn what_was_not_reported_yet_is_reported_with_its_id() {
    let endpoint = ScriptedProvider::start(vec![write_two(), says("Then not.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    let last = fixture.question(2).await;
    let before = fixture.killed(running).await;
    let ids = before.iter().filter_map(|event| match event {
        AgentStreamEvent::ApprovalRequired(asked) => Some(asked.approval_id.to_string()),
        _ => None,
    });
    let ids: Vec<String> = ids.collect();
    // As the record was before the questions were reported.
    let mut record = fixture.record();
    let mut json = serde_json::to_value(&record.task).expect("JSON");
    for open in json["calls"]["open"].as_array_mut().expect("questions") {
        open[1]["isReported"] = json!(false);
    }
    json["calls"]["announced"] = json!([]);
    record.task = serde_json::from_value(json).expect("a record");
    std::fs::write(fixture.record_file(), record.bytes().expect("JSON")).expect("written");
    let first_two = &before
        [..before.iter().position(|event| matches!(event, AgentStreamEvent::ApprovalRequired(_))).expect("asked") + 1];
    let running = tokio::spawn(run(fixture.resumed(first_two)));
    fixture.until(is_wait).await;
    assert_eq!(fixture.asked_ids(), ids[1..], "the first one is in the log");
    fixture.inbox.put(message("No.", 1, InjectionPoint::Steer));
    assert_eq!(result(ended(running).await).text, "Then not.");
    assert!(!fixture.home.workspace().join("a.txt").exists());
    assert_eq!(
        (fixture.progress(), endpoint.seen().len()),
        (vec![MessageProgress::Delivered, MessageProgress::Consumed], 2)
    );
    drop(last);
}

#[tokio::test]
async fn a_file_that_changed_meanwhile_is_another_question() {
    let endpoint = ScriptedProvider::start(vec![write_two(), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    fixture.question(2).await;
    let before = fixture.killed(running).await;
    let ids: HashSet<String> = reported(&before).questions.iter().map(ToString::to_string).collect();
    std::fs::write(fixture.home.workspace().join("a.txt"), "mine").expect("written");
    let running = tokio::spawn(run(fixture.resumed(&before)));
    let anew = fixture.question(1).await;
    assert!(!ids.contains(&anew.approval_id.to_string()) && anew.preview.contains("-mine"), "{anew:?}");
    fixture.stop.cancel();
    assert!(matches!(ended(running).await, EngineOutcome::Stopped { .. }));
}

#[tokio::test]
async fn a_question_of_the_agent_expires_meanwhile_or_is_answered() {
    let ask = r#"{"question":"Which?","options":["a","b"],"recommended":"a"}"#;
    for answered in [true, false] {
        let endpoint = ScriptedProvider::start(vec![calls(&[("ask_operator", ask)]), says("Done.")]).await;
        let mut fixture = Fixture::new(&endpoint);
        let (running, clock) = with_clock(fixture.run("x"));
        let asked = fixture.question(1).await;
        let before = fixture.killed(running).await;
        let (running, later) = with_clock(fixture.resumed(&before));
        later.store(clock.load(Ordering::SeqCst), Ordering::SeqCst);
        let _open = fixture.approvals.ask(asked.approval_id.clone(), asked.digest.clone());
        if answered {
            fixture.word(&asked, Decision::Answer, |word| word.answer = Some("b".to_owned()));
        } else {
            later.store(asked.expires_at.map_or(0, Instant::millis), Ordering::SeqCst);
        }
        assert_eq!(result(ended(running).await).text, "Done.");
        let told = &endpoint.conversation(1)[2].1;
        assert!(told.contains(if answered { "chose “b”" } else { "Nobody answered" }), "{told}");
        assert_eq!((endpoint.seen().len(), fixture.asked_ids().len()), (2, 0));
        let expired = fixture.events().iter().any(|event| matches!(event, AgentStreamEvent::ApprovalExpired { .. }));
        assert_eq!(expired, !answered);
    }
}

#[tokio::test]
async fn a_budget_is_granted_after_a_restart_and_counts_go_on() {
    let looks = || calls(&[("list_files", "{}")]);
    let endpoint = ScriptedProvider::start(vec![looks(), looks(), looks(), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = TaskLimits { steps: Some(1), ..TaskLimits::default() };
    let mut running = tokio::spawn(run(fixture.run("x")));
    let mut log = Vec::new();
    for calls in 1..=3 {
        fixture.question(1).await;
        let before = fixture.killed(running).await;
        let Some(AgentStreamEvent::ApprovalRequired(asked)) =
            before.iter().rfind(|event| matches!(event, AgentStreamEvent::ApprovalRequired(_)))
        else {
            panic!("a question")
        };
        assert_eq!(asked.limit.as_ref().map(|limit| limit.used), Some(f64::from(calls)));
        log.extend(before.clone());
        running = tokio::spawn(run(fixture.resumed(&log)));
        let _open = fixture.approvals.ask(asked.approval_id.clone(), asked.digest.clone());
        fixture.word(asked, Decision::Allow, |word| {
            word.grant = Some(TaskLimits { steps: Some(1), ..TaskLimits::default() });
        });
        let passed = async {
            while endpoint.seen().len() <= calls as usize {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), passed).await.expect("it goes on");
    }
    let result = result(ended(running).await);
    assert_eq!((result.text.as_str(), endpoint.seen().len()), ("Done.", 4));
    assert_eq!(result.usage.input_tokens, 40, "of all processes");
}

#[tokio::test]
async fn a_pause_holds_on_in_the_next_process() {
    let endpoint = ScriptedProvider::start(vec![says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.pause.pause(PausePoint::Step);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_wait).await;
    let before = fixture.killed(running).await;
    let running = tokio::spawn(run(fixture.resumed(&before)));
    let is_held = async || {
        let worked = fixture.active_time.elapsed();
        tokio::time::sleep(Duration::from_millis(5)).await;
        fixture.active_time.elapsed() == worked
    };
    let held = async { while !is_held().await {} };
    timeout(Duration::from_secs(20), held).await.expect("its time does not count");
    assert!(fixture.events().is_empty() && endpoint.seen().is_empty(), "it is known that it waits");
    fixture.pause.resume(1);
    assert_eq!((result(ended(running).await).text.as_str(), endpoint.seen().len()), ("Done.", 1));
}

#[tokio::test]
async fn a_long_wait_for_the_provider_ends_at_its_moment_whoever_waits() {
    let limited = ScriptedReply::refusal(429, "{}").header("Retry-After", "3600");
    let endpoint = ScriptedProvider::start(vec![limited, says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    let (running, clock) = with_clock(fixture.run("x"));
    fixture.until(is_wait).await;
    let before = fixture.killed(running).await;
    let Some(AgentWait { cause: PauseCause::RateLimit, until: Some(until), .. }) =
        reported(&before).state.and_then(|state| state.wait)
    else {
        panic!("it waits for the provider")
    };
    let (running, later) = with_clock(fixture.resumed(&before));
    later.store(clock.load(Ordering::SeqCst), Ordering::SeqCst);
    assert_eq!(endpoint.seen().len(), 1);
    later.store(until.millis(), Ordering::SeqCst);
    assert_eq!((result(ended(running).await).text.as_str(), endpoint.seen().len()), ("Done.", 2));
}

#[tokio::test]
async fn a_wait_for_the_provider_is_ended_by_whoever_came_after_it_began_in_whichever_process() {
    let limited = ScriptedReply::refusal(429, "{}").header("Retry-After", "3600");
    let endpoint = ScriptedProvider::start(vec![limited, says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.pause.resume(3);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_wait).await;
    let before = fixture.killed(running).await;
    let first = fixture.record().at;
    let again = fixture.resumed(&before);
    // The journal tells what it has, also what came before the wait.
    fixture.pause.resume(3);
    let running = tokio::spawn(run(again));
    let kept = async {
        while fixture.record().at == first || fixture.rest.place() != Place::Free {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), kept).await.expect("it waits on");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(endpoint.seen().len() == 1 && fixture.record_file().exists(), "an old word shortens nothing");
    running.abort();
    assert!(running.await.is_err_and(|error| error.is_cancelled()));
    let last = fixture.resumed(&before);
    for cmd_seq in [3, 7] {
        fixture.pause.resume(cmd_seq);
    }
    assert_eq!(result(ended(tokio::spawn(run(last))).await).text, "Done.");
    assert_eq!(endpoint.seen().len(), 2);
}

#[tokio::test]
async fn a_pause_that_comes_while_a_place_is_awaited_holds_before_the_next_call_and_is_reported() {
    for (at, replies, made) in [
        (PausePoint::Step, vec![says("Done.")], 0),
        (PausePoint::Tool, vec![calls(&[("list_files", "{}")]), says("Done.")], 1),
    ] {
        let endpoint = ScriptedProvider::start(replies).await;
        let mut fixture = Fixture::new(&endpoint);
        if at == PausePoint::Tool {
            let pause = fixture.pause.clone();
            *fixture.hook.lock().expect("no test panics with it") = Box::new(move |event| {
                if matches!(event, AgentStreamEvent::StateChange { state: ActivityState::Tool, .. }) {
                    pause.pause(at);
                }
            });
        } else {
            fixture.pause.pause(at);
        }
        let running = tokio::spawn(run(fixture.run("x")));
        fixture.until(is_wait).await;
        let before = fixture.killed(running).await;
        *fixture.hook.lock().expect("no test panics with it") = Box::new(|_| {});
        let mut again = fixture.resumed(&before);
        let rest = Rest::new(fixture.record_file(), Place::Free, || Some(1), |_| {});
        again.rest = rest.clone();
        fixture.pause.resume(1);
        let running = tokio::spawn(run(again));
        let in_place = async |place: Place| {
            let comes = async {
                while rest.place() != place {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(Duration::from_secs(20), comes).await.expect("in time");
        };
        in_place(Place::Wanted).await;
        fixture.pause.pause(at);
        rest.give_place();
        fixture.until(is_wait).await;
        in_place(Place::Free).await;
        assert_eq!((endpoint.seen().len(), fixture.results().len()), (made, 0), "{at:?}");
        fixture.pause.resume(2);
        in_place(Place::Wanted).await;
        rest.give_place();
        assert_eq!(result(ended(running).await).text, "Done.");
        assert_eq!((endpoint.seen().len(), fixture.results().len()), (made + 1, made), "{at:?}");
    }
}

#[tokio::test]
async fn a_plan_waits_on_and_what_was_allowed_for_the_task_stays_so() {
    let endpoint = ScriptedProvider::start(vec![
        says("## Plan\n- [ ] a"),
        write_two(),
        calls(&[
            ("write_file", r#"{"path":"a.txt","content":"a"}"#),
            ("write_file", r#"{"path":"c.txt","content":"c"}"#),
        ]),
        says("Done."),
    ])
    .await;
    let mut fixture = Fixture::new(&endpoint);
    let mut asked = fixture.asking();
    asked.submit.approve_first = true;
    let running = tokio::spawn(run(asked));
    let plan = fixture.question(1).await;
    let mut log = fixture.killed(running).await;
    let running = tokio::spawn(run(fixture.resumed(&log)));
    let open = fixture.approvals.ask(plan.approval_id.clone(), plan.digest.clone());
    fixture.word(&plan, Decision::Allow, |_| {});
    fixture.question(2).await;
    drop(open);
    assert_eq!(endpoint.seen().len(), 2);
    let tools = |n: usize| endpoint.seen()[n].body["tools"].as_array().map_or(0, Vec::len);
    assert!(tools(1) > tools(0), "everything is offered again");
    let said = endpoint.seen()[1].body["messages"].to_string();
    assert!(said.contains("approved_plan") && !said.contains("<planning>"), "{said}");
    for question in fixture.events() {
        if let AgentStreamEvent::ApprovalRequired(asked) = question {
            fixture.word(&asked, Decision::Allow, |word| word.scope = Some(DecisionScope::Task));
        }
    }
    let third = fixture.question(3).await;
    assert!(third.preview.contains("c.txt"), "{third:?}");
    log.extend(fixture.killed(running).await);
    let running = tokio::spawn(run(fixture.resumed(&log)));
    let _open = fixture.approvals.ask(third.approval_id.clone(), third.digest.clone());
    fixture.word(&third, Decision::Deny, |_| {});
    assert_eq!((result(ended(running).await).text.as_str(), endpoint.seen().len()), ("Done.", 4));
}

#[tokio::test]
async fn a_question_about_a_call_that_fails_again_and_again_waits_on() {
    let failing = || calls(&[("read_file", r#"{"path":"nowhere.txt"}"#)]);
    let endpoint = ScriptedProvider::start((0..5).map(|_| failing()).chain([says("Done.")]).collect()).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.max_steps = 9;
    let running = tokio::spawn(run(fixture.run("x")));
    let asked = fixture.question(1).await;
    let before = fixture.killed(running).await;
    let running = tokio::spawn(run(fixture.resumed(&before)));
    let _open = fixture.approvals.ask(asked.approval_id.clone(), asked.digest.clone());
    fixture.word(&asked, Decision::Answer, |word| word.answer = Some("Try it again".to_owned()));
    assert_eq!(result(ended(running).await).text, "Done.");
    assert_eq!((endpoint.seen().len(), fixture.asked_ids().len()), (6, 0));
    assert!(endpoint.seen()[5].body.to_string().contains("chose “Try it again”"));
}

#[tokio::test]
async fn only_a_sound_record_of_this_version_is_used() {
    let endpoint = ScriptedProvider::start(vec![write_two()]).await;
    let mut fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.asking()));
    fixture.question(2).await;
    fixture.killed(running).await;
    let file = fixture.record_file();
    let good = std::fs::read(&file).expect("a record");
    let read = |bytes: &[u8]| {
        std::fs::write(&file, bytes).expect("written");
        waiting::read_all(&fixture.home, Instant(1)).len()
    };
    assert_eq!(read(&good), 1);
    let text = String::from_utf8(good.clone()).expect("JSON");
    let other_version = text.replacen("\"version\":1", "\"version\":2", 1);
    let other_words = text.replacen("a.txt", "z.txt", 1);
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for bytes in [other_version.as_bytes(), other_words.as_bytes(), &flipped, &good[..good.len() / 2], b""] {
        assert_eq!(read(bytes), 0);
        assert!(!file.exists(), "set aside");
    }
    assert_eq!(std::fs::read_dir(fixture.home.damaged()).expect("a folder").count(), 5);
    let misplaced = fixture.home.waiting().join(format!("{}.2", fixture.task));
    std::fs::write(&misplaced, &good).expect("written");
    std::fs::write(fixture.home.waiting().join("x.new"), "half").expect("written");
    assert!(waiting::read_all(&fixture.home, Instant(1)).is_empty() && !misplaced.exists());
    assert_eq!(std::fs::read_dir(fixture.home.waiting()).expect("a folder").count(), 0);
}
