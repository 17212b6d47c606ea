//! The strip above the composer, in a browser.

use board_tests::{Browser, browser::Scripts};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_goes_on_beside_a_message_that_is_being_changed() {
    let (mut fixture, task, submit) = talking(Engine::Sqlite).await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let words = [("content", "first words"), ("mode", "followup")];
    fixture.owner().post_form(&format!("{session}/messages"), &words).await.expect(303);
    let told = fixture.viber.told().await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}{session}", fixture.board.url)).await;
    browser.find("body[data-live=on]").await;
    browser.click(".said-edit summary").await;
    let field = format!("#said-{}", told.message_id);
    browser.click(&field).await;
    browser.fill(&field, "second words").await;

    fixture.viber.report(&submit.task_id, 1, 4, vec![failed()]).await;
    browser.find("#task-state[data-task-state=error]").await;
    let typed = "const field = document.activeElement; return field.id + ' ' + field.value";
    assert_eq!(browser.run(typed, Value::Null).await, json!(format!("said-{} second words", told.message_id)));
    // All of it is shown when the field is left.
    browser.run("document.activeElement.blur(); return true", Value::Null).await;
    browser.sees("#queue", "Held: its task is over").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}
