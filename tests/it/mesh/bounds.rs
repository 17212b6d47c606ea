//! What no daemon gets past, whatever it says: how many tasks there are, what they may use, whose mode and leash they have, and
//! where they go.

use super::*;

crate::on_both_databases!(
    what_was_refused_hides_nothing_that_was_made,
    what_a_viber_made_beyond_the_bounds_is_stopped,
    narrower_bounds_leave_alone_what_was_made,
    limits_are_those_that_are_left,
    mode_and_leash_reach_the_last_task,
    what_an_agent_cannot_keep_is_refused,
    a_label_leads_to_a_viber_that_has_the_agent,
    a_directory_names_the_places_that_it_was_asked_for,
    what_is_said_to_a_task_that_has_ended_is_its_next_one,
);

/// The event with limits of its own.
fn within(call: &str, goal: &str, limits: Value) -> EventBody {
    let mut event = wanted(call, ("tester", "den"), goal);
    event["limits"] = limits;
    progress(&event)
}

/// Labels a machine.
async fn label(fixture: &Fixture<impl Sized>, machine: &FakeMachine, labels: Value) {
    let admin = fixture.board.token(HOME, "admin").await;
    admin.patch(&format!("/api/v1/vibers/{}", machine.id), &json!({ "labels": labels })).await.expect(200);
}

async fn what_was_refused_hides_nothing_that_was_made(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    for round in 0..10 {
        let asked =
            (0..45).map(|n| progress(&wanted(&format!("no_{round}_{n}"), ("nobody", "den"), &format!("{round} {n}"))));
        lead.tell(lab, asked.collect()).await;
    }
    for n in 0..12 {
        lead.asks(lab, &format!("yes_{n}"), ("tester", "den"), &format!("Part {n}")).await;
    }
    assert_eq!(end_of(lab, "no_9_44").await.state, ChildState::Refused, "each of them is told");
    assert_eq!(end_of(lab, "yes_11").await.state, ChildState::Refused, "a task asks for eight");
    let there = fixture.operator.get(&format!("/api/v1/tasks?viberId={}", den.id)).await.expect(200).json();
    assert_eq!(there["items"].as_array().map(Vec::len), Some(8), "{there:#}");
    let kept = fixture.board.sql("UPDATE delegations SET depth = depth").await;
    assert!(kept <= 80, "{kept} rows of one task");
    // Of what was made the end is told all the same.
    Job::next(&den).await.completes(&den, "Done.").await;
    assert_eq!(end_of(lab, "yes_0").await.state, ChildState::Completed);
    fixture.operator.stop(id(&task, "id")).await.expect(200);
    eventually("its tree is stopped", async || {
        let there = fixture.operator.get(&format!("/api/v1/tasks?viberId={}", den.id)).await.expect(200).json();
        let open = |task: &&Value| task["state"] == "pending" || task["state"] == "running";
        (there["items"].as_array()?.iter().filter(open).count() == 0).then_some(())
    })
    .await;
    fixture.board.assert_invariants().await;
}

