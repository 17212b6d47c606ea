//! Whoever is killed at whichever step of a delegation, there is one child for each call, and its result arrives: with the
//! attempt that waits for it, or with the next one.

use board_tests::seed::SeededRandom;

use super::*;

crate::on_both_databases!(
    a_board_that_dies_at_a_step_makes_one_child,
    a_viber_that_dies_at_a_step_hears_of_its_child,
    a_viber_that_dies_at_its_work_is_asked_again,
    a_delegation_survives_whoever_is_killed,
);

/// Calls that the lead makes before it gives up.
const MAX_CALLS: usize = 5;

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

    /// The lead asks the coder there, or here, until it knows the word; the coder says it after a while. Each case has its own:
    /// agents remember what was said before.
    fn script(&self, far: bool, word: String) {
        self.fixture.llm.answers(move |body| match (leads(body), results(body)) {
            (true, _) if body["messages"].to_string().contains(&word) => Reply::text("I was told."),
            (true, MAX_CALLS..) => Reply::text("Nobody says it."),
            (true, _) => {
                let mut args = json!({ "agent": "coder", "goal": "Say the word" });
                if far {
                    args["viber"] = json!("den");
                }
                Reply::call("delegate", args)
            }
            (false, 0) => Reply::call("shell", json!({ "command": "sleep 1" })),
            (false, _) => Reply::text(&word),
        });
    }

    /// The task ends, begun again by a person where it was cut off, and its agent knows the word. Answers what it asked for:
    /// one task for each call.
    async fn end(&self, task: &Value, case: &str) -> Vec<Value> {
        let of = id(task, "id");
        let ended =
            board_tests::wait::within(Duration::from_secs(120), &format!("{case}: it is completed"), async || {
                let now = self.fixture.operator.task(of).await;
                if now["state"] == "error" {
                    let answer = self.fixture.operator.retry(of).await;
                    assert!(matches!(answer.status, 200 | 409), "{answer:#?}");
                }
                (now["state"] == "completed").then_some(now)
            })
            .await;
        assert_eq!(ended["result"]["text"], "I was told.", "{case}: the result has not arrived: {ended:#}");
        let children = items(&tree(&self.fixture.operator, of).await).to_vec();
        for child in &children {
            let same = children.iter().filter(|other| other["call"] == child["call"]).count();
            assert_eq!(same, 1, "{case}: {children:#?}");
        }
        children
    }
}

async fn a_board_that_dies_at_a_step_makes_one_child(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    let cases = [
        ("mesh::after_row", true),
        ("mesh::before_move", true),
        ("mesh::after_move", true),
        ("mesh::before_move", false),
        ("mesh::after_move", false),
    ];
    for (n, (point, far)) in cases.into_iter().enumerate() {
        pair.script(far, format!("heron{n}"));
        pair.fixture.board.fail(point, "1*return(crash)").await;
        let case = format!("{point}, {far}");
        let task = pair.fixture.submit(&format!("Ask at {case}")).await;
        pair.fixture.board.ended().await;
        pair.fixture.board.heal().await;
        pair.fixture.board.restart().await;
        let children = pair.end(&task, &case).await;
        assert_eq!(children.len(), 1, "{case}: {children:#?}");
    }
    pair.fixture.board.assert_invariants().await;
}

async fn a_viber_that_dies_at_a_step_hears_of_its_child(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    let cases = [
        // The record lies on disk, and nothing was asked for yet.
        ("rest::after_record", false, 1..=1),
        ("rest::after_record", true, 1..=1),
        ("mesh::after_request", false, 1..=1),
        // The attempt that asked is over: the next one is told of that task, and this script asks once more all the same.
        ("mesh::after_request", true, 1..=2),
        // A task that dies with its machine fails, and whoever asked is told that.
        ("mesh::after_announce", false, 2..=2),
        // It has ended, and nobody was told.
        ("outbox::after_end", false, 1..=1),
        // Whoever asked was told, and has not gone on.
        ("rest::before_removal", false, 1..=1),
        ("rest::before_removal", true, 1..=1),
        // It has: this attempt is over, and the next one is told. It may be begun before the Board hears how the child ended.
        ("rest::after_removal", false, 1..=2),
        ("rest::after_removal", true, 1..=1),
    ];
    for (n, (point, far, asked)) in cases.into_iter().enumerate() {
        pair.script(far, format!("heron{n}"));
        pair.fixture.viber.fail(point, "1*return(crash)").await;
        let case = format!("{point}, {far}");
        let task = pair.fixture.submit(&format!("Ask at {case}")).await;
        pair.fixture.viber.ended().await;
        pair.fixture.viber.heal().await;
        pair.fixture.viber.run();
        let children = pair.end(&task, &case).await;
        assert!(asked.contains(&children.len()), "{case}: {children:#?}");
    }
    pair.fixture.board.assert_invariants().await;
}

async fn a_viber_that_dies_at_its_work_is_asked_again(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    for (point, asked) in [("task::before_spawn", 2), ("task::before_end", 2), ("outbox::after_end", 1)] {
        pair.script(true, format!("heron-{asked}-{}", point.len()));
        pair.den.fail(point, "1*return(crash)").await;
        let task = pair.fixture.submit(&format!("Ask at {point}")).await;
        pair.den.ended().await;
        pair.den.heal().await;
        pair.den.run();
        let children = pair.end(&task, point).await;
        assert_eq!(children.len(), asked, "{point}: {children:#?}");
    }
    pair.fixture.board.assert_invariants().await;
}

async fn a_delegation_survives_whoever_is_killed(engine: Engine) {
    let mut pair = Pair::start(engine).await;
    let mut random = SeededRandom::new();
    for round in 0..4 {
        pair.script(round % 2 == 0, format!("heron{round}"));
        let task = pair.fixture.submit(&format!("Round {round}")).await;
        tokio::time::sleep(Duration::from_millis(random.between(0, 2_500))).await;
        let who = random.between(0, 3);
        match who {
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
        pair.end(&task, &format!("round {round}, {who}")).await;
    }
    pair.fixture.board.assert_invariants().await;
}
