//! Playbooks as people write them, every mistake with its line, and inputs that arrive as they are.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

mod hostile;

/// The form, as the specification has it.
const FORM: &str = "\
# Playbook: <Name>

## Goal
<High-level objective>

## Steps
1. [Agent: <AgentName>] <Instruction>
2. [Agent: <AgentName>] <Instruction>
   - Constraint: <Constraint>
";

/// Its example.
const EXAMPLE: &str = "\
# Playbook: release-feature

## Goal
Prepare a feature branch for release.

## Steps
1. [Coder] Run all tests and ensure they pass.
2. [Coder] Bump the version in package.json.
3. [Git] Create a new branch named `release/v<version>`.
4. [Git] Push the branch and open a PR.
";

fn good(text: &str) -> Playbook {
    let (playbook, errors) = parse(text);
    assert_eq!(errors, [], "{text}");
    playbook
}

/// A playbook whose steps are these lines, of which the first is line 5.
fn with_steps(steps: &str) -> String {
    format!("# Playbook: p\n## Goal\nDo it.\n## Steps\n{steps}")
}

/// A playbook with these lines in `## Inputs`, of which the first is line 5.
fn with_inputs(inputs: &str) -> String {
    format!("# Playbook: p\n## Goal\nDo <it>.\n## Inputs\n{inputs}\n## Steps\n1. [a] Do it.\n")
}

fn given(inputs: &[(&str, &str)]) -> BTreeMap<String, String> {
    inputs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_form_of_the_specification_is_a_playbook() {
    let form = good(FORM);
    assert_eq!((form.name.as_str(), form.goal.as_str()), ("<Name>", "<High-level objective>"));
    assert_eq!(form.inputs, [], "only lower-case names are inputs");
    let steps: Vec<_> = form.steps.iter().map(|step| (step.n, step.line, step.agent.as_str())).collect();
    assert_eq!(steps, [(1, 7, "<AgentName>"), (2, 8, "<AgentName>")]);
    assert_eq!(form.steps[1].bullets, ["Constraint: <Constraint>"]);
    assert!(form.steps.iter().all(|step| step.instruction == "<Instruction>"));
}

#[test]
fn the_example_of_the_specification_needs_a_version() {
    let example = good(EXAMPLE);
    assert_eq!(
        (example.name.as_str(), example.goal.as_str()),
        ("release-feature", "Prepare a feature branch for release.")
    );
    let version = PlaybookInput { name: "version".to_owned(), text: String::new(), required: true, line: 9 };
    assert_eq!(example.inputs, [version]);
    let agents: Vec<_> = example.steps.iter().map(|step| step.agent.as_str()).collect();
    assert_eq!(agents, ["Coder", "Coder", "Git", "Git"]);
    let after: Vec<_> = example.steps.iter().map(|step| step.after.clone()).collect();
    assert_eq!(after, [vec![], vec![1], vec![2], vec![3]]);
    let filled = example.fill(&given(&[("version", "1.2.0")])).expect("it has what it needs");
    assert_eq!(filled.steps[2].instruction, "Create a new branch named `release/v1.2.0`.");
    let missing = example.fill(&BTreeMap::new()).expect_err("no version");
    assert_eq!(missing, [PlaybookError { line: 9, message: "the input `version` is missing".to_owned() }]);
    assert_eq!(example.unknown_agents(&["coder", "git"]), []);
    let unknown = example.unknown_agents(&["coder"]);
    assert_eq!(unknown.iter().map(|error| error.line).collect::<Vec<_>>(), [9, 10]);
    assert!(unknown[0].message.contains("\"Git\"") && unknown[0].message.contains("coder"), "{unknown:?}");
}

#[test]
fn every_bullet_is_read() {
    let text = "\
# Playbook: figures
Who reads this: the team.

## Goal
Publish the figures of <month>.

## Inputs
- month: which month,
  as YYYY-MM (required)
- note: what else to say

## Steps
An introduction.

1. [Agent: Data-1] Compute the figures.

   Mind the time zones.
   - Constraint: no network
     but the database
     - and only reading
   - Viber: gpu=yes, region = eu
   - Gives: `figures-<month>.csv`, charts/a.png
   - RETRY: 3
   - Limits: minutes 20, costUsd 2.5, tokens 1000000, steps: 9, toolCalls=4

2) [writer] Write it down.
\t- after: none
\t- viber: press 1

### Later

3. [writer] Publish it.
   1. look
   2. press
   - Approve: After
   - After: 2, 1, 2

## Notes
1. [nobody] This is for readers.
";
    let playbook = good(text);
    let inputs: Vec<_> = playbook
        .inputs
        .iter()
        .map(|input| (input.name.as_str(), input.text.as_str(), input.required, input.line))
        .collect();
    assert_eq!(inputs, [("month", "which month, as YYYY-MM", true, 8), ("note", "what else to say", false, 10)]);
    let [first, second, third] = &playbook.steps[..] else { panic!("{:?}", playbook.steps) };
    assert_eq!(first.instruction, "Compute the figures.\n\nMind the time zones.");
    assert_eq!(first.bullets, ["Constraint: no network\nbut the database\n- and only reading"]);
    assert_eq!(first.viber, Some(StepViber::Labels(given(&[("gpu", "yes"), ("region", "eu")]))));
    assert_eq!(first.gives, ["figures-<month>.csv", "charts/a.png"]);
    let limits = TaskLimits {
        minutes: Some(20),
        cost_usd: Some(2.5),
        tokens: Some(1_000_000),
        steps: Some(9),
        tool_calls: Some(4),
        on_limit: None,
    };
    assert_eq!((first.retry, &first.limits, first.gate), (3, &limits, None));
    assert!(second.after.is_empty() && second.line == 26, "{second:?}");
    assert_eq!(second.viber, Some(StepViber::Name("press 1".to_owned())));
    assert_eq!(third.instruction, "Publish it.\n1. look\n2. press");
    assert_eq!((third.after.as_slice(), third.gate), (&[1, 2][..], Some(GatePoint::After)));
    let dos = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(good(&dos), playbook, "with the line ends and the mark of other systems");
    assert_eq!(good(&text.replace("## Goal", "## GOAL:").replace("# Playbook:", "# playbook :")), playbook);
}

