//! Which turns a summary takes the place of, and what is told of them.

use proptest::prelude::*;
use protocol::{MessageId, context::ContextBudget};

use super::*;
use crate::domain::{
    Part, TaskState,
    context::{DEFAULT_KEPT_TURNS, Exchange, PastMessage, Pin, Pins, PlanReason, Summary},
};

/// Turns that take about so many tokens each, with the seqs 1, 3, 5 …
fn past(turns: usize, tokens: usize, summary: Option<Summary>) -> Past {
    pinned_past(turns, tokens, summary, Pins::default())
}

fn pinned_past(turns: usize, tokens: usize, summary: Option<Summary>, pins: Pins) -> Past {
    let mut past = Past::new(u64::MAX, pins, summary);
    for n in (0..turns).rev() {
        if !past.take(turn(n, vec![Part::text(format!("a{n} {}", "wor ".repeat(tokens)))])) {
            return past;
        }
    }
    past.end();
    past
}

/// The turn with this number and this answer.
fn turn(n: usize, answer: Vec<Part>) -> Exchange {
    let seq = 2 * n as u64 + 1;
    let said = |seq: u64, parts| PastMessage {
        id: format!("msg_{seq:032x}").parse().ok(),
        seq,
        parts,
        ..PastMessage::default()
    };
    let (question, answer) = (said(seq, vec![Part::text(format!("q{n}"))]), said(seq + 1, answer));
    Exchange { question, answer, state: TaskState::Completed }
}

/// Turns that read two files of 247 lines each, and answer at length: those behind the summary.
fn reading_past(turns: usize, summary: Option<Summary>) -> Past {
    let mut past = Past::new(u64::MAX, Pins::default(), summary);
    for n in (0..turns).rev() {
        let mut answer = Vec::new();
        for file in ["a", "b"] {
            let (call_id, tool) = (format!("{file}{n}"), "read_file".to_owned());
            let args = serde_json::json!({ "path": format!("src/{file}{n}.rs") });
            let result = serde_json::json!("    a line of code that does something\n".repeat(247));
            answer.push(Part::ToolCall { call_id: call_id.clone(), tool: tool.clone(), args, at: None });
            answer.push(Part::ToolResult { call_id, tool, result, ok: true, duration_ms: 1 });
        }
        answer.push(Part::text("wor ".repeat(900)));
        if !past.take(turn(n, answer)) {
            return past;
        }
    }
    past.end();
    past
}

fn settings(window: u64) -> PlanSettings {
    PlanSettings {
        budget: ContextBudget { window, reserve: 0, fixed: 0 },
        threshold_percent: 70,
        caps: ResultCaps::default(),
        kept_turns: DEFAULT_KEPT_TURNS,
        asked: 0,
        estimate_percent: 100,
    }
}

fn standing(range: CompactedRange, turns: usize) -> usize {
    (0..turns).filter(|n| 2 * *n as u64 + 1 > range.up_to).count()
}

fn compaction(range: CompactedRange) -> Compaction {
    let CompactedRange { up_to, replaced, longest, before, rest } = range;
    Compaction { up_to, replaced, longest, before, rest, ..Compaction::unknown() }
}

#[test]
fn one_that_was_asked_for_before_an_update_is_read() {
    let old = serde_json::json!({ "upTo": 3, "applies": true, "automatic": false, "replaced": 900, "longest": 450,
        "before": 5_000, "rest": 3_000 });
    let read: Compaction = serde_json::from_value(old).expect("a compaction");
    assert_eq!(read.rest, RestOfRequest { fixed: 3_000, standing: 0, estimate_percent: 100, tighter: None });
    let again = serde_json::to_value(&read).expect("JSON");
    assert_eq!(serde_json::from_value::<Compaction>(again).expect("the same"), read);
    assert_eq!(read.after("x"), 3_000 + words_cost(&marked_summary("x")));
}

#[test]
fn as_many_turns_stand_as_leave_enough_room() {
    let of = |turns, standing| range(&past(turns, 500, None), &settings(10_000), standing);
    // Of 10,000 tokens 2,000 have to be freed; thirteen turns of 506 are sent now, and the summary may take 1,750.
    assert_eq!(standing(of(20, StandingTurns::Enough).expect("a range"), 20), 5);
    assert_eq!(standing(of(10, StandingTurns::Enough).expect("a range"), 10), 2);
    assert_eq!(standing(of(4, StandingTurns::Enough).expect("a range"), 4), 2, "as many as can be, where none suffice");
    assert_eq!(of(4, StandingTurns::OnlyEnough), None);
    assert_eq!(of(2, StandingTurns::Enough), None, "there is nothing to compact");
    assert_eq!(standing(of(20, StandingTurns::Exactly(9)).expect("a range"), 20), 9);
    assert_eq!(of(20, StandingTurns::Exactly(20)), None);
}

