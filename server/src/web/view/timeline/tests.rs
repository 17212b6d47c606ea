//! Parts and events as a page shows them.

use serde_json::json;

use super::*;

fn call(id: &str, tool: &str) -> Part {
    Part::ToolCall {
        call_id: id.to_owned(),
        tool: tool.to_owned(),
        args: json!({"command": "ls", "path": "a"}),
        at: None,
    }
}

fn result(id: &str, ok: bool) -> Part {
    Part::ToolResult { call_id: id.to_owned(), tool: "shell".to_owned(), result: json!("out"), ok, duration_ms: 1_000 }
}

fn event(json: serde_json::Value) -> Report {
    let mut event = json!({"agentId": "default"});
    event.as_object_mut().expect("an object").extend(json.as_object().expect("an object").clone());
    let whole = json!({"seq": 1, "at": "2026-01-01T00:00:00.000Z", "type": "task:progress", "event": event});
    Report::read(&whole.to_string()).expect("an event")
}

#[test]
fn calls_fold_into_one_counted_group() {
    let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
    for part in [call("1", "shell"), result("1", true), call("2", "shell"), call("3", "read_file"), result("2", false)]
    {
        builder.part(&part);
    }
    let entries = builder.finish(false);
    let [TimelineEntry { body: EntryContent::Calls(group), .. }] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!((group.counted().as_str(), group.failed()), ("2 commands, 1 read", 1));
    assert!(group.is_open() && group.is_working());
}

#[test]
fn the_open_tail_continues_the_parts() {
    let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
    builder.part(&call("1", "shell"));
    builder.event(&event(json!({"type": "tool-output", "callId": "1", "content": "half"})));
    builder.event(&event(json!({"type": "text-delta", "content": "so "})));
    builder.event(&event(json!({"type": "text-delta", "content": "far"})));
    let entries = builder.finish(false);
    let [
        TimelineEntry { body: EntryContent::Calls(group), .. },
        TimelineEntry { body: EntryContent::Writing(text), .. },
    ] = entries.as_slice()
    else {
        panic!("{entries:?}")
    };
    assert_eq!((group.calls[0].output.html().as_str(), text.text.written()), ("half", "so far"));
    assert_eq!(&*text.html, "<div class=\"growing\"><p>so far</p></div>");
}

#[test]
fn ids_of_footnotes_are_the_messages_and_the_texts_own() {
    let source = "Fast[^1].\n\n[^1]: Measured.\n";
    for seq in [3, 4] {
        let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0).numbered(seq);
        builder.part(&call("1", "shell"));
        builder.part(&Part::text(source));
        builder.event(&event(json!({"type": "text-delta", "content": source})));
        let entries = builder.finish(true);
        assert_eq!(entries.iter().map(|entry| entry.index).collect::<Vec<_>>(), [0, 1, 2]);
        for entry in &entries[1..] {
            let EntryContent::Prose(html) = &entry.body else { panic!("{entry:?}") };
            assert!(html.contains(&format!("id=\"m-{seq}-{}-note-1\"", entry.index)), "{html}");
        }
    }
}

#[test]
fn a_withdrawn_step_takes_back_what_it_said() {
    let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
    builder.part(&Part::text("kept"));
    builder.event(&event(json!({"type": "step", "n": 2, "state": "started"})));
    builder.event(&event(json!({"type": "text-delta", "content": "oops"})));
    builder.event(&event(json!({"type": "step", "n": 2, "state": "discarded"})));
    assert_eq!(builder.finish(false).len(), 1);
}

#[test]
fn a_call_that_never_got_its_result_does_not_look_alive() {
    let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
    builder.part(&call("1", "shell"));
    let entries = builder.finish(true);
    let EntryContent::Calls(group) = &entries[0].body else { panic!("{entries:?}") };
    assert!(!group.is_open() && !group.is_working());
}

#[test]
fn no_number_of_a_viber_is_too_large_to_show() {
    let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
    for id in ["1", "2"] {
        builder.part(&call(id, "shell"));
        builder.event(&event(json!({"type": "tool-result", "callId": id, "tool": "shell", "result": "", "ok": true,
            "durationMs": u64::MAX})));
    }
    builder.event(&event(json!({"type": "gap", "from": u64::MAX, "to": 0, "bytes": 0, "reason": "a lie"})));
    let entries = builder.finish(true);
    let EntryContent::Calls(group) = &entries[0].body else { panic!("{entries:?}") };
    assert!(group.took().ends_with("min"), "{}", group.took());
    let mut usage = protocol::Usage { input_tokens: u64::MAX, ..protocol::Usage::default() };
    usage.add(&usage.clone());
    assert_eq!(usage.input_tokens, u64::MAX);
}