async fn what_a_viber_made_beyond_the_bounds_is_stopped(engine: Engine) {
    let (fixture, _den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let lead = Job::next(lab).await;
    let children: Vec<TaskId> = (0..10).map(|n| TaskId::new(1_790_000_000_000 + n)).collect();
    for (n, child) in children.iter().enumerate() {
        let event = json!({ "type": "task:announce", "origin": "agent", "agentId": "coder",
            "sessionId": protocol::SessionId::new(1_790_000_000_000), "goal": format!("Part {n}"),
            "parent": { "taskId": lead.task(), "attempt": 1, "callId": format!("call_{n}") } });
        let announce: EventBody = serde_json::from_value(event).expect("an event");
        lab.report(child, 1, 1, vec![announce, accepted(), started()]).await;
    }
    for child in &children {
        known(&fixture.operator, child).await;
    }
    for child in &children[8..] {
        fixture.operator.task_in(child.as_str(), "stopped").await;
    }
    let end = end_of(lab, "call_9").await;
    assert_eq!(end.state, ChildState::Refused);
    assert!(end.error.is_some_and(|why| why.contains("8 others")), "it says why");
    for child in &children[..8] {
        assert_eq!(fixture.operator.task(child.as_str()).await["state"], "running");
    }
    let all = tree(&fixture.operator, id(&task, "id")).await;
    assert_eq!(items(&all).len(), 10, "none is hidden: {all:#}");
    fixture.board.assert_invariants().await;
}

async fn narrower_bounds_leave_alone_what_was_made(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    lead.asks(lab, "call_2", ("tester", "den"), "Run the rest").await;
    let (mut first, mut second) = (Job::next(&den).await, Job::next(&den).await);
    let admin = fixture.board.token(HOME, "admin").await;
    admin.patch("/api/v1/mesh", &json!({ "maxChildren": 1, "acrossVibers": false })).await.expect(200);
    lead.asks(lab, "call_3", ("tester", "den"), "Run it again").await;
    assert_eq!(end_of(lab, "call_3").await.state, ChildState::Refused);
    first.completes(&den, "First.").await;
    second.completes(&den, "Second.").await;
    for (call, text) in [("call_1", "First."), ("call_2", "Second.")] {
        assert_eq!(end_of(lab, call).await.result.map(|result| result.text).as_deref(), Some(text));
    }
    fixture.board.assert_invariants().await;
}

async fn limits_are_those_that_are_left(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    fixture.submit_with("Ready the release", json!({ "limits": { "tokens": 1000, "steps": 20 } })).await;
    let mut lead = Job::next(lab).await;
    lead.tell(lab, vec![within("call_1", "One", json!({ "tokens": 600, "steps": 900 }))]).await;
    let mut one = Job::next(&den).await;
    assert_eq!((one.submit.limits.tokens, one.submit.limits.steps), (Some(600), Some(20)));
    lead.tell(lab, vec![within("call_2", "Two", json!({ "tokens": 600 }))]).await;
    let two = Job::next(&den).await;
    assert_eq!(two.submit.limits.tokens, Some(400), "what the first one may use is set apart");
    lead.tell(lab, vec![within("call_3", "Three", json!({}))]).await;
    let refused = end_of(lab, "call_3").await;
    assert!(refused.error.is_some_and(|why| why.contains("nothing is left")), "it says why");
    // What it did not use is there again, and what it used is not.
    let used =
        json!({ "type": "usage", "inputTokens": 100, "outputTokens": 50, "cachedTokens": 0, "source": "measured" });
    one.tell(&den, vec![progress(&used)]).await;
    one.completes(&den, "One.").await;
    assert_eq!(end_of(lab, "call_1").await.usage.input_tokens, 100);
    lead.tell(lab, vec![within("call_4", "Four", json!({}))]).await;
    assert_eq!(Job::next(&den).await.submit.limits.tokens, Some(450));
    fixture.board.assert_invariants().await;
}

async fn mode_and_leash_reach_the_last_task(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    fixture.submit_with("Ready the release", json!({ "mode": "always_ask", "leash": 7 })).await;
    let mut lead = Job::next(lab).await;
    // A task that its viber makes by itself is bound to them, too: what it asks for in turn shows it.
    let child = TaskId::new(1_790_000_000_000);
    let event = json!({ "type": "task:announce", "origin": "agent", "agentId": "coder",
        "sessionId": protocol::SessionId::new(1_790_000_000_000), "goal": "Sort it",
        "parent": { "taskId": lead.task(), "attempt": 1, "callId": "call_1" } });
    let announce: EventBody = serde_json::from_value(event).expect("an event");
    let asks = progress(&wanted("call_2", ("tester", "den"), "Run the suite"));
    lab.report(&child, 1, 1, vec![announce, accepted(), started(), asks]).await;
    let below = Job::next(&den).await;
    assert_eq!(below.submit.parent.as_ref().map(|place| place.depth), Some(2));
    lead.asks(lab, "call_3", ("tester", "den"), "Run the rest").await;
    let rest = Job::next(&den).await;
    for submit in [&below.submit, &rest.submit] {
        assert_eq!((submit.mode.map(protocol::AgentMode::as_str), submit.leash), (Some("always_ask"), Some(7)));
    }
    fixture.board.assert_invariants().await;
}

/// An agent whose daemon does not check in: a task with a leash is none for it, and asking for it breaks nothing.
async fn what_an_agent_cannot_keep_is_refused(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let mut old = board_tests::FakeDaemon::connected(&fixture.board, "old").await;
    fixture.submit_with("Ready the release", json!({ "leash": 7 })).await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("default", "old"), "Run the suite").await;
    let refused = end_of(lab, "call_1").await;
    assert_eq!(refused.state, ChildState::Refused, "{refused:?}");
    lead.asks(lab, "call_2", ("tester", "den"), "Run the suite").await;
    Job::next(&den).await;
    old.beat().await;
    fixture.board.assert_invariants().await;
}

