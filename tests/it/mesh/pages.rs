//! Where people see and change it: the settings, a session with its children, its tree, what a viber reports, the registry.

use super::*;

crate::on_both_databases!(
    an_admin_opens_the_mesh_on_its_page,
    a_session_shows_its_children_in_place_and_as_a_tree,
    what_an_agent_asked_for_is_reached_from_who_asked,
    the_bus_is_read_by_cursor_and_nobody_slows_another,
    the_bus_has_short_tasks_and_those_before_a_long_queue,
    siblings_stand_in_the_order_of_their_calls,
    a_tree_says_that_more_was_refused,
    an_older_page_shows_what_was_asked_for_there,
    the_live_page_shows_what_is_at_work,
    a_viber_without_the_agent_is_told_of_before_a_task_goes_there,
    agents_are_listed_and_added_from_templates,
);

async fn an_admin_opens_the_mesh_on_its_page(engine: Engine) {
    let fixture = Fixture::on(engine).owner().without_viber().await;
    let path = format!("/t/{HOME}/settings/mesh");
    let page = fixture.owner().page(&path).await.expect(200).body;
    assert!(page.contains("Mesh") && !page.contains("value=\"yes\" checked"), "it is off by default: {page}");
    let fields = [("across_vibers", "yes"), ("max_depth", "2"), ("max_children", "5"), ("version", "0")];
    let answer = fixture.owner().post_form(&path, &fields).await;
    assert!(matches!(answer.status, 200 | 303), "{answer:#?}");
    let now = fixture.operator.get("/api/v1/mesh").await.expect(200);
    let etag = now.header("etag").to_owned();
    let now = now.json();
    assert_eq!(
        (&now["acrossVibers"], &now["maxDepth"], &now["maxChildren"]),
        (&json!(true), &json!(2), &json!(5)),
        "{now:#}"
    );
    let trail = fixture.owner().page(&format!("/t/{HOME}/settings/audit")).await.expect(200).body;
    assert!(trail.contains("mesh"), "{trail}");
    // Off again without the box; and nobody overwrites what they have not seen.
    fixture.owner().post_form(&path, &[("max_depth", "3"), ("max_children", "8"), ("version", "1")]).await;
    assert_eq!(fixture.operator.get("/api/v1/mesh").await.expect(200).json()["acrossVibers"], json!(false));
    let admin = fixture.board.token(HOME, "admin").await;
    let patch = admin.request(reqwest::Method::PATCH, "/api/v1/mesh").header("if-match", etag);
    let stale = admin.send(patch.json(&json!({ "maxDepth": 1 }))).await;
    assert_eq!(stale.status, 412, "{stale:#?}");
    fixture.board.assert_invariants().await;
}

async fn a_session_shows_its_children_in_place_and_as_a_tree(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    let call = json!({ "type": "tool-call", "callId": "call_1", "tool": "delegate",
        "args": { "agent": "tester", "viber": "den", "goal": "Run the kiosk suite" } });
    lead.tell(lab, vec![progress(&call)]).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the kiosk suite").await;
    let mut tester = Job::next(&den).await;
    let path = format!("/t/{HOME}/sessions/{}", id(&task, "sessionId"));
    let shows = async |words: &str| {
        eventually(&format!("the page shows {words:?}"), async || {
            let page = fixture.owner().page(&path).await.expect(200).body;
            page.contains(words).then_some(page)
        })
        .await
    };
    let page = shows("class=\"child fold\"").await;
    assert!(
        page.contains("tester on den") && page.contains("Run the kiosk suite") && page.contains("Stop it"),
        "{page}"
    );
    let child_page =
        fixture.owner().page(&format!("/t/{HOME}/sessions/{}", tester.submit.session_id)).await.expect(200).body;
    assert!(child_page.contains("Asked for by another agent") && child_page.contains("default on lab"), "{child_page}");
    tester.completes(&den, "96 specs pass.").await;
    end_of(lab, "call_1").await;
    let page = shows("96 specs pass.").await;
    assert!(!page.contains("Stop it"), "it is over: {page}");
    let pane = fixture.owner().page(&format!("{path}?pane=tree")).await.expect(200).body;
    assert!(pane.contains("class=\"family\"") && pane.contains("2 tasks, depth 1 of 3"), "{pane}");
    // A session without a tree has no such tab.
    let alone = fixture.submit("Something else").await;
    let page = fixture.owner().page(&format!("/t/{HOME}/sessions/{}", id(&alone, "sessionId"))).await.expect(200).body;
    assert!(!page.contains("pane=tree"), "{page}");
    fixture.board.assert_invariants().await;
}

