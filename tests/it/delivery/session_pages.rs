//! A session's page is made of what was kept for earlier readers, as far as nothing changed: what changes in a message that
//! was shown is shown, and nobody sees what is not for them.

use board_tests::{
    Engine, Fixture, Person,
    fake_daemon::{accepted, completed, started, stopped, text},
    tasks::id,
};
use protocol::{ErrorCode, EventBody, TaskError};
use serde_json::json;

crate::on_both_databases!(
    what_changes_in_a_shown_message_is_shown,
    what_comes_after_a_stop_is_shown,
    what_others_write_is_shown_around_kept_messages,
    kept_messages_are_for_readers_of_their_role_and_team,
    a_page_of_kept_messages_carries_as_many_as_a_new_one,
);

async fn what_changes_in_a_shown_message_is_shown(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let task = fixture.submit("count the lines").await;
    let path = path_of(id(&task, "sessionId"));
    let viber = &mut fixture.viber;
    assert!(shown(&owner, &path, 1).await.contains("Accepted"));
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted()]).await;
    assert!(shown(&owner, &path, 1).await.contains("Delivered"));
    viber.report(&submit.task_id, 1, 2, vec![started(), text("one, two")]).await;
    assert!(shown(&owner, &path, 1).await.contains("Read by the agent"));
    assert!(shown(&owner, &path, 2).await.contains("one, two"));
    viber.report(&submit.task_id, 1, 4, vec![failed()]).await;
    let answer = shown(&owner, &path, 2).await;
    assert!(answer.contains("one, two") && answer.contains(r#"class="notice ended" data-level="error""#), "{answer}");

    fixture.operator.retry(id(&task, "id")).await.expect(200);
    let answer = shown(&owner, &path, 2).await;
    assert!(answer.contains("an earlier attempt") && !answer.contains("notice ended"), "{answer}");
    assert!(shown(&owner, &path, 1).await.contains("Accepted"), "it waits again");
    let again = viber.submitted().await;
    let rest = vec![accepted(), started(), text("three"), completed("three")];
    viber.report(&again.task_id, 2, 1, rest).await;
    assert!(shown(&owner, &path, 3).await.contains("three"));
    assert!(shown(&owner, &path, 1).await.contains("Read by the agent"));
    fixture.board.assert_invariants().await;
}

async fn what_comes_after_a_stop_is_shown(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let task = fixture.submit("run for ever").await;
    let path = path_of(id(&task, "sessionId"));
    let viber = &mut fixture.viber;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("half of it")]).await;
    assert!(shown(&owner, &path, 2).await.contains("half of it"));
    fixture.operator.stop(id(&task, "id")).await.expect(200);
    assert!(shown(&owner, &path, 2).await.contains("half of it"));
    viber.report(&submit.task_id, 1, 4, vec![text(" and the rest"), stopped()]).await;
    let answer = shown(&owner, &path, 2).await;
    assert!(answer.contains("half of it and the rest"), "{answer}");
    assert!(answer.contains(r#"class="notice ended" data-level="info""#), "{answer}");
    fixture.board.assert_invariants().await;
}

async fn what_others_write_is_shown_around_kept_messages(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let task = fixture.submit("say something").await;
    let path = path_of(id(&task, "sessionId"));
    let submit = fixture.viber.submitted().await;
    let all = vec![accepted(), started(), text("something"), completed("something")];
    fixture.viber.report(&submit.task_id, 1, 1, all).await;
    owner.post_form(&format!("{path}/messages"), &[("content", "and then?"), ("key", "first")]).await.expect(303);
    let answer = shown(&owner, &path, 2).await;

    let other = fixture.submit("something else").await;
    let title = json!({ "title": "The other one" });
    fixture.operator.patch(&format!("/api/v1/sessions/{}", id(&other, "sessionId")), &title).await.expect(200);
    assert!(owner.page(&path).await.expect(200).body.contains("The other one"), "the rail is as it is now");
    let title = json!({ "title": "This one" });
    fixture.operator.patch(&format!("/api/v1/sessions/{}", id(&task, "sessionId")), &title).await.expect(200);
    let page = owner.page(&path).await.expect(200).body;
    assert!(page.contains(r#"<h1 class="cut">This one</h1>"#), "{page}");
    assert_eq!(message(&page, 2), answer, "nobody touched it");
    // Another program.
    fixture.board.sql("UPDATE operators SET name = 'Ines Marchetti' WHERE email = 'owner@example.org'").await;
    let question = shown(&owner, &path, 3).await;
    assert!(question.contains("Ines Marchetti") && question.contains("and then?"), "{question}");
    fixture.board.assert_invariants().await;
}

async fn kept_messages_are_for_readers_of_their_role_and_team(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let viewer = fixture.board.operator("home", "viewer@example.org", "viewer").await;
    let stranger = fixture.board.operator("elsewhere", "stranger@example.org", "owner").await;
    let task = fixture.submit("keep a secret").await;
    let session = id(&task, "sessionId").to_owned();
    let path = path_of(&session);
    let submit = fixture.viber.submitted().await;
    let all = vec![accepted(), started(), text("a secret"), completed("a secret")];
    fixture.viber.report(&submit.task_id, 1, 1, all).await;
    for _ in 0..2 {
        let theirs = shown(&owner, &path, 1).await;
        assert!(theirs.contains("keep a secret") && theirs.contains("Edit and send again"), "{theirs}");
        let theirs = shown(&viewer, &path, 1).await;
        assert!(theirs.contains("keep a secret") && !theirs.contains("Edit and send again"), "{theirs}");
        for foreign in [path.clone(), format!("/t/elsewhere/sessions/{session}")] {
            stranger.page(&foreign).await.expect(404);
        }
    }
    owner.post_form(&format!("{path}/delete"), &[]).await.expect(303);
    for reader in [&owner, &viewer] {
        reader.page(&path).await.expect(404);
    }
    fixture.board.assert_invariants().await;
}

async fn a_page_of_kept_messages_carries_as_many_as_a_new_one(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let viewer = fixture.board.operator("home", "viewer@example.org", "viewer").await;
    let first = fixture.submit("turn 0").await;
    let path = path_of(id(&first, "sessionId"));
    let mut newest = String::new();
    for turn in 0..6 {
        if turn > 0 {
            fixture.operator.follow_up(&first, &format!("turn {turn}")).await;
        }
        let submit = fixture.viber.submitted().await;
        let said = format!("answer {turn}: {}", "word ".repeat(4_500));
        let all = vec![accepted(), started(), text(&said), completed(&said)];
        fixture.viber.report(&submit.task_id, 1, 1, all).await;
        newest = owner.page(&path).await.expect(200).body;
        assert!(message(&newest, 2 * turn + 2).contains(&format!("answer {turn}:")), "the newest answer");
    }
    // Four turns of 24 kB fit, whoever asks: each of the owner's pages was made of the one before.
    assert_eq!(seqs(&newest), [5, 6, 7, 8, 9, 10, 11, 12]);
    assert!(newest.contains("?before=5"), "what is older is one link away");
    assert_eq!(seqs(&viewer.page(&path).await.expect(200).body), seqs(&newest));
    let older = owner.page(&format!("{path}?before=5")).await.expect(200).body;
    assert_eq!(seqs(&older), [1, 2, 3, 4]);
    fixture.board.assert_invariants().await;
}

fn failed() -> EventBody {
    let (code, message) = (ErrorCode::ToolFailed, "it broke".into());
    EventBody::Error { error: TaskError { code, message, retryable: true, suggestion: None, details: None } }
}

fn path_of(session: &str) -> String {
    format!("/t/home/sessions/{session}")
}

/// A message as the first reader sees it, and every other one of the same role.
async fn shown(reader: &Person, path: &str, seq: u64) -> String {
    let (first, second) = (reader.page(path).await.expect(200).body, reader.page(path).await.expect(200).body);
    assert_eq!(message(&first, seq), message(&second, seq), "nothing happened in between");
    message(&first, seq).to_owned()
}

/// The seqs of the messages of a page.
fn seqs(page: &str) -> Vec<u64> {
    let signs = page.split("id=\"m-").skip(1);
    signs.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
}

/// A message of a page.
#[track_caller]
fn message(page: &str, seq: u64) -> &str {
    let sign = format!("id=\"m-{seq}\"");
    let at = page.find(&sign).unwrap_or_else(|| panic!("no message {seq} in {page}"));
    page[at..].split("</article>").next().unwrap_or_default()
}
