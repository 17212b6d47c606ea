//! Playbooks that look like something else than they are, or that would take long to read.

use std::time::{Duration, Instant};

use super::*;

/// Time in which every flood has to be read, even by a machine that is busy.
const FLOOD_TIME: Duration = Duration::from_secs(30);

#[test]
fn comments_are_for_readers() {
    let steps = "1. [a] x\n<!--\n2. [b] not any more\n   - After: none\n-->\n<!-- <note> -->\n   - Rule: y <!-- said -->\n2. [c] z\n";
    let playbook = good(&with_steps(steps));
    let agents: Vec<_> = playbook.steps.iter().map(|step| step.agent.as_str()).collect();
    assert_eq!((agents, playbook.inputs.len()), (vec!["a", "c"], 0));
    assert_eq!(playbook.steps[0].bullets, ["Rule: y <!-- said -->"]);
    let code = good(&with_steps("1. [a] x\n   ```\n   <!-- kept -->\n   ```\n"));
    assert_eq!(code.steps[0].instruction, "x\n```\n<!-- kept -->\n```");
    let (lines, words) = wrong(&with_steps("1. [a] x\n<!-- and\n2. [b] y\n"));
    assert!(lines == [6] && words.contains("comment"), "{words}");
}

#[test]
fn what_stands_behind_a_heading_belongs_to_no_step() {
    let playbook = good(&with_steps("1. [a] x\n\n### Later\nSome words.\n   More of them.\n2. [b] y\n   and z\n"));
    let said: Vec<_> = playbook.steps.iter().map(|step| step.instruction.as_str()).collect();
    assert_eq!(said, ["x", "y\nand z"]);
    let (lines, words) = wrong(&with_steps("1. [a] x\n### Later\n- Approve: before\n2. [b] y\n"));
    assert!(lines == [7] && words.contains("before its bullets"), "{words}");
}

#[test]
fn what_looks_like_a_gate_is_one() {
    for bullet in [
        "   - **Approve:** before",
        "   - **Approve**: before",
        "   * _approve_ : before",
        "   - Approve\u{200b}: before",
        "   - Approve\u{ff1a}before",
        "   - \u{2060}Approve: before",
        "   -\u{200b}Approve: before",
        "   -\u{a0}Approve: before",
        "\u{a0}\u{a0}\u{a0}- Approve: before",
        "\u{200b}   - Approve: before",
    ] {
        let step = good(&with_steps(&format!("1. [a] x\n{bullet}\n"))).steps.remove(0);
        assert_eq!((step.gate, step.bullets.len(), step.instruction.as_str()), (Some(GatePoint::Before), 0, "x"));
    }
    let steps = good(&with_steps("1.\u{a0}[a] x\n\u{feff}2. [b] y\n   - **Gives:** `a.md`\n   - **Rule**: z\n")).steps;
    assert_eq!((steps.len(), steps[1].gives.as_slice()), (2, &["a.md".to_owned()][..]));
    assert_eq!(steps[1].bullets, ["**Rule**: z"]);
    for steps in ["1. [a] x\n   - Rule: y\n     - Approve: before\n", "1. [a] x\n   - Gives: a.md\n     - Retry: 1\n"] {
        let (lines, words) = wrong(&with_steps(steps));
        assert!(lines == [7] && words.contains("beneath another bullet"), "{words}");
    }
}

#[test]
fn inputs_that_have_to_be_given_say_so_anywhere() {
    let text = with_inputs("- it: (Required) what\n- more: what it is (required).\n- less: not required");
    let inputs = good(&text).inputs;
    let said: Vec<_> = inputs.iter().map(|input| (input.text.as_str(), input.required)).collect();
    assert_eq!(said, [("what", true), ("what it is.", true), ("not required", false)]);
}