async fn what_an_agent_asked_for_is_reached_from_who_asked(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    let args = json!({ "agent": "tester", "viber": "den", "goal": "Run the kiosk suite" });
    let call = json!({ "type": "tool-call", "callId": "call_1", "tool": "delegate", "args": args });
    lead.tell(lab, vec![progress(&call)]).await;
    lead.asks(lab, "call_1", ("tester", "den"), "Run the kiosk suite").await;
    let mut tester = Job::next(&den).await;
    let (parent, child) = (lead.submit.session_id.clone(), tester.submit.session_id.clone());
    let list = format!("/t/{HOME}/sessions");
    let page = fixture.owner().page(&list).await.expect(200).body;
    assert!(page.contains(parent.as_str()) && !page.contains(child.as_str()), "neither rail nor list: {page}");
    let all = fixture.owner().page(&format!("{list}?steps=1")).await.expect(200).body;
    assert!(all.contains(child.as_str()) && all.contains("Hide steps of runs and tasks of agents"), "{all}");
    // It stands in the rail once it asks people something.
    let asks = json!({ "type": "approval-required", "approvalId": ApprovalId::new(1), "digest": "d", "tool": "shell",
        "args": { "command": "ls" }, "cwd": "/", "preview": "ls", "risk": "It runs." });
    let waits = json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "approval" } });
    tester.tell(&den, vec![progress(&asks), progress(&waits)]).await;
    eventually("the rail has it", async || {
        fixture.owner().page(&list).await.expect(200).body.contains(child.as_str()).then_some(())
    })
    .await;
    let error = protocol::TaskError {
        code: protocol::ErrorCode::ToolFailed,
        message: "There is no kiosk.".to_owned(),
        retryable: false,
        suggestion: None,
        details: None,
    };
    tester.tell(&den, vec![EventBody::Error { error }]).await;
    end_of(lab, "call_1").await;
    eventually("who asked has it, and nobody else needs it", async || {
        let page = fixture.owner().page(&list).await.expect(200).body;
        (!page.contains(child.as_str())).then_some(())
    })
    .await;
    let page = fixture.owner().page(&format!("{list}/{parent}")).await.expect(200).body;
    assert!(page.contains("There is no kiosk.") && page.contains("Run it on another viber"), "{page}");
    fixture.board.assert_invariants().await;
}

