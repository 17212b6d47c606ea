//! A log is taken over once, whoever asks how often, and what comes later is added.

use board_tests::{Engine, Fixture, board::HOME, fake_daemon};
use protocol::{AttemptRef, SessionId, TaskId};
use serde_json::json;

use super::{TakingOver, line, task};

async fn a_session_is_seen_taken_over_and_gone_on_with(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let owner = fixture.board.owner().await;
    let (session, one, two) = (SessionId::new(1), TaskId::new(1), TaskId::new(2));
    let lines =
        [task(&one, "Water the plants", "All **watered**."), task(&two, "And the roses?", "They too.")].concat();
    fixture.viber.log("default", &session, &lines);
    let listed = fixture.listed().await;
    assert_eq!(
        (listed.len(), &listed[0]["title"], &listed[0]["lines"], &listed[0]["behind"]),
        (1, &json!("Water the plants"), &json!(10), &json!(false)),
        "{listed:#?}"
    );
    let base = format!("/t/{HOME}/vibers/{}/sessions", fixture.viber.id);
    let html = owner.page(&base).await.expect(200).body;
    assert!(html.contains("Water the plants") && html.contains("Continue here"), "{html}");
    let html = owner.page(&format!("{base}/{session}")).await.expect(200).body;
    assert!(html.contains("<strong>watered</strong>") && html.contains("They too."), "{html}");
    assert!(html.contains("1 command") && html.contains("lab/scripted") && html.contains("Continue here"), "{html}");
    fixture.operator.get(&format!("/api/v1/sessions/{session}")).await.expect(404);

    // By the page's plain form; again it changes nothing.
    let to = owner.post_form(&format!("{base}/{session}/import"), &[]).await.expect(303).header("location").to_owned();
    assert_eq!(to, format!("/t/{HOME}/sessions/{session}"));
    let page = owner.page(&to).await.expect(200).body;
    assert!(page.contains("<strong>watered</strong>") && page.contains("They too."), "{page}");
    assert_eq!(fixture.import(&session).await["tasks"], 0);
    assert_eq!(fixture.listed().await, Vec::<serde_json::Value>::new());
    let expected = [
        ("user", "Water the plants"),
        ("assistant", "All **watered**."),
        ("user", "And the roses?"),
        ("assistant", "They too."),
    ]
    .map(|(role, text)| (role.to_owned(), text.to_owned()));
    assert_eq!(fixture.said(&session).await, expected);
    let told = fixture.operator.task(one.as_str()).await;
    assert_eq!(
        (&told["state"], &told["result"]["text"], &told["usage"]["inputTokens"], &told["viberId"]),
        (&json!("completed"), &json!("All **watered**."), &json!(7), &json!(fixture.viber.id))
    );

    // The next message knows what was said.
    let body = json!({ "goal": "Thank you", "sessionId": session });
    fixture.operator.post("/api/v1/tasks", &body).await.expect(201);
    let submit = fixture.viber.submitted().await;
    let history = serde_json::to_string(&submit.messages).expect("JSON");
    assert_eq!((submit.session_id, submit.agent_id.as_str(), submit.messages.len()), (session.clone(), "default", 4));
    assert!(
        history.contains("Water the plants") && history.contains("They too.") && history.contains("\"ls\""),
        "{history}"
    );
    let done = vec![fake_daemon::accepted(), fake_daemon::started(), fake_daemon::completed("Welcome.")];
    fixture.viber.report(&submit.task_id, 1, 1, done).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
    assert_eq!(fixture.said(&session).await.len(), 6);
    fixture.board.assert_invariants().await;
}

async fn a_compaction_comes_back_as_what_it_was(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let (session, work, compact, flush) = (SessionId::new(1), TaskId::new(1), TaskId::new(2), TaskId::new(3));
    let no_work = |id: &TaskId, kind: &str, said: &str| {
        let mut lines = task(id, "Compact the conversation", said);
        lines[0]["kind"] = json!(kind);
        lines
    };
    let lines = [
        task(&work, "Water the plants", "All watered."),
        no_work(&compact, "compact", "## Session Summary (compacted)\n- Plants."),
        no_work(&flush, "flush", "Nothing to note."),
    ];
    fixture.viber.log("default", &session, &lines.concat());
    assert_eq!(fixture.import(&session).await["tasks"], 3);
    assert!(fixture.listed().await.is_empty(), "nothing of it is missing");
    for (id, kind) in [(&work, "work"), (&compact, "compact"), (&flush, "flush")] {
        assert_eq!(fixture.operator.task(id.as_str()).await["kind"], kind);
    }
    let owner = fixture.board.owner().await;
    let page = owner.page(&format!("/t/{HOME}/sessions/{session}?pane=context")).await.expect(200).body;
    assert!(page.contains("All watered.") && page.contains("A summary that was not applied"), "{page}");

    let body = json!({ "goal": "Thank you", "sessionId": session });
    fixture.operator.post("/api/v1/tasks", &body).await.expect(201);
    let submit = fixture.viber.submitted().await;
    let history = serde_json::to_string(&submit.messages).expect("JSON");
    assert!(history.contains("Water the plants") && history.contains("All watered."), "{history}");
    assert!(!history.contains("Session Summary") && !history.contains("Compact the") && !history.contains("to note"));
    let done = vec![fake_daemon::accepted(), fake_daemon::started(), fake_daemon::completed("Welcome.")];
    fixture.viber.report(&submit.task_id, 1, 1, done).await;
    fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
    fixture.board.assert_invariants().await;
}