#[test]
fn what_stands_in_a_block_of_code_is_no_structure() {
    let steps = "1. [a] Write this:\n   ```md\n# Playbook: other\n## Goal\n2. [b] no\n- After: 9\n   ```\n   - Note: in code\n     ~~~\n- x\n     ~~~\n2. [b] Go on with `<x>`.\n";
    let playbook = good(&with_steps(steps));
    assert_eq!((playbook.name.as_str(), playbook.steps.len()), ("p", 2));
    assert_eq!(
        playbook.steps[0].instruction,
        "Write this:\n```md\n# Playbook: other\n## Goal\n2. [b] no\n- After: 9\n```"
    );
    assert_eq!(playbook.steps[0].bullets, ["Note: in code\n~~~\n- x\n~~~"]);
    assert_eq!(playbook.inputs[0].name, "x");
}

#[test]
fn lines_go_on_as_in_markdown() {
    let steps = "1. [a] One\nline and\n   another.\n   - Rule: keep it\nshort\n\n   More to do.\n   Much more.\n";
    let playbook = good(&with_steps(steps));
    assert_eq!(playbook.steps[0].instruction, "One\nline and\nanother.\nMore to do.\nMuch more.");
    assert_eq!(playbook.steps[0].bullets, ["Rule: keep it\nshort"]);
}