async fn the_bus_is_read_by_cursor_and_nobody_slows_another(engine: Engine) {
    let fixture = Fixture::on(engine).owner().with_machine_of(&["coder"]).await;
    let lab = &fixture.viber;
    let address = format!("/api/v1/vibers/{}/bus", fixture.viber_id);
    let mut reader = fixture.operator.stream(&address, None).await;
    // One that never reads: its connection fills, and nobody else waits for it.
    let _stalled = fixture.operator.stream(&address, None).await;
    let mut jobs = Vec::new();
    for n in 0..2 {
        fixture.submit(&format!("Task {n}")).await;
        jobs.push(Job::next(lab).await);
    }
    for n in 0..50 {
        for job in &mut jobs {
            let said = board_tests::fake_daemon::text(&format!("{} {n};", job.task()));
            job.tell(lab, vec![said]).await;
        }
    }
    let mut told: std::collections::BTreeMap<String, Vec<u64>> = std::collections::BTreeMap::new();
    let mut last = None;
    while told.values().map(Vec::len).sum::<usize>() < 104 {
        let frame = reader.next().await.expect("a frame");
        let Some(at) = frame.id.clone() else { continue };
        last = Some(at);
        let said = frame.json();
        let seq = said["event"]["seq"].as_u64().expect("a number");
        told.entry(id(&said, "taskId").to_owned()).or_default().push(seq);
    }
    for (task, seqs) in &told {
        assert_eq!(*seqs, (1..=52).collect::<Vec<u64>>(), "{task}: each event once, in order");
    }
    // Whoever comes back with a position goes on there, without gap or repeat.
    drop(reader);
    for job in &mut jobs {
        job.tell(lab, vec![board_tests::fake_daemon::text("later")]).await;
    }
    let mut reader = fixture.operator.stream(&address, last.as_deref()).await;
    let mut seqs = Vec::new();
    while seqs.len() < 2 {
        let frame = reader.next().await.expect("a frame");
        if frame.id.is_some() {
            seqs.push(frame.json()["event"]["seq"].as_u64().expect("a number"));
        }
    }
    assert_eq!(seqs, [53, 53]);
    // Only of one agent.
    let mut of_coder = fixture.operator.stream(&format!("{address}?agent=coder"), None).await;
    fixture.submit_with("Mine", json!({ "agentId": "coder" })).await;
    let mut job = Job::next(lab).await;
    job.tell(lab, vec![board_tests::fake_daemon::text("hello")]).await;
    let frame = of_coder.until("task:progress").await.pop().expect("a frame");
    assert_eq!(id(&frame.json(), "taskId"), job.task().as_str());
    let bad = fixture.operator.get(&format!("{address}?after=nonsense")).await;
    assert_eq!(bad.expect(422).code(), "bad_cursor");
    fixture.board.assert_invariants().await;
}

async fn the_bus_has_short_tasks_and_those_before_a_long_queue(engine: Engine) {
    let fixture = Fixture::on(engine).owner().with_machine().await;
    let lab = &fixture.viber;
    let address = format!("/api/v1/vibers/{}/bus", fixture.viber_id);
    let mut reader = fixture.operator.stream(&address, None).await;
    // A task that begins and ends in one moment.
    let task = fixture.submit("Look once").await;
    let submit = lab.submitted().await;
    let said = board_tests::fake_daemon::text("a moment");
    lab.report(&submit.task_id, 1, 1, vec![accepted(), started(), said, completed("done")]).await;
    let mut seqs = Vec::new();
    while seqs.len() < 4 {
        let frame = reader.next().await.expect("a frame");
        if frame.id.is_some() {
            assert_eq!(frame.json()["taskId"], task["id"]);
            seqs.push(frame.json()["event"]["seq"].as_u64().expect("a number"));
        }
    }
    assert_eq!(seqs, [1, 2, 3, 4]);
    drop(reader);
    // One that works, and behind it more than are followed.
    let first = fixture.submit("Work").await;
    let mut job = Job::next(lab).await;
    for n in 0..70 {
        fixture.operator.follow_up(&first, &format!("Then {n}")).await;
    }
    let mut reader = fixture.operator.stream(&address, None).await;
    job.tell(lab, vec![board_tests::fake_daemon::text("at work")]).await;
    let frame = reader.until("task:progress").await.pop().expect("a frame");
    assert_eq!((id(&frame.json(), "taskId"), frame.json()["event"]["seq"].as_u64()), (job.task().as_str(), Some(3)));
    let place = fixture.operator.get(&address).await.expect(200).json();
    assert!(id(&place, "next").starts_with(job.task().as_str()), "{place}");
    fixture.board.assert_invariants().await;
}