#[test]
fn a_session_is_compacted_before_turns_are_left_out_and_not_before_each_task() {
    let settings = PlanSettings {
        budget: ContextBudget { window: 32_000, reserve: 8_000, fixed: 6_000 },
        ..self::settings(32_000)
    };
    let (mut summary, mut compacted) = (None, Vec::new());
    for turns in 1..=40 {
        let past = reading_past(turns, summary.clone());
        let is_left_out = matches!(plan(&past, &settings).why, PlanReason::LeftOut { .. });
        let found = range(&past, &settings, StandingTurns::OnlyEnough);
        assert!(!is_left_out || found.is_some(), "turn {turns} is left out without a summary");
        let Some(found) = found.filter(|_| is_left_out) else { continue };
        let text = "wor ".repeat(usize::try_from(found.longest).expect("short") * 9 / 10);
        let after = compaction(found).after(&text);
        summary = Some(Summary { text, up_to: found.up_to });
        compacted.push(turns);
        let next = plan(&reading_past(turns, summary.clone()), &settings);
        assert!(!matches!(next.why, PlanReason::LeftOut { .. }), "{turns}: {:?}", next.why);
        assert_eq!(settings.budget.fixed + next.total, after, "what is told is what is planned");
    }
    assert!(compacted.len() >= 4 && compacted.windows(2).all(|two| two[1] - two[0] >= 3), "{compacted:?}");
}

#[test]
fn turns_that_do_not_fit_beside_each_other_are_summed_up_down_to_the_newest() {
    let of = |lengths: &[usize]| {
        let mut past = Past::new(u64::MAX, Pins::default(), None);
        for (n, tokens) in lengths.iter().enumerate().rev() {
            assert!(past.take(turn(n, vec![Part::text("wor ".repeat(*tokens))])));
        }
        past.end();
        past
    };
    let backlogs: [(&[usize], usize); 6] = [
        (&[5_000, 5_000], 1),
        (&[150, 150, 5_000, 5_000], 1),
        (&[4_500, 150, 5_000, 5_000], 1),
        (&[150, 150, 6_900, 150], 1),
        (&[150, 8_000], 0),
        (&[6_900, 6_900], 0),
    ];
    for (lengths, stand) in backlogs {
        let (past, settings) = (of(lengths), settings(10_000));
        assert!(matches!(plan(&past, &settings).why, PlanReason::LeftOut { .. }));
        let found = range(&past, &settings, StandingTurns::NoneLost).expect("a range");
        assert_eq!(standing(found, lengths.len()), stand, "{lengths:?}");
        // A smaller share that people chose is no reason to sum up what a request carries.
        assert_eq!(range(&past, &settings, StandingTurns::OnlyEnough), None, "{lengths:?}");
    }
    // A short summary is asked for where a longer one would leave them no room.
    let (past, settings) = (of(&[3_000, 3_100, 3_100]), settings(10_000));
    let found = range(&past, &settings, StandingTurns::OnlyEnough).expect("room for a short one");
    assert!((MIN_SUMMARY_TOKENS..1_000).contains(&found.longest) && found.replaced > 3_000, "{found:?}");
}

#[test]
fn before_a_question_that_leaves_no_room_nothing_is_compacted() {
    let past = past(20, 500, None);
    for (asked, is_compacted) in [(0, true), (7_000, true), (9_950, false), (20_000, false)] {
        let settings = PlanSettings { asked, ..settings(10_000) };
        let next = plan(&past, &settings);
        assert!(matches!(next.why, PlanReason::LeftOut { .. }));
        assert!(protocol::context::leaves_turns_out(&next.turns), "{asked}: the model is told");
        assert_eq!(range(&past, &settings, StandingTurns::NoneLost).is_some(), is_compacted, "{asked}");
    }
}

#[test]
fn beside_a_long_question_the_summary_and_pins_stay() {
    let id: MessageId = format!("msg_{:032x}", 1).parse().expect("an id");
    let pins: Pins = [Pin { message: id, call: None, place: 1 }].into_iter().collect();
    let text = "wor ".repeat(1_500).trim_end().to_owned();
    let mut past = pinned_past(12, 400, Some(Summary { text: text.clone(), up_to: 3 }), pins);
    past.take_pinned(turn(0, vec![Part::text("a0")]));
    for asked in [0, 5_000, 7_400] {
        let settings = PlanSettings { asked, ..settings(10_000) };
        let next = plan(&past, &settings);
        let said: Vec<&str> = next.turns.iter().flat_map(|turn| &turn.parts).filter_map(said).collect();
        assert!(said.contains(&marked_summary(&text).as_str()) && said.contains(&"q0"), "{asked}: {next:?}");
        assert!(next.total + asked <= 10_000);
    }
}

