//! A change of `MEMORY.md` that an agent proposes is decided by a person, and never undoes what somebody else wrote.

use board_tests::{Engine, board::HOME, eventually};
use serde_json::json;

use super::{AFTER, BEFORE, Proposing, path, remembers, with_memory};

async fn a_proposal_is_accepted_rejected_or_rewritten(engine: Engine) {
    let fixture = with_memory(engine).await;
    let first = fixture.propose(Some(BEFORE), AFTER).await;
    let found = fixture.waiting(&first).await;
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (&found[0]["state"], &found[0]["taskId"], &found[0]["content"], &found[0]["note"]),
        (&json!("pending"), &json!(first.task_id), &json!(AFTER), &json!("You said so."))
    );
    assert_eq!(fixture.viber.file("MEMORY.md").as_deref(), Some(BEFORE), "nothing is written before");
    let one = fixture.one(&first).await;
    fixture.board.token(HOME, "viewer").await.post(&one, &json!({ "decision": "accept" })).await.expect(403);
    // A proposal about memory is none about the plan.
    let plan = one.replace("/memory/", "/plan/");
    fixture.operator.post(&plan, &json!({ "decision": "accept" })).await.expect(404);
    let done = fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(200).json();
    assert_eq!((&done["state"], &done["edit"]), (&json!("accepted"), &json!("applied")), "{done:#}");
    assert_eq!(fixture.viber.file("MEMORY.md").as_deref(), Some(AFTER));
    assert_eq!(fixture.operator.post(&one, &json!({ "decision": "reject" })).await.expect(409).code(), "not_pending");

    let next = fixture.propose(Some(AFTER), "# Memory\n").await;
    let one = fixture.one(&next).await;
    let done = fixture.operator.post(&one, &json!({ "decision": "reject" })).await.expect(200).json();
    assert_eq!((&done["state"], fixture.viber.file("MEMORY.md").as_deref()), (&json!("rejected"), Some(AFTER)));

    let last = fixture.propose(Some(AFTER), "# Memory\n").await;
    let one = fixture.one(&last).await;
    let mine = json!({ "decision": "accept", "content": "# Mine\n" });
    fixture.operator.post(&one, &mine).await.expect(200);
    assert_eq!(fixture.viber.file("MEMORY.md").as_deref(), Some("# Mine\n"));
    fixture.board.assert_invariants().await;
}

