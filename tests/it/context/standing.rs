//! What a summary stands for when tasks are queued, started over, or asked for twice; and what people see of it.

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    board::HOME,
    browser::Scripts,
    eventually,
    fake_daemon::{accepted, completed, started, text},
};
use protocol::{AgentInfo, EventBody, FromDaemon, ProviderInfo};
use serde_json::json;

use super::compact::{SUMMARY, asks, carried, end, failed, has, long, next, sums_up, told, work};

crate::on_both_databases!(
    what_is_queued_is_not_summarized,
    who_starts_over_what_a_summary_tells_has_the_turns_again,
    a_compaction_has_the_teams_limits_and_rules,
    what_differs_from_the_one_that_runs_is_refused,
    the_transcript_shows_the_summary_that_is_sent,
    a_window_that_became_smaller_is_noticed,
    a_model_that_is_asked_for_has_its_own_window,
);

/// The session's agent has this window from now on.
async fn has_window(fixture: &mut Fixture<FakeDaemon>, tokens: u64) {
    let mut state = fixture.viber.hello_frame().state;
    for agent in state.agents.iter_mut().flatten() {
        agent.context_window = Some(tokens);
    }
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let (viber, window) = (format!("/api/v1/vibers/{}", fixture.viber_id), format!("\"contextWindow\":{tokens}"));
    eventually("its window is known", async || {
        fixture.operator.get(&viber).await.expect(200).body.contains(&window).then_some(())
    })
    .await;
}

async fn a_window_that_became_smaller_is_noticed(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    has_window(&mut fixture, 400_000).await;
    let submit = next(&mut fixture, "Measure it").await;
    let report = json!({ "window": 400_000, "used": 25_000, "source": "measured", "step": 1,
        "layers": [{ "layer": "system", "tokens": 5_000 }, { "layer": "history", "tokens": 20_000 }] });
    let events = vec![accepted(), started(), super::context(&report), text("Done."), completed("Done.")];
    fixture.viber.report(&submit.task_id, 1, 1, events).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
    let large = next(&mut fixture, "Go on").await;
    assert!(large.compact.is_none() && has(&large, 0), "there is room for all of it");
    end(&mut fixture, &large, "Done.").await;

    has_window(&mut fixture, 32_768).await;
    let session = fixture.session().to_owned();
    let waits = fixture.submit_with("And on", json!({ "sessionId": session })).await;
    let compaction = fixture.viber.submitted().await;
    assert!(compaction.compact.is_some(), "it comes first: {}", compaction.goal);
    end(&mut fixture, &compaction, SUMMARY).await;
    let work = fixture.viber.submitted().await;
    assert_eq!(json!(work.task_id), waits["id"]);
    assert!(sums_up(&work, SUMMARY) && !has(&work, 0) && has(&work, 8));
    fixture.board.assert_invariants().await;
}

/// What is shown is what is sent, for the model that was chosen.
async fn a_model_that_is_asked_for_has_its_own_window(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let mut state = fixture.viber.hello_frame().state;
    let agents = state.agents.as_mut().expect("agents");
    let large = AgentInfo {
        id: "large".into(),
        model: "demo/large".into(),
        context_window: Some(400_000),
        ..agents[0].clone()
    };
    agents.push(large);
    let provider =
        ProviderInfo { id: "demo".into(), models: vec!["tour".into(), "large".into()], ..ProviderInfo::default() };
    state.providers = Some(vec![provider]);
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let viber = format!("/api/v1/vibers/{}", fixture.viber_id);
    eventually("its model is known", async || {
        fixture.operator.get(&viber).await.expect(200).body.contains("\"contextWindow\":400000").then_some(())
    })
    .await;
    let own = next(&mut fixture, "Go on").await;
    assert!(!has(&own, 0), "its agent's own model has a small window");
    end(&mut fixture, &own, "Done.").await;
    let body = json!({ "sessionId": fixture.session(), "model": "demo/large" });
    fixture.submit_with("Go on with all of it", body).await;
    let large = fixture.viber.submitted().await;
    assert!(large.model.as_deref() == Some("demo/large") && has(&large, 0), "there is room for all of it");
    end(&mut fixture, &large, "Done.").await;
    let now = told(&fixture).await;
    assert_eq!((&now["window"], &now["next"]["plan"]["reason"]), (&json!(400_000), &json!("fits")), "{now:#}");
    fixture.board.assert_invariants().await;
}

/// What is queued is no past: a summary that has to come first stands for what was said before it.
async fn what_is_queued_is_not_summarized(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let running = next(&mut fixture, "Look into it").await;
    let session = fixture.session().to_owned();
    for n in 0..4 {
        fixture.submit_with(&format!("Queued {n}"), json!({ "sessionId": session })).await;
    }
    let error = json!({ "code": "context_overflow", "message": "prompt is too long", "retryable": false });
    let too_long = EventBody::Error { error: serde_json::from_value(error).expect("an error") };
    fixture.viber.report(&running.task_id, 1, 1, vec![accepted(), started(), too_long]).await;
    let summary = fixture.viber.submitted().await;
    assert!(summary.compact.is_some(), "{}", summary.goal);
    let told = carried(&summary);
    assert!(!told.contains("Queued") && !told.contains("Look into it") && has(&summary, 0), "{told}");
    end(&mut fixture, &summary, SUMMARY).await;
    let again = fixture.viber.submitted().await;
    assert_eq!((&again.task_id, again.attempt), (&running.task_id, 2));
    assert!(sums_up(&again, SUMMARY) && !has(&again, 0), "it has the summary");
    end(&mut fixture, &again, "It was the gutter.").await;
    let first = fixture.viber.submitted().await;
    assert_eq!(first.goal, "Queued 0");
    assert!(carried(&first).contains("It was the gutter."), "nothing is lost between them");
    fixture.board.assert_invariants().await;
}

