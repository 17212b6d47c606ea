//! Whoever is killed at whichever step of a delegation, there is one child, and its result arrives.

use board_tests::seed::SeededRandom;

use super::*;

crate::on_both_databases!(
    a_board_that_dies_at_a_step_makes_one_child,
    a_viber_that_dies_at_a_step_makes_one_child,
    a_delegation_survives_whoever_is_killed,
);

/// Real vibers `lab`, whose agent asks the one of `den`, and `den`.
struct Pair {
    fixture: Fixture<Viber>,
    den: Viber,
}

impl Pair {
    async fn start(engine: Engine) -> Self {
        let fixture = lead_and_coder(engine, "[coder, coder@den]").await;
        let mut den = Viber::fresh("den");
        den.enrol(&fixture.board).await;
        furnish(&den, &fixture.llm, "[]");
        den.run();
        den.connected(&fixture.operator).await;
        across_vibers(&fixture, true).await.expect(200);
        Self { fixture, den }
    }

    /// The lead asks the coder there, or here, for one thing; the coder says one word, after a while.
    fn script(&self, far: bool) {
        self.fixture.llm.answers(move |body| {
            let place = if far { json!({ "viber": "den" }) } else { json!({}) };
            match (leads(body), results(body)) {
                (true, 0) => {
                    let mut args = json!({ "agent": "coder", "goal": "Say the word" });
                    args.as_object_mut().expect("an object").extend(place.as_object().cloned().unwrap_or_default());
                    Reply::call("delegate", args)
                }
                (true, _) => Reply::text("I was told."),
                (false, 0) => Reply::call("shell", json!({ "command": "sleep 1" })),
                (false, _) => Reply::text("heron"),
            }
        });
    }

    /// The task ends, begun again by a person where it was cut off; answers how many children it has.
    async fn end(&self, task: &Value) -> Vec<Value> {
        let of = id(task, "id");
        let ended = board_tests::wait::within(Duration::from_secs(120), "it is completed", async || {
            let now = self.fixture.operator.task(of).await;
            if now["state"] == "error" {
                let answer = self.fixture.operator.retry(of).await;
                assert!(matches!(answer.status, 200 | 409), "{answer:#?}");
            }
            (now["state"] == "completed").then_some(now)
        })
        .await;
        let told = self.fixture.llm.requests();
        let last = told.iter().rfind(|request| leads(&request.body)).expect("a request of the lead");
        assert!(last.body["messages"].to_string().contains("heron"), "its result is known: {ended:#}");
        items(&tree(&self.fixture.operator, of).await).to_vec()
    }
}

async fn a_board_that_dies_at_a_step_makes_one_child(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    pair.script(true);
    for point in ["mesh::after_row", "mesh::before_move", "mesh::after_move"] {
        pair.fixture.board.fail(point, "1*return(crash)").await;
        let task = pair.fixture.submit(&format!("Ask at {point}")).await;
        pair.fixture.board.ended().await;
        pair.fixture.board.heal().await;
        pair.fixture.board.restart().await;
        let children = pair.end(&task).await;
        assert_eq!(children.len(), 1, "{point}: {children:#?}");
        assert_eq!(children[0]["state"], "completed", "{point}");
    }
    pair.fixture.board.assert_invariants().await;
}

async fn a_viber_that_dies_at_a_step_makes_one_child(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    for (point, far) in [
        ("mesh::after_request", false),
        ("mesh::after_announce", false),
        ("mesh::after_request", true),
        ("outbox::after_end", false),
    ] {
        pair.script(far);
        pair.fixture.viber.fail(point, "1*return(crash)").await;
        let task = pair.fixture.submit(&format!("Ask at {point}, {far}")).await;
        pair.fixture.viber.ended().await;
        pair.fixture.viber.heal().await;
        pair.fixture.viber.run();
        pair.fixture.viber.connected(&pair.fixture.operator).await;
        // A child that was cut off with its machine is begun again by a person, like every task.
        let of = id(&task, "id").to_owned();
        eventually("the children are over", async || {
            let answer = pair.fixture.operator.get(&format!("/api/v1/tasks/{of}/tree")).await;
            let all = if answer.status == 200 { items(&answer.json()).to_vec() } else { Vec::new() };
            all.iter().all(|child| child["state"] != "running").then_some(())
        })
        .await;
        let children = pair.fixture.operator.get(&format!("/api/v1/tasks/{of}/tree")).await;
        let children = if children.status == 200 { items(&children.json()).to_vec() } else { Vec::new() };
        let per_call = |call: &Value| children.iter().filter(|child| child["call"] == *call).count();
        assert!(children.iter().all(|child| per_call(&child["call"]) == 1), "{point} {far}: {children:#?}");
    }
    pair.fixture.board.assert_invariants().await;
}

async fn a_delegation_survives_whoever_is_killed(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    let mut random = SeededRandom::new();
    for round in 0..4 {
        pair.script(true);
        let task = pair.fixture.submit(&format!("Round {round}")).await;
        tokio::time::sleep(Duration::from_millis(random.between(0, 2_500))).await;
        match random.between(0, 2) {
            0 => {
                pair.fixture.board.kill9();
                pair.fixture.board.restart().await;
            }
            1 => {
                pair.fixture.viber.kill9();
                pair.fixture.viber.run_again(&pair.fixture.operator).await;
            }
            _ => {
                pair.den.kill9();
                pair.den.run_again(&pair.fixture.operator).await;
            }
        }
        pair.fixture.viber.connected(&pair.fixture.operator).await;
        pair.den.connected(&pair.fixture.operator).await;
        let of = id(&task, "id").to_owned();
        let ended = board_tests::wait::within(Duration::from_secs(120), "it is over", async || {
            let now = pair.fixture.operator.task(&of).await;
            matches!(now["state"].as_str(), Some("completed" | "error")).then_some(now)
        })
        .await;
        let answer = pair.fixture.operator.get(&format!("/api/v1/tasks/{of}/tree")).await;
        let children = if answer.status == 200 { items(&answer.json()).to_vec() } else { Vec::new() };
        assert!(children.len() <= 1, "round {round}: {ended:#} {children:#?}");
        if ended["state"] == "completed" {
            assert_eq!(children.len(), 1, "round {round}: {ended:#}");
        }
    }
    pair.fixture.board.assert_invariants().await;
}