async fn siblings_stand_in_the_order_of_their_calls(engine: Engine) {
    let (fixture, _den) = two_machines(engine).await;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(&fixture.viber).await;
    let calls = [("call_c", "First"), ("call_b", "Second"), ("call_a", "Third")];
    let asked = calls.map(|(call, goal)| progress(&wanted(call, ("tester", "den"), goal)));
    lead.tell(&fixture.viber, asked.to_vec()).await;
    let titles = |items: &Value| -> Vec<String> {
        items.as_array().into_iter().flatten().map(|child| id(child, "title").to_owned()).collect()
    };
    let children = eventually("all are made", async || {
        let children = fixture.operator.task(id(&task, "id")).await["children"].clone();
        (titles(&children).len() == 3).then_some(children)
    })
    .await;
    assert_eq!(titles(&children), ["First", "Second", "Third"]);
    assert_eq!(titles(&tree(&fixture.operator, id(&task, "id")).await["items"]), ["First", "Second", "Third"]);
    fixture.board.assert_invariants().await;
}

async fn a_tree_says_that_more_was_refused(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let task = fixture.submit("Ready the release").await;
    let mut lead = Job::next(lab).await;
    let refused = |of: usize| -> Vec<EventBody> {
        (0..64).map(|n| progress(&wanted(&format!("no_{of}_{n}"), ("nobody", "den"), "Help"))).collect()
    };
    lead.tell(lab, refused(0)).await;
    for n in 1..7 {
        lead.asks(lab, &format!("call_{n}"), ("tester", "den"), &format!("Part {n}")).await;
        Job::next(&den).await.tell(&den, refused(n)).await;
    }
    let path = format!("/t/{HOME}/sessions/{}?pane=tree", id(&task, "sessionId"));
    eventually("more was refused than is read", async || {
        let tree = tree(&fixture.operator, id(&task, "id")).await;
        let made = items(&tree).iter().filter(|item| item["id"].is_string()).count();
        assert!(items(&tree).len() <= 400, "{tree:#}");
        (items(&tree).len() == 400 && made == 6 && tree["moreRefused"] == true).then_some(())
    })
    .await;
    let page = fixture.owner().page(&path).await.expect(200).body;
    assert!(page.contains("More calls were refused than are shown here"), "{page}");
    assert!(page.contains("7 tasks, depth") && page.contains("Part 6"), "{page}");
    fixture.board.assert_invariants().await;
}

async fn an_older_page_shows_what_was_asked_for_there(engine: Engine) {
    let (fixture, _den) = two_machines(engine).await;
    let lab = &fixture.viber;
    let first = fixture.submit("Turn 0").await;
    // More than a page reads of what was asked for.
    for turn in 0..101 {
        if turn > 0 {
            fixture.operator.follow_up(&first, &format!("Turn {turn}")).await;
        }
        let mut job = Job::next(lab).await;
        let ask = |n| {
            let (call, goal) = (format!("call_{turn}_{n}"), format!("Part {turn}.{n}"));
            let said = json!({ "type": "tool-call", "callId": call, "tool": "delegate", "args": {} });
            [progress(&said), progress(&wanted(&call, ("nobody", "den"), &goal))]
        };
        job.tell(lab, (0..4).flat_map(ask).collect()).await;
        job.completes(lab, "done").await;
    }
    let path = format!("/t/{HOME}/sessions/{}", id(&first, "sessionId"));
    for (part, address) in [("Part 100.3", path.clone()), ("Part 0.3", format!("{path}?before=3"))] {
        eventually(part, async || {
            let page = fixture.owner().page(&address).await.expect(200).body;
            page.contains(part).then_some(())
        })
        .await;
    }
    fixture.board.assert_invariants().await;
}

