//! What people pin stays in a session's requests, however old it is: by call and by message, with its limit and its audit.

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    board::HOME,
    browser::Scripts,
    fake_daemon::{accepted, completed, started, stopped, text},
};
use protocol::{Command, TaskSubmit, TurnPart};
use serde_json::{Value, json};

use super::{
    call,
    compact::{failed, long, told, work},
};

/// Turns that keep their results without a pin.
const KEPT_TURNS: usize = 6;
/// Pins that a session may have.
const MAX_PINS: usize = 64;

/// A session whose first answer read two long files and whose other turns are newer than it by all that are kept.
async fn aged(engine: Engine) -> Fixture<FakeDaemon> {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Read both").await;
    let mut events = Vec::new();
    for name in ["a", "b"] {
        let whole = json!(format!("{name} begins\n{}{name} ends\n", "a line\n".repeat(200)));
        events.extend(call(name, "read_file", &json!({ "path": format!("{name}.txt") }), &whole));
    }
    events.extend([text("Read."), completed("Read.")]);
    fixture.tell(events).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    for n in 0..KEPT_TURNS {
        let submit = next(&mut fixture, &format!("Turn {n}")).await;
        let events = vec![accepted(), started(), text("Yes."), completed("Yes.")];
        fixture.viber.report(&submit.task_id, 1, 1, events).await;
        fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
    }
    fixture
}

/// Presses what lies in something folded, too.
async fn press(browser: &Browser, css: &str) {
    browser.find(css).await;
    browser.run("document.querySelector(arguments[0]).click(); return true", json!(css)).await;
}

async fn next(fixture: &mut Fixture<FakeDaemon>, goal: &str) -> TaskSubmit {
    let session = fixture.session().to_owned();
    fixture.submit_with(goal, json!({ "sessionId": session })).await;
    fixture.viber.submitted().await
}

async fn stop(fixture: &mut Fixture<FakeDaemon>, submit: &TaskSubmit) {
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", submit.task_id), &json!({})).await.expect(200);
    assert!(matches!(fixture.viber.command().await, Command::Stop { .. }), "it is told");
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), stopped()]).await;
}

fn pins_of(fixture: &Fixture<FakeDaemon>) -> String {
    format!("/api/v1/sessions/{}/pins", fixture.session())
}

/// The id of the session's first answer.
async fn first_answer(fixture: &Fixture<FakeDaemon>) -> String {
    let path = format!("/api/v1/sessions/{}/messages?limit=200", fixture.session());
    let messages = fixture.operator.get(&path).await.expect(200).json();
    let messages = messages["items"].as_array().expect("messages");
    let first = messages.iter().find(|message| message["role"] == "assistant").expect("an answer");
    first["id"].as_str().expect("an id").to_owned()
}

/// Whether the results of `a` and `b` are sent whole.
fn whole(submit: &TaskSubmit) -> [bool; 2] {
    ["a", "b"].map(|name| {
        submit.messages.iter().flat_map(|turn| &turn.parts).any(|part| match part {
            TurnPart::ToolCall { call_id, result, .. } => call_id == name && result.contains(&format!("{name} ends")),
            _ => false,
        })
    })
}

async fn a_pin_keeps_what_is_old(engine: Engine) {
    let mut fixture = aged(engine).await;
    let (pins, answer) = (pins_of(&fixture), first_answer(&fixture).await);
    let plain = next(&mut fixture, "Without a pin").await;
    assert_eq!(whole(&plain), [false, false], "a line is left of each");

    let session = format!("/api/v1/sessions/{}", fixture.session());
    let active = fixture.operator.get(&session).await.expect(200).json()["activeAt"].clone();
    let by_call = json!({ "messageId": answer, "callId": "b", "pinned": true });
    for _ in 0..2 {
        let now = fixture.operator.post(&pins, &by_call).await.expect(200).json();
        assert_eq!(now["items"], json!([{ "messageId": answer, "callId": "b" }]));
    }
    assert_eq!(fixture.operator.get(&session).await.expect(200).json()["activeAt"], active, "a pin is no work");
    stop(&mut fixture, &plain).await;
    let pinned = next(&mut fixture, "With a pinned call").await;
    assert_eq!(whole(&pinned), [false, true]);

    let message = json!({ "messageId": answer, "pinned": true });
    fixture.operator.post(&pins, &message).await.expect(200);
    stop(&mut fixture, &pinned).await;
    let both = next(&mut fixture, "With a pinned message").await;
    assert_eq!(whole(&both), [true, true]);

    for call in [json!("b"), Value::Null] {
        let mut gone = json!({ "messageId": answer, "pinned": false });
        if !call.is_null() {
            gone["callId"] = call;
        }
        fixture.operator.post(&pins, &gone).await.expect(200);
    }
    assert_eq!(fixture.operator.get(&pins).await.expect(200).json()["items"], json!([]));
    let admin = fixture.board.token(HOME, "admin").await;
    let audit = admin.get("/api/v1/audit?limit=200").await.expect(200).json();
    let count =
        |verb: &str| audit["items"].as_array().expect("entries").iter().filter(|entry| entry["action"] == verb).count();
    assert_eq!((count("context.pin"), count("context.unpin")), (2, 2), "what changes nothing is no entry");
    fixture.board.assert_invariants().await;
}

