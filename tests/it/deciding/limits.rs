//! Many tasks at the limit of their team: none of them goes beyond it by more than a call.

use board_tests::{Engine, Fixture, Viber, llm::Reply, tasks::id};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::machine::{decide, waiting};

crate::on_both_databases!(a101_twenty_tasks_go_one_call_beyond_the_teams_limit_at_most);

const TASKS: usize = 20;
/// More than any of them may use.
const MUCH: u64 = 1_000_000;

/// Gives that many tasks at once, and waits until each of them asks for more.
async fn all_ask(fixture: &Fixture<Viber>, limits: Value) -> Vec<Value> {
    fixture.owner().put("/api/v1/approval-rules", &json!({ "limits": limits })).await.expect(200);
    let own = || json!({ "limits": { "toolCalls": 1_000, "tokens": MUCH, "costUsd": 1_000 } });
    join_all((0..TASKS).map(|_| fixture.submit_with("go", own()))).await;
    let asked = waiting(fixture, TASKS).await;
    for asked in &asked {
        assert_eq!(asked["kind"], "budget", "{asked:#}");
        let task = fixture.operator.task(id(asked, "taskId")).await;
        assert_eq!(task["waiting"]["for"], "budget", "{task:#}");
    }
    asked
}

/// The task that asked, when it has ended.
async fn ended(fixture: &Fixture<Viber>, asked: &Value) -> Value {
    fixture.ended(&json!({ "id": asked["taskId"] })).await
}

async fn a101_twenty_tasks_go_one_call_beyond_the_teams_limit_at_most(engine: Engine) {
    let looks = Reply::call("list_files", json!({ "path": "." }));
    let mut fixture =
        Fixture::on(engine).owner().scripted_model([looks]).agent("mode: always_execute").with_viber().await;
    fixture.viber.kill9();
    fixture.viber.write("config.yaml", &format!("{}maxTasks: {TASKS}\n", fixture.llm.config("openai")));
    fixture.viber.run_again(&fixture.operator).await;
    let prices = json!({ "prices": [{ "model": "lab/*", "input": 1_000.0, "output": 1_000.0 }] });
    fixture.owner().put("/api/v1/prices", &prices).await.expect(200);

    // Calls of tools: two, and the model calls that asked for them and for a third.
    let asked = all_ask(&fixture, json!({ "toolCalls": 2 })).await;
    for asked in &asked {
        let limit = &asked["limit"];
        assert_eq!((limit["name"].as_str(), limit["allowed"].as_f64()), (Some("toolCalls"), Some(2.0)), "{asked:#}");
        assert_eq!(limit["used"].as_f64(), Some(2.0), "{asked:#}");
    }
    let requests = fixture.llm.requests().len();
    assert!(requests <= 3 * TASKS, "{requests} model calls");

    // Who is granted one more makes one more; the others end by the limit's name.
    let (granted, denied) = asked.split_first().expect("twenty");
    decide(&fixture, granted, json!({ "decision": "allow", "grant": { "toolCalls": 1 } })).await.expect(200);
    join_all(denied.iter().map(async |asked| decide(&fixture, asked, json!({ "decision": "deny" })).await.expect(200)))
        .await;
    // One after the other: twenty that ask in a loop are more requests than one person may make.
    for asked in denied {
        let ended = ended(&fixture, asked).await;
        assert_eq!(ended["error"]["code"], "budget_exceeded", "{ended:#}");
    }
    let again = waiting(&fixture, 1).await.remove(0);
    assert_eq!((&again["taskId"], again["limit"]["used"].as_f64()), (&granted["taskId"], Some(3.0)), "{again:#}");
    decide(&fixture, &again, json!({ "decision": "deny" })).await.expect(200);
    ended(&fixture, &again).await;

    // Money: the first model call costs more than is allowed, so there is no second.
    let before = fixture.llm.requests().len();
    let asked = all_ask(&fixture, json!({ "costUsd": 0.000_001 })).await;
    assert_eq!(fixture.llm.requests().len() - before, TASKS, "one model call each");
    assert!(asked.iter().all(|asked| asked["limit"]["name"] == "costUsd"), "{asked:#?}");
    for asked in &asked {
        decide(&fixture, asked, json!({ "decision": "deny" })).await.expect(200);
    }
    fixture.board.assert_invariants().await;
}
