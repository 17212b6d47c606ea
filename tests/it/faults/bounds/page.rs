//! F81: a session's page is bounded whatever an attempt reported, and the rest of it is a link away.

use std::collections::BTreeMap;

use board_tests::{
    Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{completed, progress, text},
    tasks::id,
};
use protocol::EventBody;
use serde_json::json;

/// Bytes of a page, and of what a stream sends at once.
const PAGE_MAX_BYTES: usize = 300 * 1024;

/// A viber with a task that says a great deal, and an owner who looks at it.
async fn talking(engine: Engine) -> Fixture<FakeDaemon> {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("a great deal").await;
    fixture
}

/// The page of the session.
fn page(fixture: &Fixture<FakeDaemon>) -> String {
    format!("/t/{HOME}/sessions/{}", fixture.session())
}

/// What a page is, which may only be so long.
async fn look(fixture: &Fixture<FakeDaemon>, path: &str) -> String {
    let html = fixture.owner().page(path).await.expect(200).body;
    assert!(html.len() <= PAGE_MAX_BYTES, "{path} has {} bytes", html.len());
    html
}

fn call(n: usize, args: &serde_json::Value, result: &str) -> [EventBody; 2] {
    let call = json!({ "type": "tool-call", "callId": format!("c{n}"), "tool": "edit_file", "args": args });
    let result = json!({ "type": "tool-result", "callId": format!("c{n}"), "tool": "edit_file", "result": result,
        "ok": true, "durationMs": 5 });
    [progress(&call), progress(&result)]
}

/// The names that follow a mark in a page.
fn named(html: &str, mark: &str) -> Vec<String> {
    html.split(mark).skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect()
}

async fn f81_four_thousand_calls_are_a_page_and_its_earlier_ones(engine: Engine) {
    const CALL_COUNT: usize = 4_000;
    let mut fixture = talking(engine).await;
    let stream = format!("/t/{HOME}/live?view=session:{}", fixture.session());
    let mut events = fixture.owner().stream(&stream, None).await;
    let edit = json!({ "path": "a.rs", "oldText": "<&>\n".repeat(20), "newText": "x\n".repeat(20) });
    let calls: Vec<EventBody> = (0..CALL_COUNT).flat_map(|n| call(n, &edit, "<&>")).collect();
    for (n, some) in calls.chunks(CALL_COUNT / 4).enumerate() {
        fixture.tell(some.to_vec()).await;
        look(&fixture, &page(&fixture)).await;
        // What the stream sent meanwhile.
        let mark = format!("c{}", (n + 1) * CALL_COUNT / 8 - 1);
        loop {
            let frame = events.next().await.expect("the stream goes on");
            assert!(frame.data.len() <= PAGE_MAX_BYTES, "a frame of {} bytes", frame.data.len());
            if frame.data.contains(&format!("data-call=\"{mark}\"")) {
                break;
            }
        }
    }
    fixture.tell(vec![completed("Done.")]).await;
    let newest = look(&fixture, &page(&fixture)).await;
    assert!(
        newest.contains("Done.") && newest.contains(&format!("data-call=\"c{}\"", CALL_COUNT - 1)),
        "the newest is there"
    );
    // Page by page, without a script: each call once, with its result.
    let (mut seen, mut html, mut pages) = (BTreeMap::new(), newest, 0);
    loop {
        for call in named(&html, "data-call=\"") {
            *seen.entry(call).or_insert(0) += 1;
        }
        assert!(!html.contains("No result"), "a call without its result");
        let within = named(&html, "<p class=\"older\"><a class=\"btn small\" href=\"");
        let Some(earlier) = within.into_iter().find(|link| link.contains('.') && link.contains("before=")) else {
            break;
        };
        pages += 1;
        html = look(&fixture, &earlier).await;
        assert!(html.contains("Newest messages"));
    }
    assert!(pages >= 4, "{pages} earlier pages");
    assert_eq!((seen.len(), seen.values().max()), (CALL_COUNT, Some(&1)), "each call once");
    // A message that is linked is there, and so is what a call put out, wherever it stands.
    let linked = look(&fixture, &format!("{}?before=3", page(&fixture))).await;
    assert!(linked.contains("id=\"m-2\"") && linked.contains("Done."));
    let output = fixture.owner().page(&format!("{}/messages/2/calls/c7", page(&fixture))).await.expect(200);
    assert_eq!(output.body, "<&>");
    for nonsense in ["2.x", "x", "2.", "99.3"] {
        fixture.owner().page(&format!("{}?before={nonsense}", page(&fixture))).await.expect(404);
    }
    fixture.board.assert_invariants().await;
}