#[test]
fn markup_is_no_input_unless_it_is_declared() {
    let names = |text: &str| -> Vec<String> { good(text).inputs.into_iter().map(|input| input.name).collect() };
    let steps = "1. [a] A<br>b <details>c</details> <title> <Upper> <a b> <1x> <x >\n   - Note: <b-1> `<c_2>`\n   - Gives: <d>.md\n";
    assert_eq!(names(&with_steps(steps)), ["title", "b-1", "c_2", "d"]);
    assert_eq!(names(&with_inputs("- br: a break")), ["br", "it"]);
    let long = format!("1. [a] <{}> <{}>\n", "x".repeat(64), "y".repeat(65));
    assert_eq!(names(&with_steps(&long)), ["x".repeat(64)]);
}

/// What is wrong with a text: the lines, and all words.
fn wrong(text: &str) -> (Vec<u32>, String) {
    let errors = parse(text).1;
    let words = errors.iter().map(|error| format!("line {}: {}\n", error.line, error.message)).collect();
    (errors.into_iter().map(|error| error.line).collect(), words)
}

#[test]
fn every_mistake_in_the_frame_has_its_line() {
    let (lines, words) = wrong("");
    assert_eq!(lines, [1, 1, 1], "{words}");
    for word in ["# Playbook: NAME", "## Goal", "## Steps"] {
        assert!(words.contains(word), "{words}");
    }
    let step = "## Steps\n1. [a] Do it.\n";
    for (text, line, word) in [
        (format!("# Notes\n## Goal\nx\n{step}"), 1, "# Playbook: NAME"),
        (format!("# Playbook:\n## Goal\nx\n{step}"), 1, "a name"),
        (format!("# Playbook: {}\n## Goal\nx\n{step}", "n".repeat(201)), 1, "at most 200 bytes"),
        (format!("# Playbook: a\n# Playbook: b\n## Goal\nx\n{step}"), 2, "comes twice"),
        (format!("# Playbook: a\n## Goal\n \n{step}"), 2, "## Goal"),
        (format!("# Playbook: a\n{step}"), 1, "## Goal"),
        (format!("# Playbook: a\n## Goal\nx\n## goal\ny\n{step}"), 4, "`## goal` comes twice"),
        ("# Playbook: a\n## Goal\nx\n\n## Steps\nNone yet.\n".to_owned(), 5, "## Steps"),
        (format!("# Playbook: a\n## Goal\nx\n{step}```\n"), 6, "no end"),
        (format!("# Playbook: a\n## Goal\nx\0y\n{step}"), 3, "control character"),
    ] {
        let (lines, words) = wrong(&text);
        assert_eq!(lines, [line], "{text:?}: {words}");
        assert!(words.contains(word), "{text:?}: {words}");
    }
    let (lines, words) = wrong(&"x".repeat(MAX_PLAYBOOK_BYTES + 1));
    assert!(lines == [1] && words.contains("256 KiB"), "{words}");
}

