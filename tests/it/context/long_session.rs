//! A conversation of many turns with a model that refuses whatever does not fit its small window: it goes on by itself, and
//! what was said long ago can still be answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use board_tests::{
    Engine, Fixture,
    llm::{Piece, Reply, openai_error},
    tasks::id,
};
use serde_json::{Value, json};

crate::on_both_databases!(a_session_outlives_many_windows);

/// Tokens that the model reads, as it counts them: four characters each.
const WINDOW_TOKENS: usize = 16_000;
/// Turns in the ordinary suite: a few windows.
const TURNS: usize = 36;
/// Every so many turns say something that is asked about at the end.
const TURNS_PER_FACT: usize = 9;

fn code(n: usize) -> String {
    format!("x{}y{n}", (n + 7) * 7919 % 10_000)
}

/// What is known of items: `code of item 3 is x9y3`, wherever it stands.
fn facts(text: &str) -> Vec<(&str, &str)> {
    let all = text.split("code of item ").skip(1).filter_map(|rest| {
        let (item, rest) = rest.split_once(" is ")?;
        let code = rest.split(|c: char| !c.is_ascii_alphanumeric()).next()?;
        (item.bytes().all(|byte| byte.is_ascii_digit()) && code.starts_with('x')).then_some((item, code))
    });
    all.collect()
}

/// All that the model reads of the conversation.
pub fn read(body: &Value) -> String {
    let messages = body["messages"].as_array().expect("messages");
    let texts = messages.iter().filter(|message| message["role"] != "system").map(|message| &message["content"]);
    texts
        .map(|content| content.as_str().map_or_else(|| content.to_string(), str::to_owned))
        .collect::<Vec<_>>()
        .join("\n")
}

/// A model that knows nothing but what it reads, and refuses what is too long.
fn answer(body: &Value, refused: &AtomicUsize) -> Reply {
    let tokens = body.to_string().len() / 4;
    if tokens > WINDOW_TOKENS {
        refused.fetch_add(1, Ordering::Relaxed);
        let said = format!(
            "This model's maximum context length is {WINDOW_TOKENS} tokens. However, your messages resulted in {tokens} tokens."
        );
        return Reply::fault(400, &openai_error("context_length_exceeded", &said));
    }
    let say = |text: &str| Reply::Stream(vec![Piece::Input(tokens as u64), Piece::text(text)]);
    let text = read(body);
    let known = facts(&text);
    if body["tools"].as_array().is_none_or(Vec::is_empty) {
        let mut lines: Vec<String> =
            known.iter().map(|(n, code)| format!("- The code of item {n} is {code}.")).collect();
        lines.sort_unstable();
        lines.dedup();
        return say(&format!("## Session Summary (compacted)\n- Items were gone through.\n{}", lines.join("\n")));
    }
    let asked = text.rsplit_once("What is the code of item ").and_then(|(_, rest)| rest.split_once('?'));
    match asked {
        Some((item, _)) => {
            let found = known.iter().find(|(known, _)| *known == item);
            say(found.map_or("I do not know.", |(_, code)| *code))
        }
        None => say(&"It is an item like the others, and stands where it stood. ".repeat(12)),
    }
}

async fn goes_on(engine: Engine, turns: usize) {
    let agent = format!("mode: always_execute\ncontextWindow: {WINDOW_TOKENS}\n");
    let fixture = Fixture::on(engine).scripted_model([]).agent(&agent).with_viber().await;
    let refused = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&refused);
    fixture.llm.answers(move |body| answer(body, &counting));
    let planted: Vec<usize> = (0..turns).step_by(TURNS_PER_FACT).collect();
    let mut session = None;
    let mut say = async |goal: String| {
        let more = session.as_ref().map_or(json!({}), |session: &String| json!({ "sessionId": session }));
        let task = fixture.submit_with(&goal, more).await;
        session.get_or_insert_with(|| id(&task, "sessionId").to_owned());
        let ended = fixture.ended(&task).await;
        assert_eq!((&ended["state"], &ended["attempt"]), (&json!("completed"), &json!(1)), "{ended:#}");
        ended["result"]["text"].as_str().unwrap_or_default().to_owned()
    };
    for n in 0..turns {
        let fact = if planted.contains(&n) { format!("The code of item {n} is {}. ", code(n)) } else { String::new() };
        say(format!("{fact}Look at item {n}. {}", "Then say in a few words what it is about. ".repeat(16))).await;
    }
    for n in &planted {
        assert_eq!(say(format!("What is the code of item {n}?")).await, code(*n), "item {n}");
    }
    let session = session.expect("a session");
    let context = fixture.operator.get(&format!("/api/v1/sessions/{session}/context")).await.expect(200).json();
    let last = fixture.llm.requests().pop().expect("a request").body;
    assert!(read(&last).contains("## Session Summary (compacted)"), "older turns are a summary: {context:#}");
    assert!(!read(&last).contains("Look at item 0."), "and are not sent");
    let summaries = fixture.llm.requests().iter().filter(|request| request.body.get("tools").is_none()).count();
    println!("{turns} turns, {summaries} summaries, {} refused", refused.load(Ordering::Relaxed));
    assert!(summaries >= turns / 20, "{summaries} summaries");
    assert_eq!(refused.load(Ordering::Relaxed), 0, "nothing was sent that did not fit");
    fixture.board.assert_invariants().await;
}

async fn a_session_outlives_many_windows(engine: Engine) {
    goes_on(engine, TURNS).await;
}

mod long {
    //! The same with many turns.

    use super::*;

    crate::on_both_databases!(two_hundred_turns_go_on);

    async fn two_hundred_turns_go_on(engine: Engine) {
        goes_on(engine, 200).await;
    }
}