async fn a_label_leads_to_a_viber_that_has_the_agent(engine: Engine) {
    let fixture = Fixture::on(engine).owner().with_machine_of(&["lead"]).await;
    let attic = FakeMachine::with_agents(&fixture.board, HOME, "attic", &["coder"]).await;
    let den = FakeMachine::with_agents(&fixture.board, HOME, "den", &["tester"]).await;
    across_vibers(&fixture, true).await.expect(200);
    for machine in [&attic, &den] {
        label(&fixture, machine, json!({ "gpu": "yes" })).await;
    }
    let lab = &fixture.viber;
    fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    lead.asks(lab, "call_1", ("tester", "gpu=yes"), "Run the suite").await;
    let mut tester = Job::next(&den).await;
    tester.completes(&den, "Done.").await;
    assert_eq!(end_of(lab, "call_1").await.viber.as_deref(), Some("den"));
    // Where none is online it waits for the one that has the agent.
    den.leave().await;
    lead.asks(lab, "call_2", ("tester", "gpu=yes"), "Run it again").await;
    let made = child_of(lab, "call_2", |state| state == ChildState::Running).await;
    den.come_back().await;
    assert_eq!(Some(Job::next(&den).await.task()), made.child_task_id.as_ref());
    lead.asks(lab, "call_3", ("painter", "gpu=yes"), "Paint it").await;
    let refused = end_of(lab, "call_3").await;
    assert!(
        refused.error.is_some_and(|why| why.contains("gpu=yes") && why.contains("painter")),
        "it says what is missing"
    );
    fixture.board.assert_invariants().await;
}

async fn a_directory_names_the_places_that_it_was_asked_for(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    label(&fixture, &den, json!({ "gpu": "yes" })).await;
    let lab = Person::with_token(&fixture.board.url, &fixture.viber.credential);
    let names = async |query: &str| {
        let found = lab.get(&format!("/api/daemon/mesh{query}")).await.expect(200).json();
        let all = found["vibers"].as_array().expect("vibers").clone();
        all.iter().map(|viber| id(viber, "name").to_owned()).collect::<Vec<_>>()
    };
    assert!(names("").await.is_empty(), "nobody is listed whom nobody asked for");
    assert_eq!(names("?place=den&place=attic&place=den").await, ["den"]);
    assert_eq!(names("?place=gpu%3Dyes").await, ["den"]);
    assert_eq!(names("?place=gpu%3Dno").await, Vec::<String>::new());
    across_vibers(&fixture, false).await.expect(200);
    assert!(names("?place=den").await.is_empty(), "the team keeps them apart");
    fixture.board.assert_invariants().await;
}

async fn what_is_said_to_a_task_that_has_ended_is_its_next_one(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit_with("Ready the release", json!({ "limits": { "tokens": 1000 } })).await;
    let mut lead = Job::next(lab).await;
    lead.tell(lab, vec![within("call_1", "Run the suite", json!({ "tokens": 600 }))]).await;
    let mut tester = Job::next(&den).await;
    tester.completes(&den, "All pass.").await;
    end_of(lab, "call_1").await;
    let said = |call: &str, limits: Value| {
        progress(&json!({
            "type": "agent-message", "messageId": protocol::MessageId::new(1_790_000_000_000), "direction": "out",
            "peer": "tester", "toTaskId": tester.task(), "callId": call, "limits": limits, "content": "And the slow ones?",
        }))
    };
    lead.tell(lab, vec![said("call_2", json!({ "tokens": 200 }))]).await;
    let next = Job::next(&den).await;
    assert_eq!((&next.submit.session_id, next.submit.limits.tokens), (&tester.submit.session_id, Some(200)));
    assert!(next.submit.goal.contains("And the slow ones?") && next.submit.goal.contains("<agent-message"));
    let made = child_of(lab, "call_2", |state| state == ChildState::Running).await;
    assert_eq!((made.child_task_id.as_ref(), made.follows.as_ref()), (Some(next.task()), Some(tester.task())));
    // It is one of those that a task may ask for, and its limits are what is left.
    let of = fixture.operator.task(next.task().as_str()).await;
    assert_eq!((&of["parent"]["callId"], &of["parent"]["taskId"]), (&json!("call_2"), &task["id"]), "{of:#}");
    lead.tell(lab, vec![within("call_3", "Something else", json!({}))]).await;
    assert_eq!(Job::next(&den).await.submit.limits.tokens, Some(800));
    fixture.board.assert_invariants().await;
}
