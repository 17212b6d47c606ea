//! What an agent wants to be remembered: by its tool and in its answers, made or proposed as the session's policy has it.

use board_tests::{Engine, Fixture, Viber, llm::Reply, wait::EVENT_TIMEOUT};
use serde_json::{Value, json};

use super::{curated, log_with, remembering};

const BEFORE: &str = "# Memory\n\n- The tests are slow.\n";

fn remember(note: &str, kind: &str) -> Reply {
    Reply::call("remember", json!({ "note": note, "kind": kind }))
}

async fn a_note_for_the_day_is_written_and_one_for_good_is_proposed(engine: Engine) {
    let answer = "Done.\n\n<memory_suggestion>Ask Ada about invoices.</memory_suggestion>\n\n\
                  ```\n<memory_suggestion>not this</memory_suggestion>\n```\n";
    let script = vec![
        remember("Looked at the invoices.", "daily"),
        remember("Invoices are in `billing/`.", "memory"),
        remember("The tests are slow.", "memory"),
        remember("x", "eternal"),
        Reply::text(answer),
    ];
    let fixture = remembering(engine, script, &[("workspace/MEMORY.md", BEFORE)]).await;
    let task = fixture.play("look at invoices").await;
    assert_eq!((&task["state"], &task["result"]["text"]), (&json!("completed"), &json!(answer)), "{task:#}");
    assert_eq!(curated(&fixture.viber), BEFORE, "nothing is written without a person");
    log_with(&fixture.viber, "Looked at the invoices.").await;
    let told = fixture.events_of_kind(&task, "memory").await;
    let proposals: Vec<&Value> =
        told.iter().map(|event| &event["memory"]).filter(|memory| memory["proposal"].is_string()).collect();
    assert_eq!(proposals.len(), 2, "{told:#?}");
    assert_eq!(proposals[0]["proposal"], json!(format!("{BEFORE}- Invoices are in `billing/`.\n")));
    let whole = format!("{BEFORE}- Invoices are in `billing/`.\n- Ask Ada about invoices.\n");
    assert_eq!(proposals[1]["proposal"], json!(whole), "a later proposal holds the earlier ones");
    assert!(proposals.iter().all(|one| one["base"].as_str().is_some_and(|hash| hash.len() == 64)), "{proposals:#?}");
    let notes: Vec<(&str, &str)> = task_notes(&fixture, &task).await;
    assert_eq!(
        notes.iter().map(|(_, became)| *became).collect::<Vec<_>>(),
        ["applied", "proposed", "known", "proposed"],
        "{notes:?}"
    );
    let results = fixture.events_of_kind(&task, "tool-result").await;
    assert_eq!(results.iter().map(|result| result["ok"] == true).collect::<Vec<_>>(), [true, true, true, false]);
    fixture.board.assert_invariants().await;
}

/// `result.memory.notes` as the viber reported it: note and what became of it.
async fn task_notes(fixture: &Fixture<Viber>, task: &Value) -> Vec<(&'static str, &'static str)> {
    let events = fixture.operator.events(task["id"].as_str().expect("an id")).await;
    let notes =
        events.iter().find_map(|event| event["result"]["memory"]["notes"].as_array()).cloned().unwrap_or_default();
    let leak = |value: &Value| -> &'static str { value.as_str().unwrap_or_default().to_owned().leak() };
    notes.iter().map(|note| (leak(&note["note"]), leak(&note["became"]))).collect()
}

async fn by_the_policy_it_is_written_at_once(engine: Engine) {
    let answer = "Done.\n<memory_suggestion>\n## Invoices\n\nAsk Ada.\n</memory_suggestion>\n<memory_suggestion>Be kind.</memory_suggestion>";
    let script = vec![remember("Invoices are in `billing/`.", "memory"), Reply::text(answer)];
    let fixture = remembering(engine, script, &[("workspace/MEMORY.md", BEFORE)]).await;
    let task = fixture.play_with("look at invoices", json!({ "memoryPolicy": "apply" })).await;
    assert_eq!(task["result"]["text"], json!(answer), "{task:#}");
    let whole = format!("{BEFORE}- Invoices are in `billing/`.\n\n## Invoices\n\nAsk Ada.\n\n- Be kind.\n");
    assert_eq!(curated(&fixture.viber), whole);
    let told = fixture.events_of_kind(&task, "memory").await;
    assert_eq!(told.len(), 3, "{told:#?}");
    assert!(told.iter().all(|event| event["memory"]["path"] == "MEMORY.md" && event["memory"]["hash"].is_string()));
    let notes = task_notes(&fixture, &task).await;
    assert!(notes.len() == 3 && notes.iter().all(|(_, became)| *became == "applied"), "{notes:?}");
    fixture.board.assert_invariants().await;
}

async fn an_editor_in_between_loses_nothing(engine: Engine) {
    let script = vec![remember("One.", "memory"), remember("Two.", "memory"), Reply::text("Done.")];
    let fixture = remembering(engine, script, &[]).await;
    let editing = {
        let path = fixture.viber.home().join("workspace/MEMORY.md");
        tokio::task::spawn_blocking(move || {
            // An editor that writes whenever there is something, by reading and replacing, as editors do.
            let end = std::time::Instant::now() + EVENT_TIMEOUT;
            while std::time::Instant::now() < end {
                if let Ok(text) = std::fs::read_to_string(&path) {
                    let draft = path.with_extension("draft");
                    std::fs::write(&draft, format!("By hand.\n\n{text}")).expect("written");
                    std::fs::rename(&draft, &path).expect("renamed");
                    return;
                }
                std::thread::yield_now();
            }
        })
    };
    let task = fixture.play_with("remember", json!({ "memoryPolicy": "apply" })).await;
    assert_eq!(task["state"], "completed", "{task:#}");
    editing.await.expect("the editor ends");
    let text = curated(&fixture.viber);
    assert!(text.contains("By hand.") && text.contains("- One."), "{text}");
    assert!(!text.contains("- One.\n- One."), "{text}");
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_note_for_the_day_is_written_and_one_for_good_is_proposed,
    by_the_policy_it_is_written_at_once,
    an_editor_in_between_loses_nothing,
);