async fn the_live_page_shows_what_is_at_work(engine: Engine) {
    let fixture = Fixture::on(engine).owner().with_machine_of(&["coder"]).await;
    let path = format!("/t/{HOME}/vibers/{}/live", fixture.viber_id);
    let page = fixture.owner().page(&path).await.expect(200).body;
    assert!(page.contains("No agent is at work here."), "{page}");
    let view = format!("view=bus:{}:", fixture.viber_id);
    assert!(page.contains(&view), "{page}");
    let live = async |agent: &str| fixture.owner().stream(&format!("/t/{HOME}/live?{view}{agent}"), None).await;
    let (mut all, mut coders) = (live("").await, live("coder").await);
    fixture.submit("Sort the shelf").await;
    let mut job = Job::next(&fixture.viber).await;
    let page = fixture.owner().page(&path).await.expect(200).body;
    assert!(page.contains("Sort the shelf") && page.contains("bus.js"), "{page}");
    // Its list is kept current.
    region(&mut all, |html| html.contains("Sort the shelf") && html.contains("data-state=\"working\"")).await;
    let other = fixture.owner().page(&format!("{path}?agent=coder")).await.expect(200).body;
    let (_, listed) = other.split_once("<main").expect("the page beside the rail");
    assert!(!listed.contains("Sort the shelf"), "{other}");
    let viber = fixture.owner().page(&format!("/t/{HOME}/vibers/{}", fixture.viber_id)).await.expect(200).body;
    assert!(viber.contains(&path), "its page leads there");
    let tasks = format!("/t/{HOME}/sessions?steps=1&#38;viber={}", fixture.viber_id);
    assert!(viber.contains(&tasks), "and to all its tasks");
    let mut stream = fixture.owner().stream(&format!("/t/{HOME}/vibers/{}/bus", fixture.viber_id), None).await;
    stream.until("task").await;
    job.completes(&fixture.viber, "sorted").await;
    region(&mut all, |html| html.contains("No agent is at work here.")).await;
    // It says when there are more than it lists.
    for n in 0..65 {
        fixture.submit(&format!("Dust board {n}")).await;
    }
    let lamp = fixture.submit_with("Fix the lamp", json!({ "agentId": "coder" })).await;
    let page = fixture.owner().page(&path).await.expect(200).body;
    let (_, listed) = page.split_once("id=\"at-work\"").expect("the list");
    assert!(listed.contains("These are the first 64") && listed.contains("All its sessions"), "{page}");
    let told = region(&mut coders, |html| html.contains("Fix the lamp")).await;
    assert!(!told.contains("Dust board") && !told.contains("more-at-work"), "{told}");
    // Behind more tasks of others than a bus follows, too.
    let bus = format!("/api/v1/vibers/{}/bus?agent=coder", fixture.viber_id);
    let place = fixture.operator.get(&bus).await.expect(200).json();
    assert!(id(&place, "next").starts_with(id(&lamp, "id")), "{place}");
    let frame = fixture.operator.stream(&bus, None).await.until("task").await.pop().expect("a frame");
    assert_eq!(frame.json()["id"], lamp["id"]);
    fixture.board.assert_invariants().await;
}

async fn a_viber_without_the_agent_is_told_of_before_a_task_goes_there(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let asked = async |path: &str| fixture.owner().page(&format!("/t/{HOME}{path}")).await.expect(200).body;
    // One that has it is chosen.
    eventually("the agents are known", async || {
        let page = asked("?agent=tester&goal=Test").await;
        page.contains(&format!("value=\"{}\" selected", den.id)).then_some(()).filter(|()| !page.contains("no agent"))
    })
    .await;
    let elsewhere = asked(&format!("/preflight?viber={}&agent=tester", fixture.viber_id)).await;
    let told = ["lab has no agent tester:", "the task goes to default. Choose another viber or agent."];
    assert!(told.iter().all(|words| elsewhere.contains(words)), "{elsewhere}");
    let known = asked(&format!("/preflight?viber={}&agent=coder", fixture.viber_id)).await;
    assert!(!known.contains("no agent"), "{known}");
    let any = asked("/preflight?viber=&agent=tester").await;
    assert!(any.contains("To give it to tester, choose a viber:"), "{any}");
    let sent = json!({ "goal": "Test", "viberId": fixture.viber_id, "agentId": "tester" });
    assert_eq!(fixture.operator.post("/api/v1/tasks", &sent).await.expect(422).code(), "unknown_agent");
    fixture.board.assert_invariants().await;
}

