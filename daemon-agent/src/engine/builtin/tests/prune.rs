//! A running attempt whose results are more than its model reads at once: it is shortened and goes on.

use protocol::tokens::estimate;

use super::*;

fn messages(endpoint: &ScriptedProvider, n: usize) -> Vec<Value> {
    endpoint.seen()[n].body["messages"].as_array().expect("messages").clone()
}

fn notices(fixture: &Fixture) -> Vec<String> {
    let notices = fixture.events().into_iter().filter_map(|event| match event {
        AgentStreamEvent::Notice { level: NoticeLevel::Info, text } if text.contains("was shortened") => Some(text),
        _ => None,
    });
    notices.collect()
}

/// Files of 40,000 bytes, `0.txt` and so on.
fn with_files(fixture: &Fixture, count: usize) {
    for n in 0..count {
        let text: String =
            (0..800).map(|line| format!("file {n}, line {line}, and what else stands in it\n")).collect();
        std::fs::write(fixture.home.workspace().join(format!("{n}.txt")), text).expect("written");
    }
}

fn reads(n: usize) -> ScriptedReply {
    calls(&[("read_file", &json!({ "path": format!("{n}.txt") }).to_string())])
}

/// Every call has its result, and nothing else is called one.
fn assert_paired(messages: &[Value]) {
    let mut open = std::collections::VecDeque::new();
    for message in messages {
        if message["role"] == "tool" {
            assert_eq!(open.pop_front().as_ref(), Some(&message["tool_call_id"]), "{message:#}");
            continue;
        }
        assert!(open.is_empty(), "{message:#}");
        open.extend(message["tool_calls"].as_array().into_iter().flatten().map(|call| call["id"].clone()));
    }
}

#[tokio::test]
async fn what_cannot_fit_is_not_sent() {
    let long = "A sentence of the goal that says nothing. ".repeat(4_000);
    for (window, is_sent) in [(Some(8_192), false), (None, true)] {
        let endpoint = ScriptedProvider::start(vec![says("It fits.")]).await;
        let mut fixture = Fixture::new(&endpoint);
        // Of a model that nobody knows the window is only assumed.
        fixture.agent.context_window = window;
        let ended = run(fixture.run(&long)).await;
        assert_eq!(!endpoint.seen().is_empty(), is_sent, "{window:?} {ended:?}");
        let failed = matches!(&ended, EngineOutcome::Failed(error) if error.code == ErrorCode::ContextOverflow
            && error.details.as_ref().is_some_and(|details| details["maxTokens"] == 8_192));
        assert_eq!(failed, !is_sent, "{ended:?}");
    }
}

#[tokio::test]
async fn three_hundred_large_results_never_overflow_the_window() {
    for window in [8_192, 32_768] {
        let script = (0..300).map(|n| reads(n % 12)).chain([says("All read.")]).collect();
        let endpoint = ScriptedProvider::start(script).await;
        let mut fixture = Fixture::new(&endpoint);
        (fixture.agent.context_window, fixture.agent.max_steps) = (Some(window), 400);
        // The definitions of all tools take more than a small window leaves.
        fixture.agent.tools = vec!["read_file".to_owned(), "read_output".to_owned()];
        with_files(&fixture, 12);
        let result = result(run(fixture.run("Read everything")).await);
        assert_eq!(result.text, "All read.");
        assert_eq!((fixture.results().len(), endpoint.seen().len()), (300, 301));
        let reserve = protocol::context::reserve(window, None);
        for (n, request) in endpoint.seen().iter().enumerate() {
            let tokens = estimate(&request.body.to_string());
            assert!(tokens <= window - reserve, "call {n}: {tokens} of {window}");
            assert_paired(request.body["messages"].as_array().expect("messages"));
        }
        let last = messages(&endpoint, 300);
        assert_eq!(last[1]["content"], "Read everything");
        assert!(last.last().expect("a result")["content"].to_string().contains("tokens omitted]"));
        assert!(notices(&fixture).len() > 100, "one result takes a quarter of such a window");
    }
}

