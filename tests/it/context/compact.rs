//! A summary takes the place of older turns: asked for or by itself, drafted and edited, undone, and never by halves.

use board_tests::{
    Answer, Browser, Engine, FakeDaemon, Fixture,
    board::HOME,
    browser::Scripts,
    fake_daemon::{accepted, completed, started, text},
    llm::Reply,
};
use protocol::{Capability, CompactRequest, EventBody, Policy, TaskSubmit, TurnPart};
use serde_json::{Value, json};

use super::context;

pub const SUMMARY: &str = "## Session Summary (compacted)\n- The old turns were about rain.";

pub fn failed(message: &str) -> EventBody {
    let error = json!({ "code": "bad_request", "message": message, "retryable": true });
    EventBody::Error { error: serde_json::from_value(error).expect("an error") }
}

/// A session with so many turns of about 2,000 tokens each.
pub async fn long(engine: Engine, turns: usize) -> Fixture<FakeDaemon> {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Queue, Capability::Steer, Capability::Compact];
    fixture.viber.connect().await;
    fixture.begin(&asked(0)).await;
    let answer = answer(0);
    fixture.tell(vec![text(&answer), completed(&answer)]).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    for n in 1..turns {
        work(&mut fixture, n).await;
    }
    fixture
}

fn asked(n: usize) -> String {
    format!("Question {n}?")
}

pub fn answer(n: usize) -> String {
    format!("Answer {n}: {}", "it rains. ".repeat(800))
}

/// A turn of work.
pub async fn work(fixture: &mut Fixture<FakeDaemon>, n: usize) {
    let submit = next(fixture, &asked(n)).await;
    end(fixture, &submit, &answer(n)).await;
}

pub async fn next(fixture: &mut Fixture<FakeDaemon>, goal: &str) -> TaskSubmit {
    let session = fixture.session().to_owned();
    fixture.submit_with(goal, json!({ "sessionId": session })).await;
    fixture.viber.submitted().await
}

pub async fn end(fixture: &mut Fixture<FakeDaemon>, submit: &TaskSubmit, said: &str) {
    let events = vec![accepted(), started(), text(said), completed(said)];
    fixture.viber.report(&submit.task_id, submit.attempt, 1, events).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
}

