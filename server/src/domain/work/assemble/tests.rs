//! Any framing of the same events gives the same parts, and nothing that was said is lost.

use proptest::prelude::*;
use protocol::{
    AgentEvent,
    AgentStreamEvent::{self, *},
    ErrorCode, Instant, TaskError, TaskResult,
};
use serde_json::json;

use super::*;

fn report(seq: u64, body: EventBody) -> Report {
    Report { seq, first: seq, at: Some(Instant(1000 * seq as i64)), body: Some(body), bytes: 64 }
}

fn said(event: AgentStreamEvent) -> EventBody {
    EventBody::Progress { event: AgentEvent { agent_id: "default".into(), event } }
}

fn step(n: u32, state: StepState) -> AgentStreamEvent {
    Step { n, state, reason: (state == StepState::Discarded).then(|| "rate limit".into()) }
}

fn text(content: &str) -> AgentStreamEvent {
    TextDelta { content: content.into() }
}

/// Assembles `events` in commits that end after the given seqs, as the Board does: only `parts_seq` and the parts
/// survive a commit.
fn framed(events: &[EventBody], cuts: &[usize]) -> Vec<Part> {
    let reports: Vec<Report> = events.iter().enumerate().map(|(n, body)| report(n as u64 + 1, body.clone())).collect();
    let (mut parts, mut parts_seq, mut done) = (Vec::new(), 0, 0);
    for end in cuts.iter().copied().chain([reports.len()]) {
        if end <= done {
            continue;
        }
        let newest = parts.iter().rev().find(|part| matches!(part, Part::Text { .. }) || is_gap(part));
        let mut assembler = Assembler::new(parts_seq, matches!(newest, Some(Part::Text { .. })));
        reports[..end].iter().filter(|report| report.seq > parts_seq).for_each(|report| {
            assembler.read(report);
        });
        let new = assembler.finish();
        parts.extend(new.parts);
        (parts_seq, done) = (new.parts_seq, end);
    }
    parts
}

fn whole(events: &[AgentStreamEvent]) -> Vec<Part> {
    framed(&events.iter().cloned().map(said).collect::<Vec<_>>(), &[])
}