fn said(part: &TurnPart) -> Option<&str> {
    match part {
        TurnPart::Text { text } => Some(text),
        _ => None,
    }
}

/// Turns whose question and answer take about so many tokens.
fn past_of(turns: &[(usize, usize)], summary: Option<Summary>) -> Past {
    let mut past = Past::new(u64::MAX, Pins::default(), summary);
    for (n, (asked, answered)) in turns.iter().enumerate().rev() {
        let mut turn = turn(n, vec![Part::text("wor ".repeat(*answered))]);
        turn.question.parts = vec![Part::text("wor ".repeat(*asked))];
        if !past.take(turn) {
            return past;
        }
    }
    past.end();
    past
}

fn leaves_out(past: &Past, settings: &PlanSettings) -> bool {
    matches!(plan(past, settings).why, PlanReason::LeftOut { .. })
}

/// A summary as long as may be.
fn summary_of(range: CompactedRange) -> Option<Summary> {
    let text = "wor ".repeat(usize::try_from(range.longest).expect("short") * 9 / 10);
    Some(Summary { text, up_to: range.up_to })
}

#[test]
fn one_that_was_asked_for_leaves_room_for_a_question_like_the_newest() {
    for (window, asked) in [(14_000, 1_670), (32_000, 3_470)] {
        let budget = ContextBudget { window, reserve: window / 4, fixed: 1_500 };
        let settings = PlanSettings { budget, ..settings(window) };
        let turns = vec![(asked, 10); 9];
        let found = on_request(&past_of(&turns, None), &settings).expect("a range");
        let next = PlanSettings { asked: asked as u64, ..settings };
        assert!(!leaves_out(&past_of(&turns, summary_of(found)), &next), "{window}: {found:?}");
    }
}

#[test]
fn no_turn_is_neither_in_the_summary_nor_in_the_request() {
    let settings = settings(10_000);
    for tokens in (100..3_400).step_by(150) {
        for standing in [StandingTurns::OnlyEnough, StandingTurns::Enough] {
            let (mut summary, mut compacted) = (None, Vec::new());
            // Many came together before anything was compacted.
            for turns in 12..30 {
                let now = past(turns, tokens, summary.clone());
                let is_left_out = |past: &Past| matches!(plan(past, &settings).why, PlanReason::LeftOut { .. });
                let Some(found) = range(&now, &settings, standing).filter(|_| is_left_out(&now)) else { continue };
                let text = "wor ".repeat(usize::try_from(found.longest).expect("short") * 9 / 10);
                summary = Some(Summary { text, up_to: found.up_to });
                assert!(
                    !is_left_out(&past(turns, tokens, summary.clone())),
                    "{tokens} {turns} {standing:?}: {found:?}"
                );
                compacted.push(turns);
            }
            let mut next = compacted.windows(2).skip(1);
            assert!(next.all(|two| two[1] - two[0] >= 2) || tokens > 1_500, "{tokens}: {compacted:?}");
        }
    }
}

#[test]
fn figures_of_another_plan_are_those_of_its_request() {
    let past = past(20, 500, None);
    let tight = PlanSettings { threshold_percent: 40, ..settings(20_000) };
    let range = range(&past, &tight, StandingTurns::OnlyEnough).expect("a range");
    let (usual, shown) = (settings(20_000), range.shown(&past, &settings(20_000)));
    assert_eq!((shown.up_to, shown.longest), (range.up_to, range.longest), "the same is compacted");
    assert_eq!(shown.before, plan(&past, &usual).total);
    assert!(range.before < 8_000 && shown.before > 10_000, "{range:?} {shown:?}");
}

#[test]
fn whatever_a_viber_says_of_its_window_so_much_is_read() {
    assert_eq!((readable(200_000), readable(1_000_000)), (800_000, 4_000_000));
    assert_eq!((readable(16_000_000), readable(u64::MAX)), (4_000_000, 4_000_000));
}

