//! A message that is larger than any answer should be: it is kept in parts while it grows, and read in pages.

use board_tests::{
    Engine, Fixture,
    fake_daemon::{accepted, completed, started, text},
    tasks::id,
};
use serde_json::Value;

crate::on_both_databases!(a_long_text_is_kept_in_parts_and_answered_in_pages);

/// Pieces of text, and their size.
const PIECES: usize = 40;
const PIECE_BYTES: usize = 200 * 1024;
/// Of parts in an answer, with some room for what is around them.
const MAX_ANSWER_BYTES: usize = 5 * 1024 * 1024;

async fn a_long_text_is_kept_in_parts_and_answered_in_pages(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("say much").await;
    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    let said: Vec<String> = (0..PIECES).map(|n| format!("{n} {}\n", "x".repeat(PIECE_BYTES))).collect();
    let session = id(&task, "sessionId").to_owned();
    for (n, piece) in said.iter().enumerate() {
        fixture.viber.report(&submit.task_id, 1, 3 + n as u64, vec![text(piece)]).await;
        if n == PIECES / 4 {
            let parts = parts_of(&page(&fixture, &session, "").await);
            assert!(parts.len() > 2, "what is long is complete before its end: {}", parts.len());
        }
    }
    fixture.viber.report(&submit.task_id, 1, 3 + PIECES as u64, vec![completed("done")]).await;
    let (mut parts, mut before, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let found = page(&fixture, &session, &before).await;
        let mut newer = std::mem::replace(&mut parts, parts_of(&found));
        parts.append(&mut newer);
        pages += 1;
        match found["next"].as_str() {
            Some(next) => before = format!("?before={next}"),
            None => break,
        }
    }
    assert!(pages > 1, "{pages}");
    assert_eq!(parts.first().map(String::as_str), Some("say much"));
    assert!(parts[1..].concat() == said.concat(), "every part once, in order: {} parts", parts.len());
    fixture.operator.get(&format!("/api/v1/sessions/{session}/messages?before=2.x")).await.expect(422);
    // It is one text to a reader.
    let owner = fixture.board.owner().await;
    let transcript = owner.page(&format!("/t/home/sessions/{session}/transcript.md")).await.expect(200).body;
    assert!(transcript.contains(said.concat().trim_end()), "{} bytes", transcript.len());
    fixture.board.assert_invariants().await;
}

async fn page(fixture: &Fixture<board_tests::FakeDaemon>, session: &str, before: &str) -> Value {
    let answer = fixture.operator.get(&format!("/api/v1/sessions/{session}/messages{before}")).await.expect(200);
    assert!(answer.body.len() < MAX_ANSWER_BYTES, "{} bytes", answer.body.len());
    answer.json()
}

/// The texts of a page's parts.
fn parts_of(page: &Value) -> Vec<String> {
    let parts = page["items"].as_array().into_iter().flatten().flat_map(|item| item["parts"].as_array().cloned());
    parts.flatten().filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
}