/// Everything that a request carries, as text.
pub fn carried(submit: &TaskSubmit) -> String {
    let parts = submit.messages.iter().flat_map(|turn| &turn.parts);
    let texts = parts.map(|part| match part {
        TurnPart::Text { text } | TurnPart::Notice { text } => text.as_str(),
        TurnPart::ToolCall { result, .. } => result.as_str(),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Whether a request begins with this summary, marked as what it is.
pub fn sums_up(submit: &TaskSubmit, summary: &str) -> bool {
    carried(submit).starts_with(&protocol::context::marked_summary(summary))
}

/// Whether the turn with this number is carried.
pub fn has(submit: &TaskSubmit, n: usize) -> bool {
    carried(submit).contains(&format!("Answer {n}: it rains"))
}

/// Asks for something of the session, which the viber answers as a model would.
pub async fn asks(fixture: &mut Fixture<FakeDaemon>, verb: &str, body: &Value, said: &str) -> (Answer, TaskSubmit) {
    let path = format!("/api/v1/sessions/{}/{verb}", fixture.session());
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let summarizes = async {
        let submit = viber.submitted().await;
        let events = vec![accepted(), started(), text(said), completed(said)];
        viber.report(&submit.task_id, 1, 1, events).await;
        submit
    };
    tokio::join!(operator.post(&path, body), summarizes)
}

async fn verb(fixture: &Fixture<FakeDaemon>, verb: &str, body: &Value) -> Answer {
    fixture.operator.post(&format!("/api/v1/sessions/{}/{verb}", fixture.session()), body).await
}

pub async fn told(fixture: &Fixture<FakeDaemon>) -> Value {
    fixture.operator.get(&format!("/api/v1/sessions/{}/context", fixture.session())).await.expect(200).json()
}

/// A session with the draft of a summary, and its basis.
pub async fn drafted() -> (Fixture<FakeDaemon>, Value) {
    let mut fixture = long(Engine::Sqlite, 9).await;
    let (answered, _) = asks(&mut fixture, "compact", &json!({ "preview": true }), SUMMARY).await;
    let draft = answered.expect(200).json();
    (fixture, draft)
}

/// Applies it.
pub async fn apply(fixture: &Fixture<FakeDaemon>, draft: &Value) {
    let body = json!({ "summary": draft["summary"], "basis": draft["basis"] });
    verb(fixture, "compact", &body).await.expect(200);
}

async fn a_summary_takes_the_place_of_older_turns_and_is_undone(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let before = told(&fixture).await;
    let (answered, submit) = asks(&mut fixture, "compact", &json!({ "instructions": "Keep names" }), SUMMARY).await;
    let compacted = answered.expect(200).json();
    let CompactRequest { summary, notes, instructions, replaced_tokens, max_tokens } =
        submit.compact.clone().expect("a compaction");
    assert_eq!((summary, notes, instructions.as_deref()), (true, true, Some("Keep names")));
    assert!(replaced_tokens > 4_000 && max_tokens < replaced_tokens, "{replaced_tokens} {max_tokens}");
    assert!(has(&submit, 0) && !has(&submit, 8), "the newest turns stand");
    assert!(submit.plan.is_none() && submit.artifacts.is_empty());
    assert_eq!((&compacted["summary"], &compacted["tokensBefore"]), (&json!(SUMMARY), &before["next"]["tokens"]));
    assert!(compacted["messageId"].is_string() && compacted["taskId"] == json!(submit.task_id), "{compacted}");
    let now = told(&fixture).await;
    assert_eq!(now["next"]["tokens"], compacted["tokensAfter"], "what is told is what is planned");
    assert_eq!(now["summary"]["text"], json!(SUMMARY));

    let after = next(&mut fixture, "And now?").await;
    assert!(sums_up(&after, SUMMARY) && !has(&after, 0) && has(&after, 8), "{}", carried(&after).len());
    assert!(!carried(&after).contains("Compact the conversation"), "a compaction is no turn");
    verb(&fixture, "compact", &json!({})).await.expect(409);
    end(&mut fixture, &after, "Fine.").await;

    // The second summary merges the first, and is no turn itself.
    for n in 9..13 {
        work(&mut fixture, n).await;
    }
    let second = "## Session Summary (compacted)\n- Rain, and more rain.";
    let (answered, merged) = asks(&mut fixture, "compact", &json!({ "keep": 2 }), second).await;
    let newest = answered.expect(200).json()["messageId"].clone();
    assert!(sums_up(&merged, SUMMARY) && has(&merged, 9) && !has(&merged, 0) && !has(&merged, 12));
    let third = next(&mut fixture, "Next").await;
    assert!(sums_up(&third, second) && !carried(&third).contains("about rain") && !has(&third, 10));
    end(&mut fixture, &third, "Fine.").await;

    let undone = verb(&fixture, "uncompact", &json!({ "messageId": newest })).await.expect(200).json();
    assert_eq!(undone, json!({ "undone": 1 }));
    let fourth = next(&mut fixture, "Next").await;
    assert!(sums_up(&fourth, SUMMARY), "the one before stands again");
    end(&mut fixture, &fourth, "Fine.").await;
    // Undoing what does not stand any more changes nothing.
    let again = verb(&fixture, "uncompact", &json!({ "messageId": newest })).await.expect(200).json();
    assert_eq!(again, json!({ "undone": 0 }));
    verb(&fixture, "uncompact", &json!({ "messageId": compacted["messageId"] })).await.expect(200);
    let refused = verb(&fixture, "uncompact", &json!({})).await.expect(409).json();
    assert_eq!(refused["code"], "not_compacted");
    assert_eq!(told(&fixture).await["summary"], Value::Null);
    fixture.board.assert_invariants().await;
}

async fn a_draft_changes_nothing_until_it_is_applied(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let (answered, submit) = asks(&mut fixture, "compact", &json!({ "preview": true }), SUMMARY).await;
    let draft = answered.expect(200).json();
    assert!(submit.compact.expect("a compaction").notes, "as of any compaction");
    assert_eq!(submit.memory_policy, Policy::Propose, "but a draft writes no memory");
    assert_eq!((&draft["summary"], draft.get("messageId")), (&json!(SUMMARY), None));
    assert_eq!(told(&fixture).await["summary"], Value::Null);
    let basis = draft["basis"].clone();
    let edited = json!({ "summary": "- Only rain.", "basis": basis });
    for body in [json!({ "summary": "x" }), json!({ "basis": basis }), json!({ "summary": " ", "basis": basis })] {
        verb(&fixture, "compact", &body).await.expect(422);
    }
    let long = json!({ "summary": "7 % ".repeat(15_000), "basis": basis });
    assert_eq!(verb(&fixture, "compact", &long).await.expect(422).json()["code"], "bad_summary");
    for _ in 0..2 {
        let applied = verb(&fixture, "compact", &edited).await.expect(200).json();
        assert_eq!(applied["summary"], "## Session Summary (compacted)\n- Only rain.");
    }
    let after = next(&mut fixture, "And now?").await;
    assert!(sums_up(&after, "## Session Summary (compacted)\n- Only rain.") && !has(&after, 0));
    end(&mut fixture, &after, "Fine.").await;
    verb(&fixture, "uncompact", &json!({})).await.expect(200);
    let stale = verb(&fixture, "compact", &edited).await.expect(409).json();
    assert_eq!(stale["code"], "went_on");
    fixture.board.assert_invariants().await;
}

async fn a_session_that_is_full_is_compacted_before_its_next_task(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let full = json!({ "window": 32_768, "used": 25_000, "source": "measured", "step": 1,
        "layers": [{ "layer": "system", "tokens": 5_000 }, { "layer": "history", "tokens": 20_000 }] });
    let submit = next(&mut fixture, "Fill it").await;
    assert!(submit.compact.is_none(), "nothing was reported yet");
    let events = vec![accepted(), started(), context(&full), text("Full."), completed("Full.")];
    fixture.viber.report(&submit.task_id, 1, 1, events).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;

    let session = fixture.session().to_owned();
    let waits = fixture.submit_with("Go on", json!({ "sessionId": session })).await;
    let compaction = fixture.viber.submitted().await;
    assert!(compaction.compact.is_some(), "it comes first");
    fixture.viber.report(&compaction.task_id, 1, 1, vec![accepted(), started()]).await;
    // What is said meanwhile is for the task that waits.
    let path = format!("/api/v1/sessions/{session}/messages");
    let said = fixture.operator.post(&path, &json!({ "content": "Hurry", "injectionMode": "steer" })).await;
    let said = said.expect(201).json();
    assert_eq!((&said["goal"], &said["delivery"]), (&json!("Hurry"), &json!("queued")));
    // Two at once are one; something else has to wait.
    let page = format!("/t/{HOME}/sessions/{session}/compact");
    fixture.owner().post_form(&page, &[("instructions", "")]).await.expect(303);
    for other in ["flush", "reset"] {
        assert_eq!(verb(&fixture, other, &json!({})).await.expect(409).json()["code"], "running");
    }
    let events = vec![text(SUMMARY), completed(SUMMARY)];
    fixture.viber.report(&compaction.task_id, 1, 3, events).await;
    let work = fixture.viber.submitted().await;
    assert_eq!(json!(work.task_id), waits["id"]);
    assert!(sums_up(&work, SUMMARY) && !has(&work, 0) && has(&work, 8));
    end(&mut fixture, &work, "Done.").await;
    let hurry = fixture.viber.submitted().await;
    assert!(hurry.compact.is_none() && hurry.goal == "Hurry");
    end(&mut fixture, &hurry, "Done.").await;

    // One that fails changes nothing, holds up nothing, and is not tried again before something was done.
    let (mut n, mut submit) = (20, next(&mut fixture, &asked(20)).await);
    while submit.compact.is_none() {
        end(&mut fixture, &submit, &answer(n)).await;
        n += 1;
        assert!(n < 30, "it is full at some time");
        submit = next(&mut fixture, &asked(n)).await;
    }
    let events = vec![accepted(), started(), failed("The summary was refused twice. Nothing was changed.")];
    fixture.viber.report(&submit.task_id, 1, 1, events).await;
    let work = fixture.viber.submitted().await;
    assert!(work.compact.is_none() && work.goal == asked(n) && sums_up(&work, SUMMARY));
    end(&mut fixture, &work, &answer(n)).await;

    // Whoever does not want it, does without.
    let never = json!({ "compactAt": 0 });
    fixture.operator.patch(&format!("/api/v1/sessions/{session}"), &never).await.expect(200);
    for n in n + 1..n + 4 {
        let submit = next(&mut fixture, &asked(n)).await;
        assert!(submit.compact.is_none());
        end(&mut fixture, &submit, &answer(n)).await;
    }
    fixture.board.assert_invariants().await;
}

async fn what_cannot_be_compacted_says_why(engine: Engine) {
    let mut fixture = long(engine, 2).await;
    let nothing = verb(&fixture, "compact", &json!({})).await.expect(200).json();
    assert_eq!((&nothing["tokensBefore"], nothing.get("messageId")), (&nothing["tokensAfter"], None), "{nothing}");
    let owner = fixture.owner();
    let form = owner.form(&format!("/t/{HOME}/sessions/{}/compact", fixture.session()), &[("instructions", "")]);
    let said = owner.send(form.header("hx-request", "true")).await.expect(409).body;
    assert!(said.contains("Nothing to do") && said.contains("nothing to compact yet"), "{said}");
    assert!(!said.contains("Conflict with"), "a click that asks for too much is no conflict: {said}");
    for bad in [json!({ "keep": 0 }), json!({ "instructions": "x".repeat(5_000) })] {
        verb(&fixture, "compact", &bad).await.expect(422);
    }
    let empty = json!({ "viberId": fixture.viber_id });
    let empty = fixture.operator.post("/api/v1/sessions", &empty).await.expect(201).json();
    let path = format!("/api/v1/sessions/{}/compact", empty["id"].as_str().expect("an id"));
    assert_eq!(fixture.operator.post(&path, &json!({})).await.expect(409).json()["code"], "empty");
    let session = format!("/api/v1/sessions/{}", fixture.session());
    fixture.operator.patch(&session, &json!({ "archived": true })).await.expect(200);
    assert_eq!(verb(&fixture, "compact", &json!({})).await.expect(409).json()["code"], "archived");
    fixture.operator.patch(&session, &json!({ "archived": false })).await.expect(200);
    let (stranger, viewer) = (
        fixture.board.operator("elsewhere", "eve@example.org", "owner").await,
        fixture.board.token(HOME, "viewer").await,
    );
    for verb in ["compact", "uncompact", "flush", "reset"] {
        stranger.post(&format!("{session}/{verb}"), &json!({})).await.expect(404);
        viewer.post(&format!("{session}/{verb}"), &json!({})).await.expect(403);
    }
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Queue];
    fixture.viber.connect().await;
    assert_eq!(verb(&fixture, "compact", &json!({})).await.expect(422).json()["code"], "no_compact");
    fixture.board.assert_invariants().await;
}

async fn what_a_viber_says_of_a_summary_is_not_believed(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let before = told(&fixture).await["next"].clone();
    let long = "rain ".repeat(13_500);
    for (verb, said) in [("compact", ""), ("compact", long.as_str()), ("reset", ""), ("reset", long.as_str())] {
        let (answered, _) = asks(&mut fixture, verb, &json!({}), said).await;
        assert_eq!(answered.expect(409).json()["code"], "went_on", "{verb} {}", said.len());
        assert_eq!(told(&fixture).await["next"], before);
    }
    let strange = format!("{SUMMARY}\u{0}<script>pwn()</script>");
    let (answered, _) = asks(&mut fixture, "compact", &json!({}), &strange).await;
    let summary = answered.expect(200).json()["summary"].as_str().expect("a summary").to_owned();
    assert!(summary.starts_with(SUMMARY) && !summary.contains('\0'), "{summary:?}");
    let page = format!("/t/{HOME}/sessions/{}?pane=context", fixture.session());
    let html = fixture.owner().page(&page).await.expect(200).body;
    assert!(html.contains("&#60;script&#62;pwn") && !html.contains("<script>pwn"));
    // A draft of what is left out already is applied as well.
    let (drafted, _) = asks(&mut fixture, "compact", &json!({ "preview": true, "keep": 1 }), SUMMARY).await;
    let basis = drafted.expect(200).json()["basis"].clone();
    verb(&fixture, "compact", &json!({ "summary": "- Rain.", "basis": basis })).await.expect(200);
    let share = |percent: u64| json!({ "compactAt": percent });
    let session = format!("/api/v1/sessions/{}", fixture.session());
    for (percent, status) in [(30, 200), (70, 200), (29, 422), (71, 422)] {
        fixture.operator.patch(&session, &share(percent)).await.expect(status);
    }
    fixture.board.assert_invariants().await;
}

async fn notes_are_taken_once_and_a_new_session_goes_on(engine: Engine) {
    let mut fixture = long(engine, 3).await;
    let (noted, submit) = asks(&mut fixture, "flush", &json!({}), "2 notes for MEMORY.md.").await;
    assert_eq!(noted.expect(200).json()["text"], "2 notes for MEMORY.md.");
    let request = submit.compact.expect("a flush");
    assert!(!request.summary && request.notes);
    let again = verb(&fixture, "flush", &json!({})).await.expect(200).json();
    assert_eq!(again, json!({ "text": null, "taskId": null }), "everything was noted");
    work(&mut fixture, 3).await;

    let (begun, submit) = asks(&mut fixture, "reset", &json!({ "carry": [] }), SUMMARY).await;
    let begun = begun.expect(201).json();
    let told = carried(&submit);
    let mark = told.find("Notes were taken of everything before this line").expect("a mark");
    assert!(told.find("Answer 2").expect("noted") < mark && mark < told.find("Answer 3").expect("not noted"));
    let session = begun["sessionId"].as_str().expect("a session").to_owned();
    assert_ne!(session, fixture.session());
    fixture.submit_with("Go on there", json!({ "sessionId": session })).await;
    let first = fixture.viber.submitted().await;
    let marked = protocol::context::marked_summary(SUMMARY);
    assert_eq!(carried(&first), format!("{marked}\nThe conversation goes on from here."));
    let page = |id: &str| format!("/t/{HOME}/sessions/{id}?pane=context");
    let old = fixture.owner().page(&page(fixture.session())).await.expect(200).body;
    assert!(old.contains("It goes on in") && old.contains(&session), "links lead both ways");
    let new = fixture.owner().page(&page(&session)).await.expect(200).body;
    assert!(new.contains("This session goes on from") && new.contains(fixture.session()));
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_summary_takes_the_place_of_older_turns_and_is_undone,
    a_draft_changes_nothing_until_it_is_applied,
    a_session_that_is_full_is_compacted_before_its_next_task,
    what_cannot_be_compacted_says_why,
    what_a_viber_says_of_a_summary_is_not_believed,
    notes_are_taken_once_and_a_new_session_goes_on,
    a_team_says_when_its_conversations_are_compacted,
);

async fn a_team_says_when_its_conversations_are_compacted(engine: Engine) {
    let fixture = long(engine, 2).await;
    let page = "/t/home/settings/context";
    let at = async || told(&fixture).await["compactAt"].clone();
    assert_eq!(at().await, 70);
    fixture.owner().post_form(page, &[("compact_at", "0")]).await.expect(303);
    assert_eq!(at().await, 0);
    let session = format!("/api/v1/sessions/{}", fixture.session());
    let own = async |change: Value| {
        let changed = fixture.operator.patch(&session, &change).await.expect(200);
        changed.json()["compactAt"].clone()
    };
    assert_eq!(own(json!({ "compactAt": 40 })).await, 40);
    assert_eq!(at().await, 40, "a session says otherwise");
    assert_eq!(own(json!({ "pinned": true })).await, 40, "what is absent keeps its value");
    assert_eq!(
        (own(json!({ "compactAt": null })).await, at().await),
        (Value::Null, json!(0)),
        "as the team says again"
    );
    assert_eq!(own(json!({ "compactAt": 30 })).await, 30);
    let tab = format!("/t/home/sessions/{}?pane=context", fixture.session());
    let tab = fixture.owner().get(&tab).await.expect(200).body;
    assert!(tab.contains(r#"<option value="30" selected>"#), "{tab}");
    for bad in ["20", "71", "x", "-1"] {
        let status = fixture.owner().post_form(page, &[("compact_at", bad)]).await.status;
        assert!((400..500).contains(&status), "{bad}: {status}");
    }
    let shown = fixture.owner().get("/t/home/settings").await.expect(200).body;
    assert!(shown.contains(r#"<option value="0" selected>never</option>"#), "{shown}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_drafts_edits_applies_and_undoes() {
    for scripts in [Scripts::On, Scripts::Off] {
        let mut fixture = long(Engine::Sqlite, 9).await;
        let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        browser.go(&format!("{page}?pane=context")).await;
        browser.click("#compact button[name=preview]").await;
        let submit = fixture.viber.submitted().await;
        let hostile = format!("{SUMMARY}\n- </textarea><script>pwn()</script>");
        end(&mut fixture, &submit, &hostile).await;
        browser.go(&format!("{page}?pane=context")).await;
        browser.sees("#compact", "A draft, nothing has changed yet").await;
        browser.sees("#entries", "The draft of a summary, not applied").await;
        browser.click("#compact form:has(#summary) button").await;
        browser.sees("#compact", "A summary stands for").await;
        browser.go(&format!("{page}?pane=context")).await;
        browser.sees("#entries", "Older turns are sent as a summary").await;
        browser.click("#compact button[name=task]").await;
        browser.find("#compact button[name=at_once]").await;
        browser.go(&page).await;
        browser.sees("#entries", "A summary that was undone").await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_commands_and_begins_anew() {
    let mut fixture = long(Engine::Sqlite, 9).await;
    let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        browser.go(&page).await;
        browser.fill("#content", "/con").await;
        if scripts == Scripts::On {
            browser.sees("#slash li[aria-selected=true]", "Shows what fills the model's window").await;
            browser.press(&["\u{e004}"]).await;
        } else {
            browser.fill("#content", "/context").await;
        }
        browser.click("#composer button.primary").await;
        browser.find("#compact").await;
        browser.fill("#content", "/compact Keep the names").await;
        browser.click("#composer button.primary").await;
        let submit = fixture.viber.submitted().await;
        let asked = submit.compact.clone().expect("a compaction");
        assert_eq!(asked.instructions.as_deref(), Some("Keep the names"));
        end(&mut fixture, &submit, SUMMARY).await;
        verb(&fixture, "uncompact", &json!({})).await.expect(200);
        browser.go(&format!("{page}?pane=context")).await;
        if scripts == Scripts::On {
            browser.click("#compact .flush-form button").await;
            let submit = fixture.viber.submitted().await;
            end(&mut fixture, &submit, "Nothing to note.").await;
            browser.go(&format!("{page}?pane=context")).await;
        }
        browser.click("#compact details:has(input[name=plan]) > summary").await;
        browser.click("#compact form:has(input[name=plan]) button").await;
        let submit = fixture.viber.submitted().await;
        end(&mut fixture, &submit, SUMMARY).await;
        // A page that stays there meanwhile goes to the new session.
        if scripts == Scripts::On {
            browser.sees("#goes-on-from", "This session goes on from").await;
        }
        browser.go(&format!("{page}?pane=context")).await;
        browser.sees("#pane", "It goes on in").await;
        browser.sees("#entries", "Goes on in").await;
        // What cannot be done is said beside what was written.
        browser.fill("#content", "/flush").await;
        browser.click("#composer button.primary").await;
        browser.sees("#composer-error", "noted before").await;
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_real_viber_goes_on_with_its_own_summary() {
    let turns = (0..4).map(|n| Reply::text(&answer(n)));
    let rest = [Reply::text(SUMMARY), Reply::text("It rained.")];
    let fixture = Fixture::on(Engine::Sqlite).scripted_model(turns.chain(rest)).with_viber().await;
    let first = fixture.submit(&asked(0)).await;
    let session = first["sessionId"].as_str().expect("a session").to_owned();
    fixture.operator.task_in(first["id"].as_str().expect("an id"), "completed").await;
    for n in 1..4 {
        let task = fixture.submit_with(&asked(n), json!({ "sessionId": session })).await;
        fixture.operator.task_in(task["id"].as_str().expect("an id"), "completed").await;
    }
    let compact = json!({ "keep": 2 });
    let done = fixture.operator.post(&format!("/api/v1/sessions/{session}/compact"), &compact).await;
    assert_eq!(done.expect(200).json()["summary"], json!(SUMMARY));
    let task = fixture.submit_with("What was it about?", json!({ "sessionId": session })).await;
    fixture.operator.task_in(task["id"].as_str().expect("an id"), "completed").await;
    let requests = fixture.llm.requests();
    assert_eq!(requests.len(), 6);
    assert!(requests[4].body.get("tools").is_none(), "no tools for a summary");
    let sent = requests[5].body["messages"].to_string();
    // The memory may have the beginning of an old answer, as of any session.
    assert!(sent.contains("about rain") && !sent.contains(&answer(0)) && sent.contains(&answer(3)));
    fixture.board.assert_invariants().await;
}