#[tokio::test]
async fn what_stays_is_sent_unchanged_between_two_steps() {
    let endpoint = ScriptedProvider::start((0..40).map(reads).chain([says("Done.")]).collect()).await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.agent.context_window, fixture.agent.max_steps) = (Some(100_000), 60);
    with_files(&fixture, 40);
    result(run(fixture.run("x")).await);
    let seen = endpoint.seen();
    let all: Vec<&Vec<Value>> = seen.iter().filter_map(|request| request.body["messages"].as_array()).collect();
    let changed = all.windows(2).filter(|pair| !pair[1].starts_with(pair[0])).count();
    let notices = notices(&fixture);
    assert_eq!(changed, notices.len());
    assert!((2..=8).contains(&changed), "{notices:#?}");
    assert!(notices[0].contains(" results became lines (") && notices[0].ends_with(" tokens)."), "{notices:?}");
    let told = fixture.events().into_iter().filter_map(|event| match event {
        AgentStreamEvent::Context(fields) => fields["layers"].as_array().cloned(),
        _ => None,
    });
    let of_results = |layers: Vec<Value>| layers.iter().find(|layer| layer["layer"] == "results").cloned();
    assert!(told.filter_map(of_results).count() > 30, "the layers are counted on");
}

#[tokio::test]
async fn a_pruned_result_is_read_again() {
    let again = |id: &str| calls(&[("read_output", &json!({ "callId": id, "offset": 2, "limit": 1 }).to_string())]);
    let endpoint = ScriptedProvider::start(
        // The fixture's calls are all called `c0`; only the first one keeps this name.
        (0..12).map(reads).chain([again("c0"), again("nobody's"), again("../c0"), says("Done.")]).collect(),
    )
    .await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.agent.context_window, fixture.agent.max_steps) = (Some(40_000), 60);
    with_files(&fixture, 12);
    result(run(fixture.run("x")).await);
    let first = messages(&endpoint, 12).into_iter().find(|message| message["role"] == "tool").expect("a result");
    let line = r#"[tool: read_file("0.txt") → over "#;
    assert!(
        first["content"].as_str().is_some_and(|text| text.starts_with(line) && text.ends_with("callId c0]")),
        "{first:#}"
    );
    let results = fixture.results();
    assert!(results[12].1 && results[12].2.starts_with("     2\tfile 0, line 1,"), "{:?}", results[12]);
    for refused in &results[13..] {
        assert!(!refused.1 && refused.2.contains("no result of a call"), "{refused:?}");
    }
    let kinds = fixture.events().into_iter().filter_map(|event| match event {
        AgentStreamEvent::ToolResult { result, ok: false, .. } => result["error"]["type"].as_str().map(str::to_owned),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["not_found", "not_found"]);
}