#[test]
fn what_is_pinned_is_told_newest_first_in_the_room_that_there_is() {
    let id = |seq: u64| -> MessageId { format!("msg_{seq:032x}").parse().expect("an id") };
    let pin = |place: u64, seq: u64| Pin { message: id(seq), call: None, place };
    let before = Summary { text: "## Session Summary (compacted)\n- x\n\n### Pinned\n- the oldest".into(), up_to: 0 };
    let past = |tokens| pinned_past(4, tokens, Some(before.clone()), [pin(1, 1), pin(3, 4)].into_iter().collect());
    let all = pinned(&past(10), 200).expect("pins");
    assert!(all.starts_with("\n\n### Pinned\n- the oldest\n- q0\n- a1 wor wor"), "{all}");
    let long = pinned(&past(3_000), 600).expect("pins");
    assert!(long.contains("tokens omitted]") && tokens::estimate(&long) <= 600, "{long}");
    assert_eq!(pinned(&past(3_000), 100), None, "older ones do not take the place of the newest");
    assert_eq!(pinned(&pinned_past(4, 9, None, Pins::default()), 600), None);
}

#[test]
fn a_summary_is_sound_that_says_something_is_shorter_and_is_carried_whole() {
    let compaction = Compaction { replaced: 2_000, longest: 400, carried: Some(900), ..Compaction::unknown() };
    let long = |tokens: u64| "wor ".repeat(usize::try_from(tokens).expect("few"));
    assert!(compaction.is_sound("- x") && !compaction.is_sound(" \n"));
    let (fits, beyond) = (long(600), long(1_500));
    assert!(tokens::estimate(&fits) > 400 && compaction.is_sound(&fits), "longer than was asked for, and whole");
    assert!(tokens::estimate(&beyond) < 2_000 && !compaction.is_sound(&beyond), "its middle would be cut");
    let earlier = Compaction { carried: None, ..compaction };
    assert_eq!((earlier.most(), earlier.is_sound(&fits)), (500, false), "one that was asked for before an update");
}

/// What `to_each_turn` answers, with a plan for each turn.
fn one_by_one(past: &Past, turns: usize, settings: &PlanSettings) -> Vec<CompactionTo> {
    let of = |keep: usize| {
        let range = range(past, settings, StandingTurns::Exactly(keep))?;
        Some(CompactionTo { up_to: range.up_to, keep: keep as u64, frees: range.frees() })
    };
    (1..turns).rev().filter_map(of).filter(|to| to.frees > 0).collect()
}

#[test]
fn compacting_to_a_turn_frees_what_its_own_plan_says() {
    let summary = || Some(Summary { text: format!("- It began.\n{}", "wor ".repeat(90)), up_to: 4 });
    let settings = settings(40_000);
    for (turns, tokens, summary) in [(12, 200, None), (30, 60, None), (5, 2_000, None), (9, 300, summary())] {
        let past = past(turns, tokens, summary);
        let next = plan(&past, &settings);
        assert_eq!(next.why, PlanReason::Fits { kept_turns: DEFAULT_KEPT_TURNS });
        let found = to_each_turn(&past, &settings, &next);
        assert!(found.len() > 2 && found.iter().all(|to| to.keep > 0), "{found:?}");
        assert_eq!(found, one_by_one(&past, turns, &settings));
    }
    let nothing = past(1, 900, None);
    assert!(to_each_turn(&nothing, &settings, &plan(&nothing, &settings)).is_empty(), "the newest turn stands");
}

#[test]
fn what_is_pinned_is_not_freed() {
    let answer: MessageId = format!("msg_{:032x}", 2).parse().expect("an id");
    let pins = [Pin { message: answer, call: None, place: 1 }].into_iter().collect();
    let (past, settings) = (pinned_past(8, 900, None, pins), settings(40_000));
    let found = to_each_turn(&past, &settings, &plan(&past, &settings));
    let all = self::past(8, 900, None);
    let unpinned = to_each_turn(&all, &settings, &plan(&all, &settings));
    assert_eq!((unpinned.len(), found.iter().any(|to| to.keep == 7)), (7, false), "the oldest by itself: {found:?}");
    assert!(!found.is_empty());
    for to in &found {
        let other = unpinned.iter().find(|other| other.keep == to.keep).expect("it frees more");
        assert!(other.frees - to.frees > 900, "{to:?} {other:?}");
    }
}

