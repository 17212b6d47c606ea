//! The order in which messages are told, and how: by the buttons of the strip, by dragging, and back into the composer.

use board_tests::{Browser, browser::Scripts};

use super::*;

crate::on_both_databases!(
    messages_go_up_down_and_to_the_end_and_change_their_mode,
    what_is_held_goes_back_to_its_author
);

fn form(task: &Value, message: &protocol::TaskMessage) -> String {
    format!("/t/home/tasks/{}/messages/{}", id(task, "id"), message.message_id)
}

/// A task to which its owner said three things.
async fn with_three(engine: Engine) -> (Fixture<FakeDaemon>, Value, TaskSubmit, Vec<protocol::TaskMessage>) {
    let (mut fixture, task, submit) = talking(engine).await;
    let path = format!("/t/home/sessions/{}/messages", id(&task, "sessionId"));
    let mut told = Vec::new();
    for content in ["one", "two", "three"] {
        fixture.owner().post_form(&path, &[("content", content), ("mode", "followup")]).await.expect(303);
        told.push(fixture.viber.told().await);
    }
    (fixture, task, submit, told)
}

/// What is said, in the order in which it is told.
async fn order(fixture: &Fixture<FakeDaemon>, task: &Value) -> String {
    let all = said(fixture, task).await;
    let words: Vec<&str> = all.iter().filter_map(|message| message["content"].as_str()).collect();
    words.join(" ")
}

async fn messages_go_up_down_and_to_the_end_and_change_their_mode(engine: Engine) {
    let (mut fixture, task, _, told) = with_three(engine).await;
    let [one, two, three] = &told[..] else { panic!("three") };
    let ids: Vec<&str> = told.iter().map(|message| message.message_id.as_str()).collect();
    fixture.owner().post_form(&form(&task, one), &[("verb", "down"), ("below", ids[1])]).await.expect(303);
    assert_eq!(fixture.viber.told().await.message_id, two.message_id, "the one below goes up");
    assert_eq!(order(&fixture, &task).await, "two one three");
    fixture.owner().post_form(&form(&task, three), &[("verb", "up"), ("before", ids[1])]).await.expect(303);
    fixture.viber.told().await;
    assert_eq!(order(&fixture, &task).await, "three two one");
    fixture.owner().post_form(&form(&task, three), &[("verb", "last")]).await.expect(303);
    fixture.viber.told().await;
    assert_eq!(order(&fixture, &task).await, "two one three");
    for (verb, mode) in [("collect", InjectionPoint::Collect), ("steer", InjectionPoint::Steer)] {
        fixture.owner().post_form(&form(&task, one), &[("verb", verb)]).await.expect(303);
        let told = fixture.viber.told().await;
        assert_eq!((&told.message_id, told.injection_mode), (&one.message_id, mode));
    }
    fixture.owner().post_form(&form(&task, one), &[("verb", "followup")]).await.expect(303);
    assert_eq!(fixture.viber.told().await.injection_mode, InjectionPoint::Followup);

    // The strip offers what can be done with each: nothing goes above the first or below the last.
    let page = fixture.owner().get(&format!("/t/home/sessions/{}", id(&task, "sessionId"))).await.expect(200).body;
    let count = |what: &str| page.matches(what).count();
    assert_eq!((count("value=\"up\""), count("value=\"down\""), count("draggable=\"true\"")), (2, 2, 3));
    assert_eq!((count("aria-label=\"Collect: "), count("aria-label=\"Next: ")), (3, 0));
    fixture.board.assert_invariants().await;
}

async fn what_is_held_goes_back_to_its_author(engine: Engine) {
    let (mut fixture, task, submit, told) = with_three(engine).await;
    let other = fixture.board.operator("home", "bo@example.org", "operator").await;
    let (session, of) = (format!("/t/home/sessions/{}", id(&task, "sessionId")), form(&task, &told[1]));
    let early = fixture.owner().post_form(&of, &[("verb", "back")]).await.expect(409).body;
    assert!(early.contains("the message is not held"), "{early}");
    fixture.viber.report(&submit.task_id, 1, 4, vec![failed()]).await;
    assert!(!other.get(&session).await.expect(200).body.contains("Back to composer"), "it is not theirs");
    let theirs = other.post_form(&of, &[("verb", "back")]).await.expect(409).body;
    assert!(theirs.contains("its author") && theirs.contains("composer alone"), "{theirs}");
    let answer = fixture.owner().post_form(&of, &[("verb", "back")]).await.expect(303);
    let place = answer.header("location").to_owned();
    let page = fixture.owner().get(place.split('#').next().expect("a page")).await.expect(200).body;
    assert!(page.contains(">two</textarea>"), "it stands in the composer again");
    let all = said(&fixture, &task).await;
    let states: Vec<&str> = all.iter().filter_map(|message| message["state"].as_str()).collect();
    assert_eq!(states, ["held", "discarded", "held"]);
    // Whoever lost the answer asks again, and finds the words.
    let again = fixture.owner().post_form(&of, &[("verb", "back")]).await.expect(303);
    assert_eq!(again.header("location"), place);
    let theirs = other.get(place.split('#').next().expect("a page")).await.expect(200).body;
    assert!(!theirs.contains(">two</textarea>"), "in nobody else's composer");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_dragged_to_another_place() {
    const DRAG: &str = "
        const [from, to, behind] = arguments[0];
        const row = (id) => document.querySelector(`#queue li[data-message='${id}']`);
        const [source, target] = [row(from), row(to)];
        const dataTransfer = new DataTransfer();
        const box = target.getBoundingClientRect();
        const clientY = behind ? box.bottom - 1 : box.top + 1;
        const fire = (el, name) => el.dispatchEvent(new DragEvent(name, { dataTransfer, clientY, bubbles: true, cancelable: true }));
        fire(source, 'dragstart');
        fire(target, 'dragover');
        const shown = target.dataset.over;
        fire(target, 'drop');
        fire(source, 'dragend');
        return shown";
    let (mut fixture, task, _, told) = with_three(Engine::Sqlite).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, id(&task, "sessionId"))).await;
    browser.find("body[data-live=on]").await;
    let ids: Vec<&str> = told.iter().map(|message| message.message_id.as_str()).collect();
    assert_eq!(browser.run(DRAG, json!([ids[2], ids[0], false])).await, json!("before"));
    fixture.viber.told().await;
    assert_eq!(order(&fixture, &task).await, "three one two");
    eventually("the strip shows it", || async {
        let first = "return document.querySelector('#queue li').dataset.message";
        (browser.run(first, Value::Null).await == json!(ids[2])).then_some(())
    })
    .await;
    assert_eq!(browser.run(DRAG, json!([ids[2], ids[1], true])).await, json!("after"));
    fixture.viber.told().await;
    assert_eq!(order(&fixture, &task).await, "one two three");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}