#[tokio::test]
async fn what_could_not_be_kept_is_not_offered_again() {
    let reads = |n: usize| calls(&[("read_file", &json!({ "path": format!("{n}.txt"), "limit": 200 }).to_string())]);
    let again = calls(&[("read_output", r#"{"callId":"c0","offset":2,"limit":1}"#)]);
    let endpoint = ScriptedProvider::start((0..14).map(reads).chain([again, says("Done.")]).collect()).await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.agent.context_window, fixture.agent.max_steps) = (Some(40_000), 60);
    with_files(&fixture, 14);
    // So much was kept that there is room for two of these results.
    let folder = fixture.home.artifacts(fixture.task.as_str());
    std::fs::create_dir_all(&folder).expect("a folder");
    let kept = std::fs::File::create(folder.join(".result-1-others.txt")).expect("a file");
    kept.set_len((256 << 20) - 25_000).expect("a sparse file");
    result(run(fixture.run("x")).await);
    let sent = messages(&endpoint, 14);
    let lines =
        sent.iter().filter(|message| message["role"] == "tool").filter_map(|message| message["content"].as_str());
    let lines: Vec<&str> = lines.filter(|text| text.starts_with("[tool: read_file(")).collect();
    let named: Vec<&str> = lines.iter().filter(|line| line.contains("callId ")).copied().collect();
    assert!(lines.len() > 5 && named.len() == 2 && named[..] == lines[..2], "{lines:#?}");
    assert!(!json!(sent).to_string().contains("reads all of it"), "{sent:#?}");
    let results = fixture.results();
    assert!(results[14].1 && results[14].2.starts_with("     2\tfile 0, line 1,"), "{:?}", results[14]);
    let told = fixture.events().into_iter().find_map(|event| match event {
        AgentStreamEvent::Notice { level: NoticeLevel::Warning, text } => Some(text),
        _ => None,
    });
    let told = told.expect("people are told");
    let end = " of these results cannot be read again: 256 MiB of results are kept already.";
    assert!(told.contains(" results became lines") && told.ends_with(end), "{told}");
}

#[tokio::test]
async fn a_task_goes_on_after_a_restart_with_what_was_left() {
    let endpoint = ScriptedProvider::start((0..8).map(reads).chain([says("Done.")]).collect()).await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.agent.context_window, fixture.agent.max_steps) = (Some(40_000), 60);
    fixture.limits = protocol::TaskLimits { steps: Some(8), ..protocol::TaskLimits::default() };
    with_files(&fixture, 8);
    let running = tokio::spawn(run(fixture.run("x")));
    let asked = fixture.question(1).await;
    let before = fixture.killed(running).await;
    let running = tokio::spawn(run(fixture.resumed(&before)));
    let _open = fixture.approvals.ask(asked.approval_id.clone(), asked.digest.clone());
    fixture.word(&asked, protocol::Decision::Allow, |word| {
        word.grant = Some(protocol::TaskLimits { steps: Some(9), ..protocol::TaskLimits::default() });
    });
    assert_eq!(result(limits::ended(running).await).text, "Done.");
    let lines = |n: usize| {
        let messages = messages(&endpoint, n).into_iter();
        messages.filter(|message| message["content"].to_string().contains("callId c")).count()
    };
    assert!(lines(7) > 0 && lines(8) >= lines(7), "what was a line stays one: {} {}", lines(7), lines(8));
    let Some(AgentStreamEvent::Context(last)) =
        fixture.events().into_iter().rfind(|event| matches!(event, AgentStreamEvent::Context(_)))
    else {
        panic!("the layers are told")
    };
    let of_results = last["layers"].as_array().expect("layers").iter().find(|layer| layer["layer"] == "results");
    let counted = of_results.expect("results")["tokens"].as_u64().expect("tokens");
    assert!(counted > 0 && counted <= estimate(&endpoint.seen()[8].body.to_string()), "{counted}");
}

#[tokio::test]
async fn a_result_is_cut_to_its_tools_cap_and_kept_whole() {
    let again = calls(&[("read_output", r#"{"callId":"c0","offset":601}"#)]);
    let endpoint = ScriptedProvider::start(vec![reads(0), reads(1), again, says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.results.by_tool.insert("read_file".to_owned(), 1_000);
    with_files(&fixture, 2);
    result(run(fixture.run("x")).await);
    let told = messages(&endpoint, 1).pop().expect("a result")["content"].as_str().expect("text").to_owned();
    assert!((900..=1_000).contains(&estimate(&told)) && told.contains("\n[truncated, "), "{told}");
    assert!(told.ends_with("\n[read_output with callId \"c0\" reads all of it]"), "{told}");
    let results = fixture.results();
    assert!(results[0].2.len() > 30_000, "people are shown all of it");
    assert!(results[2].2.starts_with("   601\tfile 0, line 600,"), "{:?}", results[2]);
}

#[tokio::test]
async fn the_history_that_came_with_a_task_is_shortened_too() {
    use protocol::{Turn, TurnPart, TurnRole};
    let call = |n: usize| TurnPart::ToolCall {
        call_id: format!("old{n}"),
        tool: "shell".to_owned(),
        args: json!({ "command": format!("cat {n}") }),
        result: if n == 3 { "pinned\n".repeat(300) } else { "a line\n".repeat(3_000) },
        ok: true,
        pinned: n == 3,
    };
    let asked = |text: &str| Turn { role: TurnRole::User, parts: vec![TurnPart::Text { text: text.to_owned() }] };
    let endpoint = ScriptedProvider::start(vec![says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.agent.context_window = Some(40_000);
    let mut run_of = fixture.run("And now?");
    run_of.submit.messages =
        vec![asked("First"), Turn { role: TurnRole::Assistant, parts: (0..12).map(call).collect() }, asked("Then")];
    result(run(run_of).await);
    let sent = messages(&endpoint, 0);
    assert_paired(&sent);
    assert!(sent.iter().any(|message| message["content"] == "First"));
    let pinned = sent.iter().find(|message| message["tool_call_id"] == "old3").expect("what is pinned");
    assert_eq!(pinned["content"], "pinned\n".repeat(300));
    assert_eq!(notices(&fixture).len(), 1);
    assert!(estimate(&endpoint.seen()[0].body.to_string()) < 25_000);
}