#[test]
fn placeholders_do_not_make_others() {
    let playbook = good(&with_steps("1. [a] <a<b>> <<b>> <b>\n"));
    assert_eq!(playbook.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(), ["b"]);
    let filled = playbook.fill(&given(&[("b", "c")])).expect("filled");
    assert_eq!(filled.steps[0].instruction, "<ac> <c> c");
    let errors = playbook.fill(&given(&[("b", "x\u{2028}y")])).expect_err("two lines");
    assert!(errors[0].message.contains("line end"), "{errors:?}");
}

#[test]
fn a_step_that_no_task_could_be_told_is_a_mistake_before_it_runs() {
    let long = "y".repeat(4_096);
    for (text, value) in [("x".repeat(140_000), "-"), ("<v>".repeat(40), long.as_str())] {
        let playbook = good(&with_steps(&format!("1. [a] <v> {text}\n")));
        let errors = playbook.fill(&given(&[("v", value)])).expect_err("too long");
        assert!(errors.len() == 1 && errors[0].line == 5 && errors[0].message.contains("128 KiB"), "{errors:?}");
    }
    let (lines, words) = wrong(&with_steps(&format!("1. [{}] x\n", "a".repeat(201))));
    assert!(lines == [5] && words.contains("at most 200 bytes"), "{words}");
    let (lines, words) = wrong(&with_steps("1. [a] x\ry\n"));
    assert!(lines == [5] && words.contains("control character"), "{words}");
}

#[test]
fn a_flood_is_read_in_one_pass() {
    let begun = Instant::now();
    let many: String = (0..30_000).map(|n| format!("- a{n}\n")).collect();
    let (lines, words) = wrong(&with_inputs(&many));
    assert!(lines == [105] && words.contains("at most 100 inputs"), "{words}");
    for piece in [
        "   - x\n",
        "   - After: 1\n",
        "   - After: 1, 2, 3, 4, 5, 6, 7, 8, 9\n",
        "     - After: 1\n",
        "   - Gives: <b>\n",
        "<a",
        "<a<b>>",
        "</a><a>",
        "\t",
        "\u{200b}",
        "\n",
        "#\n",
        "### x\n",
        "   ```\n",
        "<!--\n",
        "2. [a] x\n",
    ] {
        let mut text = with_steps("1. [a] x\n");
        let room = MAX_PLAYBOOK_BYTES - text.len();
        text.push_str(&piece.repeat(room / piece.len()));
        let (playbook, errors) = parse(&text);
        assert!(errors.len() <= 100 && (1..=MAX_PLAYBOOK_STEPS).contains(&playbook.steps.len()), "{piece:?}");
        let value = |input: &PlaybookInput| (input.name.clone(), "<b>".repeat(1_000));
        let values: BTreeMap<String, String> = playbook.inputs.iter().map(value).collect();
        let longest = |filled: Playbook| filled.steps.iter().map(|step| step.instruction.len()).max();
        assert!(playbook.fill(&values).map(longest).unwrap_or_default() <= Some(128 * 1024), "{piece:?}");
    }
    assert!(begun.elapsed() < FLOOD_TIME, "{:?}", begun.elapsed());
}

#[test]
fn agents_that_differ_by_capitals_alone_are_named_exactly() {
    assert_eq!(agent_id(&["Coder", "CODER"], "coder"), None);
    assert_eq!(agent_id(&["Coder", "CODER"], "CODER").as_deref(), Some("CODER"));
}

#[test]
fn names_of_playbooks_are_plain_names_of_files() {
    assert_eq!(file_path("release-feature").as_deref(), Some("playbooks/release-feature.md"));
    let longest = "x".repeat(120);
    assert!(file_path(&longest).is_some() && file_path("Veröffentlichen 2").is_some());
    let long = "x".repeat(121);
    for name in
        ["", "..", ".hidden", "../x", "runs/x", "/x", "a\\b", "a\0", " x", "%2e%2e", "a\u{202e}b", long.as_str()]
    {
        assert_eq!(file_path(name), None, "{name:?}");
    }
}