async fn many_at_once_take_it_over_once(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let session = SessionId::new(1);
    let ids: Vec<TaskId> = (1..=7).map(TaskId::new).collect();
    let lines: Vec<_> = ids.iter().flat_map(|id| task(id, &format!("goal {id}"), "done")).collect();
    fixture.viber.log("default", &session, &lines);
    let path = fixture.import_path(&session);
    let calls = (0..8).map(|_| async { fixture.operator.post(&path, &json!({})).await.expect(200).json() });
    let answers = futures_util::future::join_all(calls).await;
    let taken: u64 = answers.iter().map(|answer| answer["tasks"].as_u64().expect("a number")).sum();
    assert_eq!(taken, 7, "{answers:#?}");
    assert_eq!(fixture.said(&session).await.len(), 14);
    fixture.board.assert_invariants().await;
}

async fn later_lines_are_added_and_what_runs_is_left_alone(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let (session, one, two) = (SessionId::new(1), TaskId::new(1), TaskId::new(2));
    let asked = line(&two, 1, "goal", &json!({ "text": "second" }));
    let lines = [task(&one, "first", "one"), vec![asked, line(&two, 1, "text", &json!({ "text": "half" }))]].concat();
    fixture.viber.log("default", &session, &lines);
    fixture.viber.state().open = vec![AttemptRef { task_id: two.clone(), attempt: 1 }];
    assert_eq!(fixture.import(&session).await["tasks"], 1);
    assert_eq!(fixture.said(&session).await.len(), 2, "what runs is told by whoever runs it");
    let owner = fixture.board.owner().await;
    let base = format!("/t/{HOME}/vibers/{}/sessions/{session}", fixture.viber.id);
    let html = owner.page(&base).await.expect(200).body;
    assert!(html.contains("is running on the machine") && !html.contains("half"), "{html}");

    // It failed, and was begun anew; then it is over.
    let failed = json!({ "error": { "code": "timeout", "message": "too long", "retryable": true } });
    {
        let mut state = fixture.viber.state();
        state.open.clear();
        let more = [line(&two, 1, "error", &failed), line(&two, 2, "text", &json!({ "text": "whole" }))];
        state.logs[0].2.extend(more.iter().map(ToString::to_string));
        state.logs[0].2.push(line(&two, 2, "completed", &json!({ "summary": "whole" })).to_string());
    }
    let listed = fixture.listed().await;
    assert_eq!((listed.len(), &listed[0]["behind"]), (1, &json!(true)), "{listed:#?}");
    assert_eq!(fixture.import(&session).await["tasks"], 1);
    let said = fixture.said(&session).await;
    let texts: Vec<_> = said.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["first", "one", "second", "half", "whole"]);
    let told = fixture.operator.task(two.as_str()).await;
    assert_eq!(
        (&told["state"], &told["attempt"], &told["result"]["text"]),
        (&json!("completed"), &json!(2), &json!("whole"))
    );

    // A log that ends in the middle: nothing of it is alive, and the page says how it ended.
    let three = TaskId::new(3);
    fixture.viber.state().logs[0].2.push(line(&three, 1, "goal", &json!({ "text": "third" })).to_string());
    assert_eq!(fixture.import(&session).await["tasks"], 1);
    let told = fixture.operator.task(three.as_str()).await;
    assert_eq!((&told["state"], &told["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    fixture.board.assert_invariants().await;
}

async fn the_machines_own_plan_is_its_plan(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let owner = fixture.board.owner().await;
    let session = SessionId::new(1);
    fixture.viber.state().files.insert("task.md".to_owned(), "# Garden\n\n- [x] Water\n- [ ] Weed\n".to_owned());
    fixture.viber.log("default", &session, &task(&TaskId::new(1), "first", "one"));
    fixture.import(&session).await;
    let path = format!("/api/v1/sessions/{session}/plan");
    let plan = fixture.operator.get(&path).await.expect(200);
    assert_eq!((&plan.json()["goal"], &plan.json()["source"]), (&json!("Garden"), &json!("file")));
    let html = owner.page(&format!("/t/{HOME}/sessions/{session}?pane=plan")).await.expect(200).body;
    assert!(html.contains("no plan of its own") && html.contains("Weed") && html.contains("1 of 2 steps"), "{html}");
    // A change makes one of its own, and leaves the machine's as it is.
    let tag = plan.header("etag").to_owned();
    let request = fixture.operator.request(reqwest::Method::PUT, &path).header("if-match", tag);
    fixture.operator.send(request.json(&json!({ "markdown": "# Mine\n" }))).await.expect(200);
    assert_eq!(fixture.viber.file(&format!("sessions/{session}/task.md")).as_deref(), Some("# Mine\n"));
    assert!(fixture.viber.file("task.md").expect("there").contains("Weed"));
    assert_eq!(fixture.operator.get(&path).await.expect(200).json()["markdown"], "# Mine\n");
    // A session that began here does not go by it.
    let body = json!({ "viberId": fixture.viber.id });
    let other = fixture.operator.post("/api/v1/sessions", &body).await.expect(201).json();
    let other = format!("/api/v1/sessions/{}/plan", other["id"].as_str().expect("an id"));
    fixture.operator.get(&other).await.expect(404);
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(
    a_session_is_seen_taken_over_and_gone_on_with,
    a_compaction_comes_back_as_what_it_was,
    many_at_once_take_it_over_once,
    later_lines_are_added_and_what_runs_is_left_alone,
    the_machines_own_plan_is_its_plan,
);
