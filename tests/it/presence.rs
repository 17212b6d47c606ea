//! Who looks at a session and who is writing in it, as the others see it.

use board_tests::{
    Browser, Engine, Fixture, Person, board::HOME, browser::Scripts, fake_daemon::completed, person::EventStream,
};

/// Reads a session's stream until a region has these words, and returns it.
async fn region(stream: &mut EventStream, id: &str, says: impl Fn(&str) -> bool) -> String {
    let sign = format!("id=\"{id}\"");
    loop {
        let frame = stream.next().await.expect("an open stream");
        if frame.event == "region" && frame.data.contains(&sign) && says(&frame.data) {
            return frame.data;
        }
    }
}

async fn watch(person: &Person, session: &str) -> EventStream {
    person.stream(&format!("/t/{HOME}/live?view=session:{session}"), None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_see_who_looks_and_who_writes() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let yuki = fixture.board.operator(HOME, "yuki@example.org", "operator").await;
    fixture.board.sql("UPDATE operators SET name = 'Yuki <i>T</i>' WHERE email = 'yuki@example.org'").await;
    let viewer = fixture.board.operator(HOME, "viewer@example.org", "viewer").await;
    let stranger = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    fixture.begin("talk").await;
    fixture.tell(vec![completed("done")]).await;
    let session = fixture.session().to_owned();
    let writing = format!("/t/{HOME}/sessions/{session}/writing");
    let mut ours = watch(fixture.owner(), &session).await;
    let mut second_page = watch(fixture.owner(), &session).await;
    let alone = region(&mut ours, "presence", |_| true).await;
    assert!(alone.contains("hidden"), "one's own pages are not shown: {alone}");
    let theirs = watch(&yuki, &session).await;
    for stream in [&mut ours, &mut second_page] {
        let seen = region(stream, "presence", |html| html.contains("Yuki")).await;
        assert!(seen.contains("title=\"Yuki &#60;i&#62;T&#60;/i&#62;\"") && !seen.contains("<i>"), "{seen}");
    }
    // Writing is told at once, ends by itself, and is told so often.
    yuki.post_form(&writing, &[]).await.expect(204);
    let seen = region(&mut ours, "writing", |html| html.contains("is writing")).await;
    assert!(seen.contains("Yuki &#60;i&#62;T&#60;/i&#62; is writing"), "{seen}");
    yuki.post_form(&writing, &[]).await.expect(204);
    let refused = yuki.post_form(&writing, &[]).await.expect(429);
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|seconds| (1..=3).contains(&seconds)));
    region(&mut ours, "writing", |html| !html.contains("is writing")).await;
    // What was sent is not being written any more.
    yuki.post_form(&writing, &[]).await.expect(204);
    region(&mut ours, "writing", |html| html.contains("is writing")).await;
    let said = [("content", "go on"), ("key", "")];
    yuki.post_form(&format!("/t/{HOME}/sessions/{session}/messages"), &said).await.expect(303);
    region(&mut ours, "writing", |html| !html.contains("is writing")).await;
    // Who may not write does not, and who is of another team is not there.
    viewer.post_form(&writing, &[]).await.expect(403);
    stranger.post_form(&writing, &[]).await.expect(404);
    let unknown = format!("/t/{HOME}/sessions/ses_00000000000000000000000000000000/writing");
    yuki.post_form(&unknown, &[]).await.expect(404);
    stranger.post_form(&format!("/t/elsewhere/sessions/{session}/writing"), &[]).await.expect(404);
    // A page that is left is gone a moment later.
    drop(theirs);
    region(&mut ours, "presence", |html| html.contains("hidden")).await;
    // Nothing of it is ever written.
    let dump = board_tests::invariants::Dump::of(&fixture.board).await.expect("the Board's database");
    assert!(dump.0.keys().all(|table| !table.contains("presence")));
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_people_see_each_other_in_their_browsers() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let yuki = fixture.board.operator(HOME, "yuki@example.org", "operator").await;
    fixture.board.sql("UPDATE operators SET name = 'Yuki Tanaka' WHERE email = 'yuki@example.org'").await;
    fixture.begin("talk").await;
    fixture.tell(vec![completed("done")]).await;
    let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
    let (ours, theirs) = (Browser::open(Scripts::On).await, Browser::open(Scripts::On).await);
    ours.sign_in(fixture.owner()).await;
    ours.go(&page).await;
    ours.find("body[data-live=on]").await;
    assert!(!ours.has("#presence .avatar").await);
    theirs.sign_in(&yuki).await;
    theirs.go(&page).await;
    theirs.find("body[data-live=on]").await;
    ours.find("#presence .avatar[title='Yuki Tanaka']").await;
    theirs.find("#presence .avatar").await;
    theirs.fill("#composer textarea", "And what about the checkout?").await;
    ours.sees("#writing", "Yuki Tanaka is writing").await;
    assert!(!theirs.text_of("#writing").await.contains("writing"), "one's own writing is no news");
    ours.find("#writing[hidden]").await;
    theirs.close_tab().await;
    ours.find("#presence[hidden]").await;
    assert!(ours.console_errors().await.is_empty(), "{:?}", ours.console_errors().await);
}
