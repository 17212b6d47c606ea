//! A question says what compacting up to its turn would free, and has a button for that.

use board_tests::{Browser, Engine, board::HOME, browser::Scripts};
use serde_json::{Value, json};

use super::compact::{SUMMARY, asks, end, has, long, told};

/// What is told of the messages of one side, newest first.
fn messages<'a>(context: &'a Value, role: &str) -> Vec<&'a Value> {
    let history = context["history"].as_array().expect("a history");
    history.iter().filter(|message| message["role"] == role).collect()
}

async fn a_question_says_what_compacting_up_to_it_frees(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let now = told(&fixture).await;
    let questions = messages(&now, "user");
    let frees = |n: usize| questions[n]["compactToHere"]["frees"].as_u64().expect("tokens");
    assert_eq!(questions[2]["compactToHere"]["keep"], json!(2), "{now:#}");
    assert!(frees(1) > frees(2), "{now:#}");
    let oldest = *questions.last().expect("a question");
    assert_eq!(oldest["share"], "left_out");
    for (other, why) in [(questions[0], "the newest turn stands"), (oldest, "that would free nothing")] {
        assert_eq!(other.get("compactToHere"), None, "{why}");
    }
    assert!(messages(&now, "assistant").iter().all(|answer| answer.get("compactToHere").is_none()), "{now:#}");

    let (drafted, submit) = asks(&mut fixture, "compact", &json!({ "preview": true, "keep": 2 }), SUMMARY).await;
    assert!(has(&submit, 6) && !has(&submit, 7), "the turns after it stand");
    let draft = drafted.expect(200).json();
    let tokens = |name: &str| draft[name].as_u64().expect("tokens");
    assert!(tokens("tokensBefore") - tokens("tokensAfter") >= frees(2), "at least what was said: {draft}");
    fixture.board.assert_invariants().await;
}

async fn its_button_drafts_that_compaction(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let session = fixture.session().to_owned();
    let tab = format!("/t/{HOME}/sessions/{session}?pane=context");
    let html = fixture.owner().page(&tab).await.expect(200).body;
    assert!(html.contains(r#"name="keep" value="2""#) && html.contains("Compact to here"), "{html}");
    assert!(!html.contains(r#"name="keep" value="0""#), "{html}");

    let page = format!("/t/{HOME}/sessions/{session}/compact");
    let form = [("preview", "yes"), ("keep", "2")];
    fixture.owner().post_form(&page, &form).await.expect(303);
    let submit = fixture.viber.submitted().await;
    assert!(has(&submit, 6) && !has(&submit, 7), "the turns after it stand");
    // Two at once are one, unless they let other turns stand.
    fixture.owner().post_form(&page, &form).await.expect(303);
    let compact = format!("/api/v1/sessions/{session}/compact");
    for other in [json!({ "preview": true, "keep": 3 }), json!({ "preview": true })] {
        let refused = fixture.operator.post(&compact, &other).await.expect(409);
        assert_eq!(refused.code(), "running", "{other}");
    }
    let html = fixture.owner().page(&tab).await.expect(200).body;
    assert!(!html.contains(r#"name="keep""#), "there is no button while it runs: {html}");
    end(&mut fixture, &submit, SUMMARY).await;
    let html = fixture.owner().page(&tab).await.expect(200).body;
    assert!(html.contains("A draft, nothing has changed yet") && html.contains("about rain"), "{html}");
    fixture.board.assert_invariants().await;
}

on_both_databases!(a_question_says_what_compacting_up_to_it_frees, its_button_drafts_that_compaction);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_stands_above_its_form_and_takes_nothing_away() {
    let fixture = long(Engine::Sqlite, 2).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/{HOME}/sessions/{}?pane=context", fixture.board.url, fixture.session())).await;
    for _ in 0..2 {
        browser.click("#compact button[name=at_once]").await;
        browser.sees("#compact .callout[role=alert]", "There is nothing to compact yet").await;
    }
    assert_eq!(browser.count("#pane-body .callout[role=alert]").await, 1, "the newest alone");
    assert!(browser.has("#compact button[name=preview]").await && browser.has(".turns li").await);
    // A refused answer is written to the console by the browser itself.
    let errors = browser.console_errors().await;
    assert!(errors.iter().all(|error| error.contains("409")), "{errors:?}");
    fixture.board.assert_invariants().await;
}
