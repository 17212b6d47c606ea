//! Questions while programs are killed at whatever moment: nothing runs without a word, or twice.

use std::{collections::BTreeMap, time::Duration};

use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply, seed::SeededRandom, tasks::id};
use serde_json::{Value, json};

use super::machine::{approval, asking, decide, lines, shell};

crate::on_both_databases!(f63_a_question_survives_whoever_is_killed);

/// Tasks in the ordinary suite.
const ROUNDS: u32 = 4;
/// The longest that a kill comes after a task was given, or after its question was decided; milliseconds.
const MAX_WAIT_MS: u64 = 500;

async fn f63_a_question_survives_whoever_is_killed(engine: Engine) {
    rounds(engine, ROUNDS).await;
}

/// Kills the Board, the viber or both after a while, and starts them again.
async fn strike(fixture: &mut Fixture<Viber>, random: &mut SeededRandom) {
    tokio::time::sleep(Duration::from_millis(random.between(0, MAX_WAIT_MS))).await;
    let who = random.between(0, 3);
    if who != 0 {
        fixture.viber.kill9();
    }
    if who != 1 {
        fixture.board.kill9();
        fixture.board.restart().await;
    }
    if who != 0 {
        fixture.viber.run();
    }
    fixture.viber.connected(&fixture.operator).await;
}

/// What the task asks; nothing if it ended without asking.
async fn question(fixture: &Fixture<Viber>, task: &Value) -> Option<Value> {
    let path = format!("/api/v1/approvals?taskId={}", id(task, "id"));
    eventually("it asks or ends", async || {
        let asked = fixture.operator.get(&path).await.expect(200).json()["items"][0].clone();
        if asked.is_object() {
            return Some(Some(asked));
        }
        fixture.operator.task(id(task, "id")).await["error"].is_object().then_some(None)
    })
    .await
}

async fn rounds(engine: Engine, rounds: u32) {
    let mut fixture = asking(engine, Vec::new()).await;
    let mut random = SeededRandom::new();
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for n in 0..rounds {
        let file = format!("ran{n}");
        fixture.llm.script([shell(&format!("echo one >> {file}")), Reply::text("Done.")]);
        let task = fixture.submit("go").await;
        strike(&mut fixture, &mut random).await;
        let Some(asked) = question(&fixture, &task).await else {
            let ended = fixture.ended(&task).await;
            assert_eq!((&ended["error"]["code"], lines(&fixture, &file)), (&json!("daemon_restarted"), 0), "{ended:#}");
            *ends.entry("ended before it asked".to_owned()).or_default() += 1;
            continue;
        };
        assert_eq!((&asked["state"], lines(&fixture, &file)), (&json!("pending"), 0), "{asked:#}");
        let allows = random.chance() < 0.6;
        let word = if allows { "allow" } else { "deny" };
        decide(&fixture, &asked, json!({ "decision": word })).await.expect(200);
        strike(&mut fixture, &mut random).await;
        let ended = fixture.ended(&task).await;
        let (ran, decided) = (lines(&fixture, &file), approval(&fixture, &asked).await);
        let end = match ended["state"].as_str() {
            Some("completed") => "completed",
            _ if ended["error"]["code"] == "daemon_restarted" => "ended by a restart",
            _ => panic!("{ended:#}"),
        };
        assert_eq!(decided["state"], if allows { "allowed" } else { "denied" }, "{decided:#}");
        match (allows, end) {
            (true, "completed") => assert_eq!(ran, 1, "{ended:#}"),
            (true, _) => assert!(ran <= 1, "it ran {ran} times: {ended:#}"),
            (false, _) => assert_eq!(ran, 0, "{ended:#}"),
        }
        if decided["consequence"]["ok"] == true {
            assert_eq!(ran, 1, "{decided:#}");
        }
        *ends.entry(format!("{word}, {end}")).or_default() += 1;
    }
    println!("F63: {ends:?}");
    assert_eq!(ends.values().sum::<u32>(), rounds);
    fixture.board.assert_invariants().await;
}

mod long {
    //! The same more often.

    use super::*;

    crate::on_both_databases!(f63_a_hundred_questions_survive_whoever_is_killed);

    async fn f63_a_hundred_questions_survive_whoever_is_killed(engine: Engine) {
        rounds(engine, 100).await;
    }
}