#[test]
fn the_summary_before_is_merged_and_noted_turns_are_marked() {
    let summary = Summary { text: "## Session Summary (compacted)\n- It began.".into(), up_to: 4 };
    let told = conversation(&past(5, 1, Some(summary)), Some(5));
    let words: Vec<String> = told
        .iter()
        .flat_map(|turn| &turn.parts)
        .map(|part| match part {
            TurnPart::Text { text } | TurnPart::Notice { text } => text.clone(),
            TurnPart::ToolCall { .. } => String::new(),
        })
        .collect();
    let marked = marked_summary("## Session Summary (compacted)\n- It began.");
    let expected = [marked.as_str(), "q2", "a2 wor ", "Notes were taken of everything", "q3"];
    assert!(marked.ends_with("- It began.\n</summary>"), "the question after it is no part of it");
    assert_eq!(words.len(), 8);
    assert!(words.iter().zip(expected).all(|(word, begins)| word.starts_with(begins)), "{words:?}");
}

/// Shares of a window, percent.
fn any_share() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1u64..=12, 3 => 12u64..=35, 2 => 35u64..=70, 1 => 70u64..=120]
}

proptest! {
    #[test]
    fn whatever_the_sizes_no_turn_is_neither_in_the_summary_nor_in_the_request(
        shares in prop::collection::vec((any_share(), any_share()), 2..7),
        steps in 1usize..3,
        window in 1_600u64..2_400,
        by_hand in prop::option::of(0usize..3),
    ) {
        let of = |share: u64| usize::try_from(window * share / 100).expect("few");
        let turns: Vec<(usize, usize)> = shares.into_iter().map(|(asked, answered)| (of(asked), of(answered))).collect();
        let budget = ContextBudget { window, reserve: window / 4, fixed: window / 10 };
        let usual = PlanSettings { budget, ..settings(window) };
        // What came together before anything was compacted.
        let backlog = turns.len().saturating_sub(steps).max(1);
        let mut summary = None;
        for (step, asked) in turns[backlog..].iter().map(|(asked, _)| *asked as u64).chain([50]).enumerate() {
            let turns = &turns[..backlog + step];
            let mut past = past_of(turns, summary.clone());
            if by_hand == Some(step) && let Some(found) = on_request(&past, &usual) {
                summary = summary_of(found);
                past = past_of(turns, summary.clone());
            }
            let settings = PlanSettings { asked, ..usual.clone() };
            let mut before = summary.as_ref().map_or(0, |summary| summary.up_to);
            while leaves_out(&past, &settings)
                && let Some(found) = range(&past, &settings, StandingTurns::NoneLost)
            {
                prop_assert!(found.up_to > before, "{} {:?}: it would never end", before, found);
                before = found.up_to;
                summary = summary_of(found);
                past = past_of(turns, summary.clone());
            }
            let next = plan(&past, &settings);
            prop_assert!(next.total <= next.room.max(settings.counted(notices_cost())));
            // Only where the question itself leaves no room.
            if leaves_out(&past, &settings) {
                prop_assert!(settings.estimated_room() < 256, "{} of {}: {:?}", asked, window, turns);
                let is_cut = |part: &TurnPart| matches!(part, TurnPart::Text { text } if text.contains(" tokens omitted]"));
                let is_told = protocol::context::leaves_turns_out(&next.turns)
                    || next.turns.iter().flat_map(|turn| &turn.parts).any(is_cut);
                prop_assert!(is_told, "the model is told");
            }
        }
    }

    #[test]
    fn what_is_promised_is_what_is_sent(turns in 3usize..30, tokens in 20usize..900, kept in 1usize..8, window in 2_000u64..40_000) {
        let (past, settings) = (past(turns, tokens, None), settings(window));
        let Some(range) = range(&past, &settings, StandingTurns::Exactly(kept)) else { return Ok(()) };
        prop_assert_eq!(standing(range, turns), kept);
        prop_assert!(range.longest < range.replaced && range.longest <= settings.room() / 4);
        prop_assert!(range.before <= settings.room() && range.rest.with(0) <= range.before);
        // A summary that is as long as may be is carried whole.
        let text = "wor ".repeat(usize::try_from(range.longest).expect("short") * 9 / 10);
        let after = compaction(range).after(&text);
        let newer = self::past(turns, tokens, Some(Summary { text, up_to: range.up_to }));
        let next = plan(&newer, &settings);
        prop_assert!(next.total <= after, "{} {}", next.total, after);
        if next.turns.len() == 2 * standing(range, turns) {
            prop_assert_eq!(next.total, after, "what is told is what is planned");
        }
        // What the summary is made of and what stands are all turns, each once.
        let older = told(&past, kept).tokens + told(&past.compacted(range.up_to), 0).tokens;
        let marks = words_cost(&marked_summary(""));
        prop_assert_eq!(older, tokens_of_all(&past) + marks, "a summary of no length takes its marks");
    }
}