#[test]
fn every_mistake_in_a_step_has_its_line() {
    for (steps, line, word) in [
        ("1. [a] x\n3. [a] y\n", 6, "expected the step 2"),
        ("2. [a] x\n", 5, "expected the step 1"),
        ("0. [a] x\n", 5, "expected the step 1"),
        ("99999999999. [a] x\n", 5, "expected the step 1"),
        ("1. [a] x\n2. [a] y\n2. [a] z\n", 7, "two steps 2"),
        ("1. do it\n", 5, "no agent"),
        ("1. [] do it\n", 5, "no agent"),
        ("1. [Agent: ] do it\n", 5, "no agent"),
        ("1. [a do it\n", 5, "no agent"),
        ("1. [a]\n   - Note: x\n", 5, "what to do"),
        ("- [a] x\n1. [a] y\n", 5, "before its bullets"),
        ("1. [a] x\n   - After: 7\n", 6, "no step 7"),
        ("1. [a] x\n   - After: first\n", 6, "`1, 2`, or `none`"),
        ("1. [a] x\n   - After: 1,\n", 6, "`1, 2`, or `none`"),
        ("1. [a] x\n   - After:\n", 6, "`1, 2`, or `none`"),
        ("1. [a] x\n   - After: +1\n", 6, "`1, 2`, or `none`"),
        ("1. [a] x\n   - Note: y\n   - After: 1\n", 7, "comes after itself"),
        ("1. [a] x\n   - Approve: maybe\n", 6, "`before` or `after`"),
        ("1. [a] x\n   - Retry: 11\n", 6, "from 0 to 10"),
        ("1. [a] x\n   - Retry: -1\n", 6, "from 0 to 10"),
        ("1. [a] x\n   - Limits: minutes\n", 6, "minutes 20"),
        ("1. [a] x\n   - Limits: hours 2\n", 6, "minutes 20"),
        ("1. [a] x\n   - Limits: minutes 0\n", 6, "above 0"),
        ("1. [a] x\n   - Limits: minutes 2.5\n", 6, "above 0"),
        ("1. [a] x\n   - Limits: costUsd nan\n", 6, "above 0"),
        ("1. [a] x\n   - Limits: costUsd inf\n", 6, "above 0"),
        ("1. [a] x\n   - Limits: tokens 5, Tokens 6\n", 6, "twice"),
        ("1. [a] x\n   - Gives:\n", 6, "names of files"),
        ("1. [a] x\n   - Gives: a.md,, b.md\n", 6, "names of files"),
        ("1. [a] x\n   - Gives: ../a.md\n", 6, "leads elsewhere"),
        ("1. [a] x\n   - Gives: /etc/passwd\n", 6, "absolute"),
        ("1. [a] x\n   - Gives: a.md, A.md\n", 6, "twice"),
        ("1. [a] x\n   - Viber:\n", 6, "name of a viber"),
        ("1. [a] x\n   - Viber: gpu=yes, fast\n", 6, "name of a viber"),
        ("1. [a] x\n   - Viber: gpu=\n", 6, "name of a viber"),
        ("1. [a] x\n   - Viber: <machine>\n", 6, "name of a viber"),
        ("1. [a] x\n   - Viber: gpu=1, gpu=2\n", 6, "`gpu` is named twice"),
        ("1. [a] x\n   - Retry: 1\n   - retry: 2\n", 7, "`Retry` twice"),
    ] {
        let text = with_steps(steps);
        let (lines, words) = wrong(&text);
        assert_eq!(lines, [line], "{steps:?}: {words}");
        assert!(words.contains(word), "{steps:?}: {words}");
    }
    let many: String = (1..=MAX_PLAYBOOK_STEPS + 2).map(|n| format!("{n}. [a] x\n")).collect();
    let (lines, words) = wrong(&with_steps(&many));
    assert!(lines == [205] && words.contains("at most 200 steps"), "{words}");
}

#[test]
fn a_step_may_come_after_a_later_one_but_not_in_a_circle() {
    let steps = "1. [a] x\n   - After: 3\n2. [a] y\n   - After: none\n3. [a] z\n   - After: 2\n";
    let after: Vec<_> = good(&with_steps(steps)).steps.into_iter().map(|step| step.after).collect();
    assert_eq!(after, [vec![3], vec![], vec![2]]);
    // The third comes after the second, as it says nothing else; the sixth only waits for them.
    let steps = "1. [a] x\n2. [a] y\n   - After: 4, 1\n3. [a] z\n4. [a] u\n5. [a] v\n   - After: none\n6. [a] w\n   - After: 3\n";
    let (lines, words) = wrong(&with_steps(steps));
    assert!(lines == [7] && words.contains("the steps 2, 3 and 4 wait for each other"), "{words}");
    let two = "1. [a] x\n   - After: 2\n2. [a] y\n3. [a] z\n   - After: 3\n";
    let (lines, words) = wrong(&with_steps(two));
    assert_eq!(lines, [6, 9], "{words}");
}