#[test]
fn what_is_asked_about_no_call_is_a_part() {
    let asked = |kind: &str| {
        let asked = json!({ "type": "approval-required", "approvalId": format!("apr_{:032x}", 1), "kind": kind, "digest": "d" });
        serde_json::from_value::<AgentStreamEvent>(asked).expect("an event")
    };
    let parts = whole(&[text("a"), asked("tool"), asked("question"), asked("budget"), text("b"), asked("plan")]);
    let kinds: Vec<Option<ApprovalKind>> = parts
        .iter()
        .map(|part| match part {
            Part::Approval { kind, .. } => Some(*kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [None, Some(ApprovalKind::Budget), None, Some(ApprovalKind::Plan)], "{parts:?}");
}

#[test]
fn a_step_becomes_parts_when_it_is_finished() {
    let events = [
        step(1, StepState::Started),
        ReasoningDelta { content: "let me ".into() },
        ReasoningDelta { content: "see".into() },
        text("I will "),
        text("look."),
        ToolCall { call_id: "c1".into(), tool: "shell".into(), args: json!({"command": "ls"}) },
    ];
    assert!(whole(&events).is_empty());
    let mut events = events.to_vec();
    events.push(step(1, StepState::Finished));
    events.push(ToolResult {
        call_id: "c1".into(),
        tool: "shell".into(),
        result: json!("a"),
        ok: true,
        duration_ms: 3,
    });
    let parts = whole(&events);
    assert_eq!(parts[0], Part::Reasoning { text: "let me see".into(), duration_ms: 1000 });
    assert_eq!(parts[1], Part::text("I will look."));
    assert!(matches!((&parts[2], &parts[3]), (Part::ToolCall { .. }, Part::ToolResult { ok: true, .. })));
}

#[test]
fn a_withdrawn_step_is_folded_and_belongs_to_no_answer() {
    let parts = whole(&[
        step(1, StepState::Started),
        text("half an ans"),
        step(1, StepState::Discarded),
        step(2, StepState::Started),
        text("The answer."),
        step(2, StepState::Finished),
    ]);
    let folded = Part::Notice {
        level: NoticeLevel::Info,
        text: "A model call was withdrawn: rate limit".into(),
        folded: Some("half an ans".into()),
    };
    assert_eq!(parts, [folded, Part::text("The answer.")]);
}

#[test]
fn a_result_that_was_streamed_is_not_said_twice_and_one_that_was_not_is_said() {
    let completed =
        |text: &str| EventBody::Completed { result: TaskResult { text: text.into(), ..TaskResult::default() } };
    let streamed = [
        said(step(1, StepState::Started)),
        said(text("All ")),
        said(text("done.\n")),
        said(step(1, StepState::Finished)),
        completed("All done."),
    ];
    assert_eq!(framed(&streamed, &[4]), [Part::text("All done.\n")]);
    assert_eq!(framed(&[EventBody::Accepted {}, completed("Silent.")], &[]), [Part::text("Silent.")]);
    let gap = Gap { from: 2, to: 3, bytes: 9, reason: "quota".into() };
    let cut = framed(&[said(text("All")), said(gap), completed("All done.")], &[1, 2]);
    assert_eq!(cut.last(), Some(&Part::text("All done.")));
}

#[test]
fn what_was_said_before_a_failure_or_a_gap_stays() {
    let error = TaskError {
        code: ErrorCode::Timeout,
        message: "too long".into(),
        retryable: true,
        suggestion: None,
        details: None,
    };
    let parts = framed(&[said(step(1, StepState::Started)), said(text("so far")), EventBody::Error { error }], &[1, 2]);
    assert_eq!(parts, [Part::text("so far")]);
    let parts = whole(&[
        text("before"),
        Gap { from: 2, to: 9, bytes: 100, reason: "outbox full".into() },
        step(2, StepState::Started),
    ]);
    assert!(matches!(&parts[1], Part::Notice { text, .. } if text.contains("8 events (100 bytes)")));
}

#[test]
fn a_call_with_other_arguments_replaces_the_open_one() {
    let call = |id: &str, command: &str| ToolCall {
        call_id: id.into(),
        tool: "shell".into(),
        args: json!({ "command": command }),
    };
    let result = |id: &str| ToolResult {
        call_id: id.into(),
        tool: "shell".into(),
        result: json!("r"),
        ok: true,
        duration_ms: 1,
    };
    let events = [call("a", "rm -r build"), call("b", "ls"), call("a", "rm build/x"), result("a"), call("b", "ls -l")];
    let parts = whole(&[events.as_slice(), &[result("b")]].concat());
    let asked = |part: &Part| match part {
        Part::ToolCall { call_id, args, .. } => format!("{call_id} {}", args["command"].as_str().unwrap_or_default()),
        _ => String::new(),
    };
    let asked: Vec<String> = parts.iter().map(asked).filter(|asked| !asked.is_empty()).collect();
    assert_eq!(asked, ["a rm build/x", "b ls", "b ls -l"], "what is a part already is followed by another one");
}

fn any_event() -> impl Strategy<Value = EventBody> {
    let call = "[a-c]";
    prop_oneof![
        4 => "[a-z ]{0,6}".prop_map(|content| said(TextDelta { content })),
        3 => "[a-z ]{0,6}".prop_map(|content| said(ReasoningDelta { content })),
        2 => call.prop_map(|id| said(ToolCall { call_id: id, tool: "shell".into(), args: json!({}) })),
        2 => call.prop_map(|id| said(ToolResult { call_id: id, tool: "shell".into(), result: json!("r"), ok: true, duration_ms: 1 })),
        1 => call.prop_map(|id| said(ToolOutput { call_id: id, content: "out".into(), before: None })),
        3 => (1u32..4, 0usize..3).prop_map(|(n, state)| said(step(n, [StepState::Started, StepState::Finished, StepState::Discarded][state]))),
        1 => (1u64..9).prop_map(|bytes| said(Gap { from: 1, to: 2, bytes, reason: "quota".into() })),
        1 => Just(said(Notice { level: NoticeLevel::Info, text: "note".into() })),
        1 => Just(said(Usage(protocol::Usage::default()))),
        1 => Just(EventBody::Started { pid: None, model: "m".into(), engine: "e".into() }),
    ]
}

proptest! {
    #[test]
    fn framing_makes_no_difference(
        mut events in prop::collection::vec(any_event(), 0..40),
        result in "[a-z ]{0,6}",
        cuts in prop::collection::btree_set(0usize..41, 0..12),
    ) {
        events.push(EventBody::Completed { result: TaskResult { text: result, ..TaskResult::default() } });
        let cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= events.len()).collect();
        prop_assert_eq!(framed(&events, &cuts), framed(&events, &[]));
    }
}

#[test]
fn a_long_text_has_several_parts_wherever_commits_lie() {
    let piece = "0123456789abcdef".repeat(1024);
    let mut events = vec![said(step(1, StepState::Started))];
    events.extend((0..40).map(|_| said(text(&piece))));
    events.push(said(step(1, StepState::Finished)));
    let parts = framed(&events, &[]);
    let said = |part: &Part| if let Part::Text { text, .. } = part { text.clone() } else { String::new() };
    let pieces: Vec<usize> = parts.iter().map(|part| said(part).len() / piece.len()).collect();
    assert_eq!(pieces, [16, 16, 8], "256 KiB, 256 KiB and the rest");
    assert!(parts[0].goes_on_in(parts.get(1)) && parts[1].goes_on_in(parts.get(2)) && !parts[2].goes_on_in(None));
    for cuts in [(1..42).collect::<Vec<usize>>(), vec![7, 23], vec![16, 17, 33]] {
        assert_eq!(framed(&events, &cuts), parts, "{cuts:?}");
    }
    assert!(parts.iter().map(said).collect::<String>() == piece.repeat(40));
}
