//! What went with a request is kept, and shown with where it comes from and what it cost.

use board_tests::{
    Engine,
    board::HOME,
    fake_daemon::{accepted, completed, progress, started},
};
use serde_json::{Value, json};

use super::{Proposing, with_memory};

fn context(more: &Value) -> protocol::EventBody {
    let mut event = json!({ "type": "context", "window": 32768 });
    event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    progress(&event)
}

async fn the_newest_task_says_what_went_with_it(engine: Engine) {
    let fixture = with_memory(engine).await;
    let owner = fixture.board.owner().await;
    let submit = fixture.begin("go").await;
    fixture.tab(&owner, &submit, "Not known yet").await;
    let excerpts = json!([
        { "path": "workspace/MEMORY.md", "title": "Team", "text": "Ships on <b>Thursdays</b>." },
        { "path": "../../etc/passwd", "text": "12345678" },
    ]);
    let layers =
        json!([{ "layer": "memory", "tokens": 44, "items": [{ "name": "workspace/MEMORY.md", "tokens": 42 }] }]);
    let events = vec![
        context(&json!({ "layers": layers, "memory": excerpts })),
        // A later word about the same attempt says nothing of memory.
        context(&json!({ "layers": layers })),
    ];
    fixture.viber.report(&submit.task_id, submit.attempt, 3, events).await;
    let html = fixture.tab(&owner, &submit, "42 tokens").await;
    let excerpt = format!("about {} tokens", protocol::tokens::estimate("12345678"));
    assert!(html.contains("44 tokens") && html.contains(&excerpt), "{html}");
    assert!(html.contains("Ships on &#60;b&#62;Thursdays&#60;/b&#62;."), "text is text: {html}");
    assert!(html.contains(&format!("/vibers/{}/files/MEMORY.md", fixture.viber.id)), "a link to the file: {html}");
    assert!(!html.contains("/files/../"), "and none to what is no file");
    fixture.viber.report(&submit.task_id, submit.attempt, 5, vec![completed("Done.")]).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;

    // The next task takes its place.
    let body = json!({ "goal": "again", "sessionId": submit.session_id });
    fixture.operator.post("/api/v1/tasks", &body).await.expect(201);
    let next = fixture.viber.submitted().await;
    let bodies = vec![accepted(), started(), context(&json!({ "layers": [], "memory": [] })), completed("Done.")];
    fixture.viber.report(&next.task_id, next.attempt, 1, bodies).await;
    fixture.operator.task_in(next.task_id.as_str(), "completed").await;
    fixture.tab(&owner, &next, "No memory went with it").await;
    let foreign = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    foreign.page(&format!("/t/{HOME}/sessions/{}?pane=memory", submit.session_id)).await.expect(404);
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(the_newest_task_says_what_went_with_it);