#[test]
fn every_mistake_in_inputs_has_its_line() {
    for (inputs, line, word) in [
        ("- Version: x", 5, "[a-z][a-z0-9_-]*, not \"Version\""),
        ("- <it>: x", 5, "\"<it>\""),
        ("- it: x\n- : y", 6, "not \"\""),
        ("- it: x\n- it: y", 6, "declared twice"),
    ] {
        let (lines, words) = wrong(&with_inputs(inputs));
        assert_eq!(lines, [line], "{inputs}: {words}");
        assert!(words.contains(word), "{inputs}: {words}");
    }
    let many: String = (0..101).map(|n| format!("<x{n}> ")).collect();
    let (lines, words) = wrong(&with_steps(&format!("1. [a] {many}\n")));
    assert!(lines == [5] && words.contains("at most 100 inputs"), "{words}");
    let (playbook, errors) = parse(&with_steps(&"- x\n".repeat(1_000)));
    assert_eq!((errors.len(), playbook.steps.len()), (100, 0));
}

#[test]
fn values_are_checked_and_never_read_again() {
    let playbook = good(&with_inputs("- it: what (required)\n- more: what else"));
    assert_eq!(playbook.fill(&given(&[("it", "<more>"), ("more", "<it>")])).expect("filled").goal, "Do <more>.");
    for (inputs, line, word) in [
        (given(&[]), 5, "`it` is missing"),
        (given(&[("it", " ")]), 5, "`it` is missing"),
        (given(&[("it", "x"), ("its", "y")]), 0, "no input \"its\""),
        (given(&[("it", "x"), ("more", "y".repeat(4_097).as_str())]), 6, "4096 bytes"),
        (given(&[("it", "x\ny")]), 5, "line end"),
        (given(&[("it", "x\0")]), 5, "control character"),
    ] {
        let errors = playbook.fill(&inputs).expect_err(word);
        assert!(errors.len() == 1 && errors[0].line == line && errors[0].message.contains(word), "{errors:?}");
    }
    assert!(playbook.fill(&given(&[("it", "y".repeat(4_096).as_str())])).is_ok());
    let given_file = good(&with_steps("1. [a] x\n   - Gives: a-<name>.md\n"));
    assert_eq!(given_file.fill(&given(&[("name", "b c")])).expect("filled").steps[0].gives, ["a-b c.md"]);
    let away = given_file.fill(&given(&[("name", "/../../x")])).expect_err("it leads elsewhere");
    assert!(away.len() == 1 && away[0].line == 5, "{away:?}");
    let flood = good(&with_steps(&format!("1. [a] {}\n", "<x>".repeat(10_000))));
    let errors = flood.fill(&given(&[("x", "y".repeat(4_096).as_str())])).expect_err("too much");
    assert!(errors[0].line == 0 && errors[0].message.contains("1024 KiB"), "{errors:?}");
}

#[test]
fn agents_are_found_like_ids() {
    let agent = |known: &[&str], name: &str| agent_id(known, name);
    assert_eq!(agent(&["default", "coder"], "Coder").as_deref(), Some("coder"));
    assert_eq!(agent(&["Coder", "coder"], "coder").as_deref(), Some("coder"), "the same capitals go first");
    assert_eq!(agent(&["coder"], "code"), None);
    let many: Vec<String> = (0..20).map(|n| format!("a{n}")).collect();
    let known: Vec<&str> = many.iter().map(String::as_str).collect();
    let unknown = good(&with_steps("1. [b] x\n")).unknown_agents(&known);
    assert!(unknown[0].message.ends_with("a11, …"), "{unknown:?}");
}