async fn the_tab_shows_what_would_change_and_its_forms_do_it(engine: Engine) {
    let fixture = with_memory(engine).await;
    let owner = fixture.board.owner().await;
    let submit = fixture.propose(Some(BEFORE), AFTER).await;
    let html = fixture.tab(&owner, &submit, "plan-diff").await;
    assert!(html.contains("The team ships on Thursdays.") && html.contains("You&#32;said&#32;so."), "{html}");
    assert!(!html.contains("whole proposed text"), "the difference is known: {html}");
    assert!(html.contains(&format!("/sessions/{}#m-2", submit.session_id)), "the message is linked: {html}");
    assert!(html.contains(r#"Memory <span class="count" data-tone="wait">1<"#), "it is counted in the strip: {html}");
    // Edited first, by plain forms.
    let id = fixture.waiting(&submit).await[0]["id"].as_str().expect("an id").to_owned();
    let page = format!("/t/{HOME}/sessions/{}?pane=memory&at=proposal-{id}", submit.session_id);
    let edit = owner.page(&page).await.expect(200).body;
    assert!(edit.contains("<textarea") && edit.contains("- The team ships on Thursdays."), "{edit}");
    let form = format!("/t/{HOME}/sessions/{}/memory/proposals/{id}", submit.session_id);
    let of = board_tests::fake_machine::hash(BEFORE);
    let fields = [("decision", "accept"), ("of", of.as_str()), ("content", "# Memory\r\n\r\n- Thursdays.\r\n")];
    let answer = owner.post_form(&form, &fields).await.expect(303);
    assert!(answer.header("location").ends_with("?pane=memory"), "{answer:#?}");
    assert_eq!(fixture.viber.file("MEMORY.md").as_deref(), Some("# Memory\n\n- Thursdays.\n"));
    fixture.tab(&owner, &submit, "No proposals.").await;
    fixture.board.assert_invariants().await;
}

async fn what_somebody_else_wrote_stays(engine: Engine) {
    let fixture = with_memory(engine).await;
    let owner = fixture.board.owner().await;
    // Elsewhere in the file: both stand.
    let submit = fixture.propose(Some(BEFORE), AFTER).await;
    fixture.tab(&owner, &submit, "plan-diff").await;
    fixture.viber.write("MEMORY.md", &BEFORE.replace("room 4", "room 5")).await;
    let html = fixture.tab(&owner, &submit, "was changed since").await;
    assert!(!html.contains("in the same lines"), "{html}");
    let one = fixture.one(&submit).await;
    fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(200);
    let both = AFTER.replace("room 4", "room 5");
    assert_eq!(fixture.viber.file("MEMORY.md"), Some(both.clone()));

    // In the same lines: nobody is overwritten, and both are shown.
    let clashing = both.replace("Thursdays", "Fridays");
    let submit = fixture.propose(Some(&both), &clashing).await;
    fixture.tab(&owner, &submit, "plan-diff").await;
    let theirs = both.replace("Thursdays", "Mondays");
    fixture.viber.write("MEMORY.md", &theirs).await;
    let html = fixture.tab(&owner, &submit, "in the same lines").await;
    assert!(html.contains("Merge both") && !html.contains(r#"value="accept">Accept"#), "{html}");
    let one = fixture.one(&submit).await;
    let refused = fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(409);
    assert_eq!(refused.code(), "memory_changed");
    assert_eq!(fixture.viber.file("MEMORY.md"), Some(theirs.clone()));
    assert_eq!(fixture.waiting(&submit).await.len(), 1, "it waits still");
    let id = one.rsplit('/').next().expect("an id");
    let page = format!("/t/{HOME}/sessions/{}?pane=memory&at=proposal-{id}", submit.session_id);
    let draft = owner.page(&page).await.expect(200).body;
    assert!(draft.contains("Mondays") && draft.contains("Fridays"), "both stand in the draft: {draft}");
    // Written for a version that is not there any more: a conflict with both sides, and the words are kept.
    let form = format!("/t/{HOME}/sessions/{}/memory/proposals/{id}", submit.session_id);
    let old = board_tests::fake_machine::hash(&both);
    let fields = [("decision", "accept"), ("of", old.as_str()), ("content", "# What I typed\n")];
    let to = owner.post_form(&form, &fields).await.expect(303).header("location").to_owned();
    assert!(to.contains("/edits/"), "{to}");
    let shown = owner.page(&to).await.expect(200).body;
    assert!(shown.contains("What I typed") && shown.contains("Mondays"), "{shown}");
    assert_eq!(fixture.viber.file("MEMORY.md"), Some(theirs));
    fixture.tab(&owner, &submit, "memory-conflict").await;
    fixture.board.assert_invariants().await;
}

async fn an_acceptance_waits_for_its_viber(engine: Engine) {
    let fixture = with_memory(engine).await;
    let owner = fixture.board.owner().await;
    let submit = fixture.propose(Some(BEFORE), AFTER).await;
    fixture.tab(&owner, &submit, "plan-diff").await;
    fixture.viber.leave().await;
    eventually("it is away", || async {
        let vibers = fixture.operator.get("/api/v1/vibers").await.expect(200).json();
        (vibers["items"][0]["contact"]["state"] == "disconnected").then_some(())
    })
    .await;
    let one = fixture.one(&submit).await;
    let done = fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(200).json();
    assert_eq!((&done["state"], &done["edit"]), (&json!("accepted"), &json!("queued")), "{done:#}");
    fixture.tab(&owner, &submit, "memory-queued").await;
    fixture.viber.come_back().await;
    eventually("it is written", || async { (fixture.viber.file("MEMORY.md").as_deref() == Some(AFTER)).then_some(()) })
        .await;
    fixture.board.assert_invariants().await;
}

async fn proposals_of_different_tasks_wait_side_by_side(engine: Engine) {
    let fixture = with_memory(engine).await;
    let first = fixture.propose(Some(BEFORE), AFTER).await;
    fixture.tab(&fixture.board.owner().await, &first, "plan-diff").await;
    // The same task goes on from its own words: the newer one holds both.
    let body = json!({ "goal": "and more", "sessionId": first.session_id });
    fixture.operator.post("/api/v1/tasks", &body).await.expect(201);
    let second = fixture.viber.submitted().await;
    let hash = board_tests::fake_machine::hash(BEFORE);
    let propose = |text: &str| remembers(&json!({ "proposal": text, "base": hash }));
    let (once, twice) = (format!("# New\n{BEFORE}"), format!("# Newer\n{BEFORE}"));
    let events = vec![
        board_tests::fake_daemon::accepted(),
        board_tests::fake_daemon::started(),
        propose(&once),
        propose(&twice),
        board_tests::fake_daemon::completed("Done."),
    ];
    fixture.viber.report(&second.task_id, second.attempt, 1, events).await;
    fixture.operator.task_in(second.task_id.as_str(), "completed").await;
    let waiting = fixture.waiting(&first).await;
    let texts: Vec<_> = waiting.iter().map(|one| one["content"].as_str().expect("a text")).collect();
    assert_eq!(texts, [twice.as_str(), AFTER], "the older task's waits too");
    let of = |text: &str| waiting.iter().find(|one| one["content"] == text).expect("it waits")["id"].clone();
    for id in [of(AFTER), of(&twice)] {
        let path = format!("{}/{}", path(&first), id.as_str().expect("an id"));
        fixture.operator.post(&path, &json!({ "decision": "accept" })).await.expect(200);
    }
    assert_eq!(fixture.viber.file("MEMORY.md"), Some(format!("# Newer\n{AFTER}")), "neither undid the other");
    fixture.board.assert_invariants().await;
}

async fn a_file_that_is_not_there_is_made(engine: Engine) {
    let fixture = with_memory(engine).await;
    fixture.viber.state().files.clear();
    let submit = fixture.propose(None, "# Memory\n\n- <script>alert(1)</script>\n").await;
    let html = fixture.tab(&fixture.board.owner().await, &submit, "plan-diff").await;
    assert!(html.contains("&#60;script&#62;") && !html.contains("<script>alert"), "text is text: {html}");
    let one = fixture.one(&submit).await;
    fixture.operator.post(&one, &json!({ "decision": "accept" })).await.expect(200);
    assert!(fixture.viber.file("MEMORY.md").is_some());
    // A policy of its own, that leaves the others as they are.
    let policies = format!("/t/{HOME}/sessions/{}/policies", submit.session_id);
    let owner = fixture.board.owner().await;
    owner.post_form(&policies, &[("plan", "propose"), ("first", "yes")]).await.expect(303);
    owner.post_form(&policies, &[("memory", "apply")]).await.expect(303);
    let session = fixture.operator.get(&format!("/api/v1/sessions/{}", submit.session_id)).await.expect(200).json();
    assert_eq!(
        (&session["planPolicy"], &session["memoryPolicy"], &session["approveFirst"]),
        (&json!("propose"), &json!("apply"), &json!(true))
    );
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(
    a_proposal_is_accepted_rejected_or_rewritten,
    the_tab_shows_what_would_change_and_its_forms_do_it,
    what_somebody_else_wrote_stays,
    an_acceptance_waits_for_its_viber,
    proposals_of_different_tasks_wait_side_by_side,
    a_file_that_is_not_there_is_made,
);
