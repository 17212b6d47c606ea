//! F81: a session's page is bounded whatever an attempt reported, and the rest of it is a link away.

use std::collections::BTreeMap;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::HOME,
    fake_daemon::{accepted, completed, progress, started, text},
    tasks::id,
};
use protocol::{EventBody, TaskId};
use serde_json::json;

/// Bytes of a page, and of what a stream sends at once.
const MOST: usize = 300 * 1024;
/// Events in a frame.
const TOGETHER: usize = 100;

struct Scene {
    board: Board,
    owner: Person,
    program: Person,
    viber: FakeDaemon,
    task: TaskId,
    page: String,
    next: u64,
}

impl Scene {
    async fn set(engine: Engine) -> Self {
        let board = Board::start(engine).await;
        let owner = board.owner().await;
        let program = board.token(HOME, "operator").await;
        let mut viber = FakeDaemon::connected(&board, "lab").await;
        let task = program.submit(viber.id.as_str(), "a great deal").await;
        let submit = viber.submitted().await;
        let page = format!("/t/{HOME}/sessions/{}", id(&task, "sessionId"));
        let mut scene = Self { board, owner, program, viber, task: submit.task_id, page, next: 1 };
        scene.tell(vec![accepted(), started()]).await;
        scene
    }

    async fn tell(&mut self, bodies: Vec<EventBody>) {
        for some in bodies.chunks(TOGETHER) {
            self.viber.report(&self.task, 1, self.next, some.to_vec()).await;
            self.next += some.len() as u64;
        }
    }

    async fn look(&self, path: &str) -> String {
        let html = self.owner.page(path).await.expect(200).body;
        assert!(html.len() <= MOST, "{path} has {} bytes", html.len());
        html
    }
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
    const CALLS: usize = 4_000;
    let mut scene = Scene::set(engine).await;
    let stream = format!("/t/{HOME}/live?view=session:{}", session(&scene.page));
    let mut events = scene.owner.stream(&stream, None).await;
    let edit = json!({ "path": "a.rs", "oldText": "<&>\n".repeat(20), "newText": "x\n".repeat(20) });
    let calls: Vec<EventBody> = (0..CALLS).flat_map(|n| call(n, &edit, "<&>")).collect();
    for (n, some) in calls.chunks(CALLS / 4).enumerate() {
        scene.tell(some.to_vec()).await;
        scene.look(&scene.page.clone()).await;
        // What the stream sent meanwhile.
        let mark = format!("c{}", (n + 1) * CALLS / 8 - 1);
        loop {
            let frame = events.next().await.expect("the stream goes on");
            assert!(frame.data.len() <= MOST, "a frame of {} bytes", frame.data.len());
            if frame.data.contains(&format!("data-call=\"{mark}\"")) {
                break;
            }
        }
    }
    scene.tell(vec![completed("Done.")]).await;
    let newest = scene.look(&scene.page.clone()).await;
    assert!(
        newest.contains("Done.") && newest.contains(&format!("data-call=\"c{}\"", CALLS - 1)),
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
        html = scene.look(&earlier).await;
        assert!(html.contains("Newest messages"));
    }
    assert!(pages >= 4, "{pages} earlier pages");
    assert_eq!((seen.len(), seen.values().max()), (CALLS, Some(&1)), "each call once");
    // A message that is linked is there, and so is what a call put out, wherever it stands.
    let linked = scene.look(&format!("{}?before=3", scene.page)).await;
    assert!(linked.contains("id=\"m-2\"") && linked.contains("Done."));
    let output = scene.owner.page(&format!("{}/messages/2/calls/c7", scene.page)).await.expect(200);
    assert_eq!(output.body, "<&>");
    for nonsense in ["2.x", "x", "2.", "99.3"] {
        scene.owner.page(&format!("{}?before={nonsense}", scene.page)).await.expect(404);
    }
    scene.board.sound().await;
}