/// What is at work, once it is as wanted.
async fn region(stream: &mut board_tests::person::EventStream, is_wanted: impl Fn(&str) -> bool) -> String {
    loop {
        let told = stream.next().await.expect("a frame").data;
        if told.contains("id=\"at-work-now\"") && is_wanted(&told) {
            return told;
        }
    }
}

async fn agents_are_listed_and_added_from_templates(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder]").await;
    fixture.llm.answers(|body| match results(body) {
        0 => Reply::call("shell", json!({ "command": "sleep 5" })),
        _ => Reply::text("done"),
    });
    let task = fixture.submit("Wait").await;
    let lines = async || {
        let out = fixture.viber.cli(&["agents", "list", "--json"]).await.good();
        out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect::<Vec<_>>()
    };
    eventually("the agent is at work", async || {
        let all = lines().await;
        let lead = all.iter().find(|agent| agent["id"] == "default")?.clone();
        let is_at_work = lead["state"] == "tool" && lead["tasks"][0]["taskId"] == task["id"];
        (is_at_work && lead["engine"] == "builtin").then_some(())
    })
    .await;
    let idle = lines().await.into_iter().find(|agent| agent["id"] == "coder").expect("the other one");
    assert_eq!((&idle["state"], &idle["load"]), (&json!("idle"), &json!(0)), "{idle:#}");
    let shown = fixture.viber.cli(&["agents", "add"]).await.good();
    for template in ["coder", "triage", "reviewer", "browser"] {
        assert!(shown.contains(template), "{shown}");
    }
    fixture.viber.cli(&["agents", "add", "triage"]).await.good();
    let taken = fixture.viber.cli(&["agents", "add", "coder"]).await;
    assert_eq!(taken.code(), 1, "what is there is never written over: {taken:?}");
    assert_eq!(fixture.viber.cli(&["agents", "add", "painter"]).await.code(), 2);
    // From the page only where the machine lets the Board do that.
    let admin = fixture.board.token(HOME, "admin").await;
    let path = format!("/api/v1/vibers/{}/agents", fixture.viber_id);
    let refused = admin.post(&path, &json!({ "template": "reviewer" })).await.expect(422);
    assert!(refused.body.contains("boardAgents"), "{}", refused.body);
    assert!(!fixture.viber.home().join("agents/reviewer.yaml").exists());
    fixture.viber.write("config.yaml", &format!("{}boardAgents: on\n", fixture.llm.config("openai")));
    eventually("the machine lets the Board add agents", async || {
        let answer = admin.post(&path, &json!({ "template": "reviewer" })).await;
        (answer.status == 201).then_some(())
    })
    .await;
    for bad in [
        json!({ "template": "../coder" }),
        json!({ "template": "coder", "id": "a/b" }),
        json!({ "template": "painter" }),
    ] {
        assert_eq!(admin.post(&path, &bad).await.status, 422, "{bad}");
    }
    assert_eq!(fixture.operator.post(&path, &json!({ "template": "coder" })).await.status, 403);
    let page = format!("/t/{HOME}/vibers/{}/agents", fixture.viber_id);
    let answer = fixture.owner().post_form(&page, &[("template", "coder"), ("id", "second")]).await;
    assert!(
        matches!(answer.status, 200 | 303) && fixture.viber.home().join("agents/second.yaml").exists(),
        "{answer:#?}"
    );
    eventually("the new agent is on the viber's page", async || {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        let agents = viber["agents"].as_array()?.clone();
        agents.iter().any(|agent| agent["id"] == "triage").then_some(())
    })
    .await;
    fixture.board.assert_invariants().await;
}