async fn pins_are_of_this_session_alone_and_bounded(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Look at all").await;
    let mut events = Vec::new();
    for n in 0..=MAX_PINS {
        events.extend(call(&format!("c{n}"), "read_file", &json!({ "path": "a" }), &json!("a")));
    }
    events.extend([text("Done."), completed("Done.")]);
    fixture.tell(events).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    let (pins, answer) = (pins_of(&fixture), first_answer(&fixture).await);
    let pin = |call: String| json!({ "messageId": answer, "callId": call, "pinned": true });
    for n in 0..MAX_PINS {
        fixture.operator.post(&pins, &pin(format!("c{n}"))).await.expect(200);
    }
    let refused = fixture.operator.post(&pins, &pin(format!("c{MAX_PINS}"))).await.expect(409).json();
    assert_eq!(refused["code"], "too_many_pins", "{refused}");
    // A person is told in words, where pins can be taken away: from the conversation and beside it, with scripts and without.
    let page = format!("/t/{HOME}/sessions/{}", fixture.session());
    let (place, last) = (format!("{page}/pins"), format!("c{MAX_PINS}"));
    let sentence = format!("A session has at most {MAX_PINS} pins");
    let beside = [("message", answer.as_str()), ("pin", last.as_str())];
    let within = [beside[0], beside[1], ("at", "2")];
    let owner = fixture.owner();
    for (fields, scripts, status, header) in [
        (&beside[..], false, 303, Some("location")),
        (&within[..], false, 303, Some("location")),
        (&beside[..], true, 200, None),
        (&within[..], true, 204, Some("hx-redirect")),
    ] {
        let form = owner.form(&place, fields);
        let form = if scripts { form.header("hx-request", "true") } else { form };
        let sent = owner.send(form).await.expect(status);
        let told = match header {
            Some(header) => {
                let to = sent.headers.get(header).and_then(|to| to.to_str().ok()).expect("where it is said");
                owner.page(to).await.expect(200).body
            }
            None => sent.body,
        };
        assert!(told.contains(&sentence), "{status} {header:?}: {told}");
    }
    fixture.operator.post(&pins, &pin("c0".to_owned())).await.expect(200);
    let kept = fixture.operator.get(&pins).await.expect(200).json();
    assert_eq!(kept["items"].as_array().map(Vec::len), Some(MAX_PINS));

    fixture.operator.post(&pins, &pin("' OR 1=1".to_owned())).await.expect(404);
    fixture.operator.post(&pins, &pin("\u{0}".to_owned())).await.expect(422);
    fixture.submit("Another session").await;
    let other = fixture.viber.submitted().await;
    let elsewhere = format!("/api/v1/sessions/{}/pins", other.session_id);
    fixture.operator.post(&elsewhere, &pin("c1".to_owned())).await.expect(404);
    let stranger = fixture.board.operator("elsewhere", "eve@example.org", "owner").await;
    stranger.post(&pins, &pin("c1".to_owned())).await.expect(404);
    stranger.get(&pins).await.expect(404);
    let viewer = fixture.board.token(HOME, "viewer").await;
    viewer.post(&pins, &pin("c1".to_owned())).await.expect(403);
    viewer.get(&pins).await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn what_an_answer_had_pinned_goes_when_it_is_started_over(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Look at it").await;
    let mut events = call("a", "read_file", &json!({ "path": "a" }), &json!("a begins"));
    events.extend([text("I looked."), failed("no luck")]);
    fixture.tell(events).await;
    let task = fixture.task().clone();
    fixture.operator.task_in(task.as_str(), "error").await;
    let (pins, answer) = (pins_of(&fixture), first_answer(&fixture).await);
    let question = fixture.operator.get(&format!("/api/v1/tasks/{task}")).await.expect(200).json()["messageId"].clone();
    let whole = json!({ "messageId": answer, "pinned": true });
    let called = json!({ "messageId": answer, "callId": "a", "pinned": true });
    for pin in [&json!({ "messageId": question, "pinned": true }), &whole, &called] {
        fixture.operator.post(&pins, pin).await.expect(200);
    }
    fixture.operator.post(&format!("/api/v1/tasks/{task}/retry"), &json!({})).await.expect(200);
    let kept = fixture.operator.get(&pins).await.expect(200).json()["items"].clone();
    assert_eq!(kept, json!([{ "messageId": question }]), "what was asked is asked again");
    fixture.operator.post(&pins, &whole).await.expect(404);
    let again = json!({ "messageId": answer, "pinned": false });
    fixture.operator.post(&pins, &again).await.expect(200);
    let admin = fixture.board.token(HOME, "admin").await;
    let audit = admin.get("/api/v1/audit?limit=200").await.expect(200).json();
    let entries = audit["items"].as_array().expect("entries");
    let unpinned: Vec<&Value> = entries.iter().filter(|entry| entry["action"] == "context.unpin").collect();
    assert!(unpinned.len() == 1 && unpinned[0].to_string().contains(", 2 of the answer"), "{unpinned:?}");
    fixture.board.assert_invariants().await;
}

async fn what_is_left_out_is_said_where_it_is_missing(engine: Engine) {
    let mut fixture = long(engine, 1).await;
    for n in 1..9 {
        let now = told(&fixture).await;
        let oldest = now["history"].as_array().and_then(|history| history.last()).expect("a message");
        let more = now["historyBeyond"]["more"] == true;
        assert!(oldest["seq"] != 1 || !more, "nothing is older than the first question: {now:#}");
        work(&mut fixture, n).await;
    }
    let tab = format!("/t/{HOME}/sessions/{}?pane=context", fixture.session());
    let html = fixture.owner().page(&tab).await.expect(200).body;
    assert!(html.contains("Still older messages are left out.") && !html.contains(">Question 1<"), "{html}");

    let path = format!("/api/v1/sessions/{}/messages?limit=200", fixture.session());
    let messages = fixture.operator.get(&path).await.expect(200).json();
    let first = messages["items"].as_array().expect("messages").iter().find(|message| message["seq"] == 1);
    let pin = json!({ "messageId": first.expect("the first question")["id"], "pinned": true });
    fixture.operator.post(&pins_of(&fixture), &pin).await.expect(200);
    let html = fixture.owner().page(&tab).await.expect(200).body;
    let (line, question) = (html.find("left out, but for what is pinned"), html.find(">Question 1<"));
    assert!(line.is_some() && line < question && !html.contains("Still older messages"), "{line:?} {question:?}");
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    what_is_left_out_is_said_where_it_is_missing,
    a_pin_keeps_what_is_old,
    pins_are_of_this_session_alone_and_bounded,
    what_an_answer_had_pinned_goes_when_it_is_started_over,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_pinned_beside_the_conversation() {
    let fixture = aged(Engine::Sqlite).await;
    let page = format!("{}/t/{HOME}/sessions/{}?pane=context", fixture.board.url, fixture.session());
    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        browser.go(&page).await;
        browser.click("button[aria-label='Pin question 1']").await;
        browser.sees("#pane .turns", "pinned, whole").await;
        let is_in_line = "const meta = document.querySelector('.turns .meta:has(.icon)'); \
                          const height = (it) => it.getBoundingClientRect().height; \
                          return height(meta) < 2 * height(meta.querySelector('.icon'))";
        assert_eq!(browser.run(is_in_line, Value::Null).await, json!(true), "the icon stands before its word");
        browser.click("button[aria-label='Unpin question 1']").await;
        browser.find("button[aria-label='Pin question 1']").await;

        // The same where it stands: a message, and one of its results.
        press(&browser, "#m-1 form button").await;
        browser.find("#m-1 .delivery + .delivery").await;
        press(&browser, "#m-1 form button[aria-pressed=true]").await;
        browser.find("#m-1:not(:has(.delivery + .delivery)) form button[aria-pressed=false]").await;
        press(&browser, "#m-2 [data-call=b] button[name=pin]").await;
        browser.find("#m-2 [data-call=b] button[aria-pressed=true]").await;
        assert!(!browser.has("#m-2 [data-call=a] button[aria-pressed=true]").await);
        let kept = fixture.operator.get(&pins_of(&fixture)).await.expect(200).json()["items"].clone();
        assert_eq!(kept, json!([{ "messageId": first_answer(&fixture).await, "callId": "b" }]));
        press(&browser, "#m-2 [data-call=b] button[name=unpin]").await;
        browser.find("#m-2 [data-call=b] button[aria-pressed=false]").await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
    }
    // Who may not pin is shown no button, but what is pinned.
    fixture
        .operator
        .post(&pins_of(&fixture), &json!({ "messageId": first_answer(&fixture).await, "pinned": true }))
        .await
        .expect(200);
    let viewer = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let html = viewer.page(&format!("/t/{HOME}/sessions/{}", fixture.session())).await.expect(200).body;
    let marked = html.matches("Pinned</span>").count();
    assert!(marked == 1 && !html.contains("name=\"pin\"") && !html.contains("name=\"unpin\""), "{html}");
    fixture.board.assert_invariants().await;
}