async fn who_starts_over_what_a_summary_tells_has_the_turns_again(engine: Engine) {
    let mut fixture = long(engine, 1).await;
    let mending = next(&mut fixture, "Mend it").await;
    fixture.viber.report(&mending.task_id, 1, 1, vec![accepted(), started(), failed("no luck")]).await;
    for n in 1..4 {
        work(&mut fixture, n).await;
    }
    asks(&mut fixture, "compact", &json!({ "keep": 2 }), SUMMARY).await.0.expect(200);
    let path = format!("/api/v1/tasks/{}/retry", mending.task_id);
    fixture.operator.post(&path, &json!({})).await.expect(200);
    let again = fixture.viber.submitted().await;
    end(&mut fixture, &again, "Mended.").await;
    let after = next(&mut fixture, "And now?").await;
    assert!(carried(&after).contains("Mended.") && !carried(&after).contains(SUMMARY), "{}", carried(&after));
    fixture.board.assert_invariants().await;
}

async fn a_compaction_has_the_teams_limits_and_rules(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let rules = json!({ "deny": ["remember"], "limits": { "tokens": 90_000 } });
    fixture.owner().put("/api/v1/approval-rules", &rules).await.expect(200);
    let (answered, submit) = asks(&mut fixture, "compact", &json!({}), SUMMARY).await;
    answered.expect(200);
    assert_eq!((submit.limits.tokens, submit.rules.deny), (Some(90_000), vec!["remember".to_owned()]));
    fixture.board.assert_invariants().await;
}

async fn what_differs_from_the_one_that_runs_is_refused(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let path = format!("/api/v1/sessions/{}/compact", fixture.session());
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let (draft, other) = (json!({ "preview": true }), json!({ "instructions": "Keep names" }));
    let summarizes = async {
        let submit = viber.submitted().await;
        assert_eq!(operator.post(&path, &other).await.expect(409).code(), "running");
        let events = vec![accepted(), started(), text(SUMMARY), completed(SUMMARY)];
        viber.report(&submit.task_id, 1, 1, events).await;
    };
    let (drafted, again, ()) = tokio::join!(operator.post(&path, &draft), operator.post(&path, &draft), summarizes);
    assert_eq!(drafted.expect(200).json()["basis"], again.expect(200).json()["basis"], "two of a kind are one");
    assert!(told(&fixture).await["summary"].is_null(), "a draft changes nothing");
    fixture.board.assert_invariants().await;
}

async fn the_transcript_shows_the_summary_that_is_sent(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let path = format!("/api/v1/sessions/{}/compact", fixture.session());
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let lies = async {
        let submit = viber.submitted().await;
        let events = vec![accepted(), started(), text("All is well."), completed("- The till is open.")];
        viber.report(&submit.task_id, 1, 1, events).await;
    };
    let all = json!({});
    let (answer, ()) = tokio::join!(operator.post(&path, &all), lies);
    answer.expect(200);
    let page = fixture.owner().page(&format!("/t/{HOME}/sessions/{}", fixture.session())).await.expect(200).body;
    assert!(page.contains("The till is open.") && !page.contains("All is well."), "{page}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_shows_that_an_older_compaction_was_undone() {
    let mut fixture = long(Engine::Sqlite, 9).await;
    let (compacted, _) = asks(&mut fixture, "compact", &json!({}), SUMMARY).await;
    compacted.expect(200);
    let newer = next(&mut fixture, "And now?").await;
    end(&mut fixture, &newer, "Fine.").await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.sees("#entries", "Older turns are sent as a summary").await;
    // The page is told of what happens once this stands there.
    let told = next(&mut fixture, "Is somebody there?").await;
    browser.sees("#entries", "Is somebody there?").await;
    end(&mut fixture, &told, "Yes.").await;
    browser.sees("#entries", "Yes.").await;
    let path = format!("/api/v1/sessions/{}/uncompact", fixture.session());
    fixture.operator.post(&path, &json!({})).await.expect(200);
    browser.sees("#entries", "A summary that was undone: the turns are sent again").await;
    browser.find("#entries .divider > summary .icon.turn").await;
    browser.find("#entries .divider a[href*='before='][href*='#m-']").await;
    // Tabs scroll where they have no room: what closes them, and the one that is shown, stay in view.
    let tab = format!("{}/t/{HOME}/sessions/{}?pane=context", fixture.board.url, fixture.session());
    for (width, css) in [
        (1440, "#tabs .only-wide form button"),
        (1440, "#tabs .only-wide a[aria-current]"),
        (390, "#tabs .only-narrow a[aria-current]"),
    ] {
        browser.prefer("light", Some((width, 900))).await;
        browser.go(&tab).await;
        browser.find(css).await;
        let is_seen = "const one = document.querySelector(arguments[0]); \
                       const [box, nav] = [one, one.closest('nav')].map((it) => it.getBoundingClientRect()); \
                       return box.width > 0 && box.left >= nav.left - 1 && box.right <= nav.right + 1";
        assert_eq!(browser.run(is_seen, json!(css)).await, json!(true), "{width}: {css}");
    }
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}
