//! A session that begins with the summary of another: what goes along, and what it refuses while it has nothing of its own.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    fake_daemon::{accepted, completed, progress, started, text},
    fake_machine::hash,
};
use protocol::TaskSubmit;
use serde_json::json;

use super::{
    call,
    compact::{SUMMARY, asks, carried, end, has, long, next},
};

/// Begins a session with a summary of one: its id.
async fn begun(fixture: &mut Fixture<FakeDaemon>, session: &str) -> String {
    let path = format!("/api/v1/sessions/{session}/reset");
    let (operator, viber) = (&fixture.operator, &mut fixture.viber);
    let summarizes = async {
        let submit = viber.submitted().await;
        let events = vec![accepted(), started(), text(SUMMARY), completed(SUMMARY)];
        viber.report(&submit.task_id, 1, 1, events).await;
    };
    let body = json!({});
    let (answered, ()) = tokio::join!(operator.post(&path, &body), summarizes);
    answered.expect(201).json()["sessionId"].as_str().expect("a session").to_owned()
}

async fn asked_in(fixture: &mut Fixture<FakeDaemon>, session: &str) -> TaskSubmit {
    fixture.submit_with("Go on there", json!({ "sessionId": session })).await;
    fixture.viber.submitted().await
}

async fn what_is_pinned_goes_along(engine: Engine) {
    let mut fixture = long(engine, 2).await;
    let reads = next(&mut fixture, "Read the lease").await;
    let mut events = vec![accepted(), started()];
    events.extend(call("lease", "read_file", &json!({ "path": "lease.txt" }), &json!("Rent is due on the third.")));
    events.extend([text("Read."), completed("Read.")]);
    fixture.viber.report(&reads.task_id, 1, 1, events).await;
    fixture.operator.task_in(reads.task_id.as_str(), "completed").await;
    let session = fixture.session().to_owned();
    let messages = fixture.operator.get(&format!("/api/v1/sessions/{session}/messages?limit=200")).await.expect(200);
    let messages = messages.json()["items"].as_array().expect("messages").clone();
    let at = |seq: u64| messages.iter().find(|message| message["seq"] == seq).expect("a message")["id"].clone();
    let pins = format!("/api/v1/sessions/{session}/pins");
    let called = json!({ "messageId": at(6), "callId": "lease", "pinned": true });
    for pin in [json!({ "messageId": at(2), "pinned": true }), called] {
        fixture.operator.post(&pins, &pin).await.expect(200);
    }

    let second = begun(&mut fixture, &session).await;
    let first = asked_in(&mut fixture, &second).await;
    let told = carried(&first);
    let pinned = told.split_once("### Pinned\n- ").expect("pins").1;
    assert!(told.contains(SUMMARY) && pinned.starts_with("Answer 0: it rains."), "{told}");
    assert!(
        pinned.contains("tokens omitted]") && pinned.contains("lease.txt") && pinned.contains("Rent is due"),
        "{told}"
    );
    assert!(!has(&first, 1), "the rest stays behind");
    end(&mut fixture, &first, "Yes.").await;
    // It is not lost with the next one either.
    let third = begun(&mut fixture, &second).await;
    let told = carried(&asked_in(&mut fixture, &third).await);
    assert!(told.contains("### Pinned\n- Answer 0: it rains.") && told.contains("Rent is due"), "{told}");
    fixture.board.assert_invariants().await;
}

async fn people_are_told_where_it_goes_on_and_what_went_along(engine: Engine) {
    let mut fixture = long(engine, 1).await;
    let session = fixture.session().to_owned();
    let plans = next(&mut fixture, "Plan it").await;
    let (plan, path) = ("- [ ] Gather wood for the ark\n", format!("sessions/{session}/task.md"));
    let written = json!({ "type": "plan", "plan": { "markdown": plan, "hash": hash(plan), "path": path } });
    let events = vec![accepted(), started(), progress(&written), text("Planned."), completed("Planned.")];
    fixture.viber.report(&plans.task_id, 1, 1, events).await;
    fixture.operator.task_in(plans.task_id.as_str(), "completed").await;
    let second = begun(&mut fixture, &session).await;
    let page = async |fixture: &Fixture<FakeDaemon>, session: &str, tab: &str| {
        fixture.owner().page(&format!("/t/home/sessions/{session}?pane={tab}")).await.expect(200).body
    };
    let old = page(&fixture, &session, "plan").await;
    assert!(old.contains("Goes on in <a") && old.contains(&format!("sessions/{second}\"")), "{old}");
    let new = page(&fixture, &second, "plan").await;
    assert!(new.contains("id=\"goes-on-from\"") && new.contains(&format!("sessions/{session}\"")), "{new}");
    assert!(new.contains("the plan, references to the artifacts and the memory went along"), "{new}");
    assert!(
        new.contains("id=\"plan-carried\"") && new.contains("Gather&#32;wood") && !new.contains("No plan yet"),
        "{new}"
    );
    assert!(!new.contains("name=\"tick\""), "another session's steps are not ticked here");
    let first = asked_in(&mut fixture, &second).await;
    let sent = first.plan.as_ref().expect("a plan");
    assert_eq!(sent["markdown"], json!(plan), "what is shown is what is sent");
    end(&mut fixture, &first, "Gathered.").await;
    // It is not lost when nothing was changed about it before the next one.
    let third = begun(&mut fixture, &second).await;
    assert!(page(&fixture, &third, "plan").await.contains("Gather&#32;wood"));
    let first = asked_in(&mut fixture, &third).await;
    assert_eq!(first.plan.as_ref().expect("a plan")["markdown"], json!(plan));
    fixture.board.assert_invariants().await;
}

async fn a_session_that_has_a_summary_alone_says_that_it_is_empty(engine: Engine) {
    let mut fixture = long(engine, 3).await;
    let session = fixture.session().to_owned();
    let new = begun(&mut fixture, &session).await;
    for verb in ["reset", "flush", "compact"] {
        let refused = fixture.operator.post(&format!("/api/v1/sessions/{new}/{verb}"), &json!({})).await.expect(409);
        assert_eq!(refused.code(), "empty", "{verb}");
    }
    fixture.board.assert_invariants().await;
}

async fn a_summary_that_no_request_carries_whole_is_not_applied(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let says = |times: usize| format!("{SUMMARY}\n- {}", "it rains. ".repeat(times));
    let keep = json!({ "keep": 2 });
    // Shorter than the seven turns, but longer than a quarter of what the past may take.
    let (refused, _) = asks(&mut fixture, "compact", &keep, &says(1_600)).await;
    let refused = refused.expect(409).json();
    assert_eq!(refused["code"], "went_on");
    assert!(refused["detail"].as_str().is_some_and(|why| why.contains("too long for a request")), "{refused}");
    let page = fixture.owner().page(&format!("/t/home/sessions/{}", fixture.session())).await.expect(200).body;
    assert!(page.contains("not applied: it says nothing, or is too long for a request"), "{page}");
    let (applied, _) = asks(&mut fixture, "compact", &keep, &says(1_000)).await;
    applied.expect(200);
    let after = next(&mut fixture, "And now?").await;
    assert!(
        carried(&after).contains("about rain") && !carried(&after).contains("tokens omitted"),
        "it is carried whole"
    );
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    people_are_told_where_it_goes_on_and_what_went_along,
    what_is_pinned_goes_along,
    a_session_that_has_a_summary_alone_says_that_it_is_empty,
    a_summary_that_no_request_carries_whole_is_not_applied,
);