async fn f81_no_kind_of_part_makes_a_page_larger(engine: Engine) {
    let mut fixture = talking(engine).await;
    let step = |state: &str| progress(&json!({ "type": "step", "n": 1, "state": state }));
    let long = "`<&>`*a* ".repeat(4_000);
    let kinds: Vec<EventBody> = (0..12)
        .flat_map(|n| {
            let artifact = json!({ "id": format!("a{n}"), "title": "<".repeat(3_000), "type": "text/plain",
                "ref": format!("artifacts/{n}.txt"), "sizeBytes": 5 });
            [
                text(&long),
                step("finished"),
                progress(&json!({ "type": "reasoning-delta", "content": long })),
                step("finished"),
                progress(&json!({ "type": "notice", "level": "info", "text": long })),
                progress(&json!({ "type": "artifact", "artifact": artifact })),
            ]
        })
        .collect();
    for some in kinds.chunks(2) {
        fixture.tell(some.to_vec()).await;
    }
    let args = json!({ "path": long, "oldText": "\n".repeat(20_000), "newText": long });
    for n in 0..40 {
        let [call, result] = call(n, &args, &long[..30_000]);
        fixture.tell(vec![call]).await;
        fixture.tell(vec![result]).await;
    }
    // A plan of as many steps as there may be, and artifacts without an end.
    let steps: String = (0..500).map(|n| format!("- [ ] <step> {n}\n  - [ ] below it\n")).collect();
    let path = format!("sessions/{}/task.md", fixture.session());
    let plan = json!({ "markdown": steps, "hash": board_tests::fake_machine::hash(&steps), "path": path });
    fixture.tell(vec![progress(&json!({ "type": "plan", "plan": plan }))]).await;
    let artifacts = (100..450).map(|n| {
        let artifact = json!({ "id": format!("a{n}"), "title": "<".repeat(400), "type": "text/plain",
            "ref": format!("artifacts/{n}.txt"), "sizeBytes": 5 });
        progress(&json!({ "type": "artifact", "artifact": artifact }))
    });
    fixture.tell(artifacts.collect()).await;
    // It still grows, and has said much that is no part yet.
    for _ in 0..6 {
        fixture.tell(vec![text(&long)]).await;
    }
    let html = look(&fixture, &page(&fixture)).await;
    assert!(html.contains("Earlier in this message"));
    for tab in ["plan", "files", "memory", "artifacts"] {
        look(&fixture, &format!("{}?pane={tab}", page(&fixture))).await;
    }
    let stream = format!("/t/{HOME}/live?view=session:{}", fixture.session());
    let mut events = fixture.owner().stream(&stream, None).await;
    loop {
        let frame = events.next().await.expect("the stream goes on");
        assert!(frame.data.len() <= PAGE_MAX_BYTES, "a frame of {} bytes", frame.data.len());
        if frame.event == "log" {
            break;
        }
    }
    fixture.tell(vec![completed("Done.")]).await;
    let mut html = look(&fixture, &page(&fixture)).await;
    // The whole of what is cut is a link away.
    let mut full = None;
    loop {
        full = full.or_else(|| named(&html, "href=\"").into_iter().find(|link| link.contains("/parts/")));
        let within = named(&html, "<p class=\"older\"><a class=\"btn small\" href=\"");
        let Some(earlier) = within.into_iter().find(|link| link.contains('.') && link.contains("before=")) else {
            break;
        };
        html = look(&fixture, &earlier).await;
    }
    let whole = fixture.owner().page(&full.expect("a text that is cut")).await.expect(200).body;
    assert!(whole.len() >= long.trim_end().len() && whole.starts_with("`<&>`*a*"), "{}", whole.len());
    fixture.board.assert_invariants().await;
}

async fn f81_all_that_is_long_at_once_is_no_larger_page(engine: Engine) {
    let mut fixture = talking(engine).await;
    let odd = "\"&'<".repeat(1_000);
    for n in 0..70 {
        let artifact = json!({ "id": format!("a{n}"), "title": "\"".repeat(300), "type": "text/plain",
            "ref": format!("artifacts/{}{n}.txt", "\"".repeat(150)), "sizeBytes": 5 });
        fixture.tell(vec![progress(&json!({ "type": "artifact", "artifact": artifact }))]).await;
    }
    // The conversation, the queue behind its task, and the side list, each with more than a page shows.
    for n in 0..10 {
        let [call, result] = call(n, &json!({ "path": odd, "oldText": odd, "newText": odd }), &odd);
        fixture.tell(vec![text(&odd.repeat(4)), call, result]).await;
    }
    let viber = fixture.viber_id.clone();
    for _ in 0..60 {
        let more = json!({ "goal": odd, "viberId": viber, "sessionId": fixture.session() });
        fixture.operator.post("/api/v1/tasks", &more).await.expect(201);
    }
    for n in 0..70 {
        let task = fixture.operator.submit(&viber, "another").await;
        let title = json!({ "title": format!("{}{n}", "\"".repeat(150)) });
        fixture.operator.patch(&format!("/api/v1/sessions/{}", id(&task, "sessionId")), &title).await.expect(200);
    }
    let html = look(&fixture, &page(&fixture)).await;
    assert!(html.contains("and 20 more") && html.matches("rail-session\"").count() == 60, "all of it is full");
    for tab in ["plan", "files", "memory", "artifacts"] {
        let html = look(&fixture, &format!("{}?pane={tab}", page(&fixture))).await;
        assert!(html.len() > 150_000, "{tab}: {} bytes are no full page", html.len());
    }
    fixture.board.assert_invariants().await;
}

/// What a page shows is the same on both databases; what differs is how long it takes to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f81_four_thousand_calls_are_a_page() {
    f81_four_thousand_calls_are_a_page_and_its_earlier_ones(Engine::Sqlite).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f81_four_thousand_calls_are_a_page_on_postgres() {
        f81_four_thousand_calls_are_a_page_and_its_earlier_ones(Engine::Postgres).await;
    }
}

crate::on_both_databases!(f81_no_kind_of_part_makes_a_page_larger, f81_all_that_is_long_at_once_is_no_larger_page,);