async fn f81_no_kind_of_part_makes_a_page_larger(engine: Engine) {
    let mut scene = Scene::set(engine).await;
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
        scene.tell(some.to_vec()).await;
    }
    let args = json!({ "path": long, "oldText": "\n".repeat(20_000), "newText": long });
    for n in 0..40 {
        let [call, result] = call(n, &args, &long[..30_000]);
        scene.tell(vec![call]).await;
        scene.tell(vec![result]).await;
    }
    // A plan of as many steps as there may be, and artifacts without an end.
    let steps: String = (0..500).map(|n| format!("- [ ] <step> {n}\n  - [ ] below it\n")).collect();
    let path = format!("sessions/{}/task.md", session(&scene.page));
    let plan = json!({ "markdown": steps, "hash": board_tests::machine::hash(&steps), "path": path });
    scene.tell(vec![progress(&json!({ "type": "plan", "plan": plan }))]).await;
    let artifacts = (100..450).map(|n| {
        let artifact = json!({ "id": format!("a{n}"), "title": "<".repeat(400), "type": "text/plain",
            "ref": format!("artifacts/{n}.txt"), "sizeBytes": 5 });
        progress(&json!({ "type": "artifact", "artifact": artifact }))
    });
    scene.tell(artifacts.collect()).await;
    // It still grows, and has said much that is no part yet.
    for _ in 0..6 {
        scene.tell(vec![text(&long)]).await;
    }
    let html = scene.look(&scene.page.clone()).await;
    assert!(html.contains("Earlier in this message"));
    for tab in ["plan", "files", "memory", "artifacts"] {
        scene.look(&format!("{}?pane={tab}", scene.page)).await;
    }
    let stream = format!("/t/{HOME}/live?view=session:{}", session(&scene.page));
    let mut events = scene.owner.stream(&stream, None).await;
    loop {
        let frame = events.next().await.expect("the stream goes on");
        assert!(frame.data.len() <= MOST, "a frame of {} bytes", frame.data.len());
        if frame.event == "log" {
            break;
        }
    }
    scene.tell(vec![completed("Done.")]).await;
    let mut html = scene.look(&scene.page.clone()).await;
    // The whole of what is cut is a link away.
    let mut full = None;
    loop {
        full = full.or_else(|| named(&html, "href=\"").into_iter().find(|link| link.contains("/parts/")));
        let within = named(&html, "<p class=\"older\"><a class=\"btn small\" href=\"");
        let Some(earlier) = within.into_iter().find(|link| link.contains('.') && link.contains("before=")) else {
            break;
        };
        html = scene.look(&earlier).await;
    }
    let whole = scene.owner.page(&full.expect("a text that is cut")).await.expect(200).body;
    assert!(whole.len() >= long.trim_end().len() && whole.starts_with("`<&>`*a*"), "{}", whole.len());
    scene.board.sound().await;
}

async fn f81_all_that_is_long_at_once_is_no_larger_page(engine: Engine) {
    let mut scene = Scene::set(engine).await;
    let odd = "\"&'<".repeat(1_000);
    for n in 0..70 {
        let artifact = json!({ "id": format!("a{n}"), "title": "\"".repeat(300), "type": "text/plain",
            "ref": format!("artifacts/{}{n}.txt", "\"".repeat(150)), "sizeBytes": 5 });
        scene.tell(vec![progress(&json!({ "type": "artifact", "artifact": artifact }))]).await;
    }
    // The conversation, the queue behind its task, and the side list, each with more than a page shows.
    for n in 0..10 {
        let [call, result] = call(n, &json!({ "path": odd, "oldText": odd, "newText": odd }), &odd);
        scene.tell(vec![text(&odd.repeat(4)), call, result]).await;
    }
    let viber = scene.viber.id.to_string();
    for _ in 0..60 {
        let more = json!({ "goal": odd, "viberId": viber, "sessionId": session(&scene.page) });
        scene.program.post("/api/v1/tasks", &more).await.expect(201);
    }
    for n in 0..70 {
        let task = scene.program.submit(&viber, "another").await;
        let title = json!({ "title": format!("{}{n}", "\"".repeat(150)) });
        scene.program.patch(&format!("/api/v1/sessions/{}", id(&task, "sessionId")), &title).await.expect(200);
    }
    let html = scene.look(&scene.page.clone()).await;
    assert!(html.contains("and 20 more") && html.matches("rail-session\"").count() == 60, "all of it is full");
    for tab in ["plan", "files", "memory", "artifacts"] {
        let html = scene.look(&format!("{}?pane={tab}", scene.page)).await;
        assert!(html.len() > 150_000, "{tab}: {} bytes are no full page", html.len());
    }
    scene.board.sound().await;
}

fn session(page: &str) -> &str {
    page.rsplit('/').next().expect("an id")
}

crate::on_both_databases!(
    f81_four_thousand_calls_are_a_page_and_its_earlier_ones,
    f81_no_kind_of_part_makes_a_page_larger,
    f81_all_that_is_long_at_once_is_no_larger_page,
);