#[test]
fn a_playbook_is_written_as_the_board_reads_it() {
    let text = with_steps("1. [a] x\n   - Viber: gpu=yes\n   - Approve: before\n   - Limits: minutes 5\n");
    let playbook = good(&text);
    let written = serde_json::to_value(&playbook).expect("JSON");
    let step = json!({ "n": 1, "line": 5, "agent": "a", "instruction": "x", "bullets": [], "viber": { "labels": { "gpu": "yes" } },
        "after": [], "gate": "before", "gives": [], "retry": 0, "limits": { "minutes": 5 } });
    assert_eq!(written, json!({ "name": "p", "goal": "Do it.", "inputs": [], "steps": [step] }));
    assert_eq!(serde_json::from_value::<Playbook>(written).expect("read back"), playbook);
    assert_eq!(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/// Text out of what playbooks consist of.
fn any_text() -> impl Strategy<Value = String> {
    let lines = proptest::sample::select(vec![
        "# Playbook: p",
        "#",
        "## Goal",
        "## goal:",
        "## Inputs",
        "## Steps",
        "### x",
        "## Other",
        "text",
        "  text",
        "",
        "1. [a] x",
        "1. [Agent: b] <x>",
        "2) [c]",
        "3. x",
        " 4.\t[d] y",
        "99999999999. [a] z",
        "- After: 1, 9",
        "   - After: 2",
        "   - after: none",
        "\t- Viber: a=b, c",
        "   - Gives: <x>.md, ..",
        "   - Retry: 1",
        "   - Limits: minutes 1, x",
        "   - Approve: after",
        "     - nested",
        "     - Approve: after",
        "   - **Approve:** before",
        "### y",
        "<!-- x",
        "y -->",
        "- v: w (required)",
        "- V: w",
        "```",
        "   ~~~~",
        "<x> <br> </x> <é>",
        "é\u{0}",
    ]);
    (proptest::collection::vec(lines, 0..40), proptest::sample::select(vec!["\n", "\r\n", "\r"]), any::<bool>())
        .prop_map(|(lines, end, mark)| format!("{}{}", if mark { "\u{feff}" } else { "" }, lines.join(end)))
}

/// A value that an input can have, placeholders among them.
fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{1,40}".prop_filter("it is missing, or two lines", |value| {
            !value.trim().is_empty() && !value.contains(['\u{2028}', '\u{2029}'])
        }),
        proptest::sample::select(vec!["<a>", "<b>", "<", ">", "a", "`", "- After: 1", "</a>"]).prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_read_has_its_lines_in_the_text(text in prop_oneof![any_text(), any::<String>()]) {
        let (playbook, errors) = parse(&text);
        let lines = 1..=u32::try_from(text.lines().count()).expect("few").max(1);
        prop_assert!(errors.iter().all(|error| lines.contains(&error.line)), "{:?}", errors);
        prop_assert!(errors.is_sorted_by_key(|error| error.line));
        prop_assert!(playbook.steps.iter().all(|step| lines.contains(&step.line)));
        prop_assert!(playbook.inputs.iter().all(|input| lines.contains(&input.line)));
        if errors.is_empty() {
            prop_assert!(!playbook.steps.is_empty() && !playbook.goal.is_empty() && !playbook.name.is_empty());
            prop_assert!(playbook.steps.iter().all(|step| !step.instruction.is_empty() && !step.agent.is_empty()));
        }
    }

    #[test]
    fn every_value_is_filled_in_byte_for_byte_and_once(a in any_value(), b in any_value()) {
        let text = with_steps("1. [x] Say <a>, <b> and <a>.\n   - Rule: <b><c>|<a>\n");
        let filled = good(&text.replace("Do it.", "From <a> to <b>, <c >.")).fill(&given(&[("a", a.as_str()), ("b", b.as_str()), ("c", "-")]));
        let filled = filled.expect("the values are good");
        prop_assert_eq!(filled.goal, format!("From {a} to {b}, <c >."));
        prop_assert_eq!(&filled.steps[0].instruction, &format!("Say {a}, {b} and {a}."));
        prop_assert_eq!(&filled.steps[0].bullets, &[format!("Rule: {b}-|{a}")]);
    }
}
