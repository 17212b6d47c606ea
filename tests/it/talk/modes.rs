//! What Enter does while a task runs: everybody's own choice, by session and everywhere; and what lets a held task go on.

use board_tests::{Browser, Person, browser::Scripts};
use protocol::Command;

use super::*;

crate::on_both_databases!(everybody_chooses_what_enter_does, what_is_said_lets_a_held_task_go_on);

const CAN: [Capability; 3] = [Capability::Steer, Capability::Queue, Capability::Pause];

/// What Enter does in a session.
async fn usual(who: &Person, session: &str) -> String {
    let page = who.get(&format!("/t/home/sessions/{session}")).await.expect(200).body;
    let (_, from) = page.split_once("name=\"usual_mode\" value=\"").expect("a task can be told");
    from.split_once('"').expect("its end").0.to_owned()
}

async fn everybody_chooses_what_enter_does(engine: Engine) {
    let (mut fixture, task, _) = talking(engine).await;
    let other = fixture.board.operator("home", "bo@example.org", "operator").await;
    let session = id(&task, "sessionId").to_owned();
    let viber = fixture.viber_id.clone();
    let second = id(&fixture.operator.submit(&viber, "Another").await, "sessionId").to_owned();
    fixture.viber.submitted().await;
    let choose = |session: &str| format!("/t/home/sessions/{session}/message-mode");
    assert_eq!(usual(fixture.owner(), &session).await, "followup");
    fixture.owner().post_form(&choose(&session), &[("enter", "steer")]).await.expect(303);
    assert_eq!(usual(fixture.owner(), &session).await, "steer");
    assert_eq!(usual(fixture.owner(), &second).await, "followup", "in that session alone");
    assert_eq!(usual(&other, &session).await, "followup", "for nobody else");
    fixture.owner().post_form(&choose(&second), &[("enter", "collect"), ("everywhere", "yes")]).await.expect(303);
    assert_eq!(usual(fixture.owner(), &second).await, "collect");
    assert_eq!(usual(fixture.owner(), &session).await, "steer", "what was chosen for one stays");
    fixture.owner().post_form(&choose(&session), &[("enter", "collect"), ("everywhere", "yes")]).await.expect(303);
    assert_eq!(usual(fixture.owner(), &session).await, "collect");
    fixture.owner().post_form(&choose(&session), &[("enter", "shout")]).await.expect(422);

    // What the form says Enter does counts where no button says otherwise.
    let say = format!("/t/home/sessions/{session}/messages");
    let words = [("content", "as always"), ("usual_mode", "collect")];
    fixture.owner().post_form(&say, &words).await.expect(303);
    assert_eq!(fixture.viber.told().await.injection_mode, InjectionPoint::Collect);
    let words = [("content", "now"), ("usual_mode", "collect"), ("mode", "steer")];
    fixture.owner().post_form(&say, &words).await.expect(303);
    assert_eq!(fixture.viber.told().await.injection_mode, InjectionPoint::Steer);
}

async fn what_is_said_lets_a_held_task_go_on(engine: Engine) {
    let (mut fixture, task, submit) = talking_with(engine, CAN.to_vec()).await;
    let paused = json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "paused" } });
    fixture.viber.report(&submit.task_id, 1, 4, vec![progress(&paused)]).await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    assert!(fixture.owner().get(&session).await.expect(200).body.contains("Send and resume"));
    let words = [("content", "go on like this"), ("usual_mode", "collect"), ("resume", "yes")];
    fixture.owner().post_form(&format!("{session}/messages"), &words).await.expect(303);
    let told = fixture.viber.told().await;
    assert_eq!((told.content.as_str(), told.injection_mode), ("go on like this", InjectionPoint::Collect));
    let resumes = |command: Command| {
        assert!(matches!(&command, Command::Resume { task_id, .. } if *task_id == submit.task_id), "{command:?}");
    };
    resumes(fixture.viber.command().await);

    let body = json!({ "content": "and that", "resume": true });
    fixture.operator.post(&format!("/api/v1/tasks/{}/messages", submit.task_id), &body).await.expect(202);
    assert_eq!(fixture.viber.told().await.content, "and that");
    resumes(fixture.viber.command().await);
    // What becomes the next task lets the one before it go on as well.
    let long = json!({ "content": "x".repeat(70_000), "resume": true });
    fixture.operator.post(&format!("/api/v1/tasks/{}/messages", submit.task_id), &long).await.expect(201);
    resumes(fixture.viber.command().await);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_of_telling_has_a_key_and_a_place_in_the_menu() {
    let (mut fixture, task, _) = talking(Engine::Sqlite).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, id(&task, "sessionId"));
    browser.go(&page).await;
    browser.find("body[data-live=on]").await;
    let press = "
        const [keys, words] = arguments[0];
        const area = document.querySelector('#content');
        area.focus();
        area.value = words;
        area.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true, ...keys }));";
    use InjectionPoint::{Collect, Followup, Steer};
    let all = [(json!({}), Followup), (json!({ "altKey": true }), Collect), (json!({ "ctrlKey": true }), Steer)];
    for (keys, mode) in all {
        browser.run(press, json!([keys, mode.as_str()])).await;
        let told = fixture.viber.told().await;
        assert_eq!((told.content.as_str(), told.injection_mode), (mode.as_str(), mode));
        eventually("the composer is empty", || async {
            let empty = "return document.querySelector('#content').value === ''";
            (browser.run(empty, Value::Null).await == json!(true)).then_some(())
        })
        .await;
    }
    // Enter steers from now on, and what it did before has the free key.
    browser.click(".ways > summary").await;
    browser.run("document.querySelector('#enter').value = 'steer'", Value::Null).await;
    browser.click(".enter-choice button").await;
    browser.sees("#composer button.primary", "Steer").await;
    browser.find("body[data-live=on]").await;
    for (keys, mode) in
        [(json!({}), Steer), (json!({ "ctrlKey": true }), Followup), (json!({ "altKey": true }), Collect)]
    {
        browser.run(press, json!([keys, mode.as_str()])).await;
        assert_eq!(fixture.viber.told().await.injection_mode, mode);
        eventually("the composer is empty", || async {
            let empty = "return document.querySelector('#content').value === ''";
            (browser.run(empty, Value::Null).await == json!(true)).then_some(())
        })
        .await;
    }
    assert_eq!(browser.console_errors().await, Vec::<String>::new());

    // Without scripts the menu and its buttons do the same.
    let plain = Browser::open(Scripts::Off).await;
    plain.sign_in(fixture.owner()).await;
    plain.go(&page).await;
    plain.fill("#content", "collected").await;
    plain.click(".ways > summary").await;
    plain.click(".ways button[value=collect]").await;
    let told = fixture.viber.told().await;
    assert_eq!((told.content.as_str(), told.injection_mode), ("collected", Collect));
}