#[test]
fn what_does_not_fit_is_left_out_from_the_front() {
    let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
    builder.part(&Part::text("first"));
    for n in 0..200 {
        builder.part(&call(&format!("c{n}"), "shell"));
        builder.part(&result(&format!("c{n}"), true));
    }
    let entries = builder.finish(true);
    assert!(entries.len() > 6, "groups are bounded: {}", entries.len());
    let mut all = entries.clone();
    assert_eq!(fit(&mut all, 10_000_000), None);
    assert_eq!(all, entries);
    let mut some = entries.clone();
    let from = fit(&mut some, 20_000).expect("cut");
    assert!(some.iter().map(TimelineEntry::weight).sum::<usize>() <= 20_000 + 900);
    // The earlier page ends where this one begins, and what lies behind its end answers its last calls.
    let mut earlier = TimelineBuilder::new(TextAuthor::Agent, 0);
    earlier.part(&Part::text("first"));
    let parts: Vec<Part> =
        (0..200).flat_map(|n| [call(&format!("c{n}"), "shell"), result(&format!("c{n}"), true)]).collect();
    parts[..from - 1].iter().for_each(|part| earlier.part(part));
    earlier.answers(&parts[from - 1..]);
    let count = |entries: &[TimelineEntry]| -> usize {
        entries
            .iter()
            .map(|entry| if let EntryContent::Calls(group) = &entry.body { group.calls.len() } else { 0 })
            .sum()
    };
    assert_eq!(count(&earlier.finish(true)) + count(&some), 200);
    let mut rest = entries.clone();
    skip(&mut rest, from);
    assert_eq!(rest, some, "the same cut, by its place");
    let mut one = entries;
    fit(&mut one, 1).expect("cut");
    assert_eq!(count(&one), 1, "something is always there");
}

#[test]
fn no_text_is_too_long_for_a_page() {
    for text in [
        "x ".repeat(400_000),
        "`<&>`".repeat(20_000),
        "<".repeat(24_000),
        format!("```rust\n{}\n```", "a!(b);".repeat(3_900)),
    ] {
        let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
        builder.part(&Part::text(&text));
        builder.part(&Part::Reasoning { text: text.clone(), duration_ms: 1 });
        builder.part(&Part::Notice { level: NoticeLevel::Info, text: text.clone(), folded: None });
        builder.event(&event(json!({"type": "text-delta", "content": text})));
        let entries = builder.finish(false);
        assert_eq!(entries.len(), 4);
        assert!(
            entries.iter().all(|entry| entry.weight() <= 90_000),
            "{:?}",
            entries.iter().map(TimelineEntry::weight).collect::<Vec<_>>()
        );
    }
}

/// A call of each kind, hostile ones among them, in each state.
fn zoo() -> Vec<(&'static str, serde_json::Value, Option<(serde_json::Value, bool)>)> {
    let evil = "\"<&'>\u{1b}[31;1;2;4m".repeat(3_000);
    let long = json!({"exitCode": 1, "output": format!("{}\n", "\u{1b}[1;2;4;31m<\u{1b}[0m".repeat(700)).repeat(20)});
    vec![
        ("shell", json!({"command": evil}), None),
        ("shell", json!({"command": "make"}), Some((long, false))),
        ("shell", json!({"command": "make"}), Some((json!({"output": evil, "omitted": 7, "bytes": u64::MAX}), true))),
        ("edit_file", json!({"path": evil, "oldText": evil, "newText": "a\nb"}), Some((json!(evil), false))),
        ("write_file", json!({"path": "a", "content": "<&\n".repeat(9_000)}), Some((json!("Created"), true))),
        ("remember", json!({"note": evil}), Some((json!("It is in today's log."), true))),
        ("update_plan", json!({"markdown": evil}), None),
        ("add_artifact", json!({"id": evil, "title": evil}), Some((json!({"a": evil}), true))),
        (Box::leak("<".repeat(9_000).into_boxed_str()), json!({"x": [evil]}), Some((json!([evil]), true))),
    ]
}

#[test]
fn no_call_is_heavier_than_it_says() {
    for (n, (tool, args, answer)) in zoo().into_iter().enumerate() {
        for id in ["1".to_owned(), "\"<".repeat(100)] {
            let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
            builder.part(&Part::ToolCall {
                call_id: id.clone(),
                tool: tool.to_owned(),
                args: args.clone(),
                at: Some(Instant(0)),
            });
            builder.event(&event(
                json!({"type": "tool-output", "callId": id, "content": "<&>\u{1b}[31m\n".repeat(4_000)}),
            ));
            if let Some((result, ok)) = &answer {
                let artifact = json!({"type": COMMAND_OUTPUT_TYPE, "callId": id, "size": 1,
                    "artifactId": protocol::ArtifactId::new(1)});
                builder.part(&Part::Artifact { artifact });
                let (result, ok) = (result.clone(), *ok);
                builder.part(&Part::ToolResult {
                    call_id: id.clone(),
                    tool: tool.to_owned(),
                    result,
                    ok,
                    duration_ms: 9,
                });
            }
            let entries = builder.finish(false);
            assert_eq!(entries.len(), 1, "an output is no entry of its own");
            let session = protocol::SessionId::new(1);
            let view =
                crate::web::view::message::TimelineView { slug: "home", session: &session, seq: 1, entries: &entries };
            let (html, weight) = (view.to_string(), entries[0].weight());
            assert!(html.len() <= weight, "{n} {tool}: {} bytes, said {weight}", html.len());
            assert!(weight <= 45_000, "{n} {tool}: {weight}");
        }
    }
}
