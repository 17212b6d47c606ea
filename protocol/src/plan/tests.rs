//! Plans as people, agents and programs write them, and plans that are refused.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const FILE: &str = "# Make the voucher test reliable\r\n\r\nNo retries.\r\n\r\n## First\r\n\r\n* [x] Reproduce with traces\r\n* [X] Find the order <!-- id: order -->\r\n  seen in `trace.zip`\r\n\r\n## Then\r\n\r\n1. [/] Hold for 50 runs\r\n   - [x] Kiosk type-checks\r\n   - [ ] 50 runs\r\n2. [ ] Open a PR\r\n\r\nA word at the end";

fn step(id: &str, title: &str, status: Status) -> Step {
    Step { id: id.to_owned(), title: title.to_owned(), status, todos: None }
}

fn read(text: &str) -> Steps {
    Steps::of(text)
}

#[test]
fn a_file_is_read_as_its_author_means_it() {
    let plan = read(FILE);
    assert_eq!(plan.goal, "Make the voucher test reliable");
    let ids: Vec<_> = plan.steps.iter().map(|step| (step.id.as_str(), step.status)).collect();
    use Status::{Done, Pending, Working};
    assert_eq!(ids, [("s1", Done), ("order", Done), ("s3", Working), ("s4", Pending)]);
    let todos = plan.steps[2].todos.as_ref().expect("to-dos");
    assert_eq!((todos.len(), todos[1].title.as_str()), (2, "50 runs"));
    let document = Document::parse(FILE);
    assert_eq!(document.notes(1), "seen in `trace.zip`\r\n");
    let pieces = document.pieces(FILE);
    let text = |n: usize| matches!(pieces[n], PlanPiece::Text(text) if !text.trim().is_empty());
    assert!(text(0) && pieces[1..3] == [PlanPiece::Step(0), PlanPiece::Step(1)] && text(3), "{pieces:?}");
    assert!(matches!(pieces.last(), Some(PlanPiece::Text(text)) if text.contains("A word at the end")));
}

#[test]
fn what_says_no_status_keeps_it() {
    let sent = json!({"steps": [
        {"title": "Reproduce with traces"},
        {"id": "order", "title": "Find it"},
        {"id": "s3", "title": "Hold for 50 runs", "status": "done", "todos": [{"title": "Kiosk type-checks"}, {"title": "New"}]},
        {"title": "Another"},
    ]});
    let plan = read(&markdown_of(&sent, FILE).expect("a plan"));
    use Status::{Done, Pending};
    assert_eq!(plan.steps.iter().map(|step| step.status).collect::<Vec<_>>(), [Done, Done, Done, Pending]);
    let todos = plan.steps[2].todos.as_ref().expect("to-dos");
    assert_eq!(todos.iter().map(|todo| todo.status).collect::<Vec<_>>(), [Done, Pending]);
    assert!(markdown_of(&json!({"goal": "Without steps"}), FILE).is_ok());
}

#[test]
fn one_tick_changes_one_byte() {
    let mut plan = read(FILE);
    plan.steps[3].status = Status::Done;
    plan.steps[2].todos = None;
    assert_eq!(plan.clone().onto(FILE).expect("fits"), FILE.replace("2. [ ] Open", "2. [x] Open"));
    plan.steps[3].status = Status::Pending;
    plan.steps[2].todos = Some(vec![
        PlanTodo { title: "Kiosk type-checks".into(), status: Status::Done },
        PlanTodo { title: "50 runs".into(), status: Status::Failed },
    ]);
    assert_eq!(plan.onto(FILE).expect("fits"), FILE.replace("- [ ] 50 runs", "- [!] 50 runs"));
}

#[test]
fn order_additions_and_removals_leave_every_other_line() {
    let mut plan = read(FILE);
    plan.steps.swap(2, 3);
    plan.steps.remove(0);
    plan.steps.push(step("", "Write the changelog", Status::Pending));
    let text = plan.clone().onto(FILE).expect("fits");
    for kept in [
        "No retries.\r\n",
        "## First\r\n",
        "  seen in `trace.zip`\r\n",
        "## Then\r\n",
        "- [ ] 50 runs\r\n",
        "A word at the end",
    ] {
        assert!(text.contains(kept), "{kept} is lost in {text}");
    }
    let after = read(&text);
    let ids: Vec<_> = after.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids[..3], ["order", "s4", "s3"], "ids go with their steps: {text}");
    assert_eq!(after.steps[3].title, "Write the changelog");
    assert!(!text.contains("Reproduce"));
}

#[test]
fn steps_without_ids_are_known_by_their_titles() {
    let sent = json!({"goal": "Ship", "steps": [{"title": "Open a PR", "status": "in_progress"}, {"title": "New"}]});
    let text = markdown_of(&sent, FILE).expect("a plan");
    let plan = read(&text);
    assert_eq!((plan.steps[0].id.as_str(), plan.steps[0].status), ("s4", Status::Working));
    assert_eq!(plan.goal, "Ship");
    assert!(text.contains("No retries."), "{text}");
}

#[test]
fn foreign_ids_are_text_and_masses_are_refused() {
    let sent = json!({"steps": [
        {"id": "javascript:alert(1)", "title": "a"}, {"id": "../../x", "title": "b"}, {"id": "--><script>", "title": "c\n- [x] d"},
        {"id": "s1", "title": "e"}, {"id": "s1", "title": "f"}
    ]});
    let plan = read(&markdown_of(&sent, "").expect("a plan"));
    let ids: std::collections::BTreeSet<_> = plan.steps.iter().map(|step| step.id.clone()).collect();
    assert_eq!((plan.steps.len(), ids.len()), (5, 5), "{plan:?}");
    assert!(ids.iter().all(|id| is_step_id(id)));
    let many: Vec<_> = (0..100_000).map(|n| json!({"title": n.to_string()})).collect();
    assert_eq!(markdown_of(&json!({"goal": "", "steps": many}), ""), Err(PlanError::TooManySteps(100_000)));
    assert!(matches!(markdown_of(&json!("- [ ] x\n".repeat(100_000)), ""), Err(PlanError::TooLarge(_))));
    for other in [json!(null), json!(7), json!([]), json!({"a": 1}), json!({"steps": "x"}), json!({"steps": [1]})] {
        assert_eq!(markdown_of(&other, ""), Err(PlanError::NotAPlan), "{other}");
    }
}

#[test]
fn a_long_file_is_read_in_part_and_edited_as_text_only() {
    let text = "- [ ] x\n".repeat(100_000);
    let document = Document::parse(&text);
    assert_eq!((document.steps().steps.len(), document.beyond()), (MAX_STEPS, 100_000 - MAX_STEPS));
    assert_eq!(Steps::default().onto(&text), Err(PlanError::AsTextOnly));
}

#[test]
fn code_is_not_a_step() {
    let text = "- [ ] a\n\n```sh\n- [ ] b\n```\n~~~\n- [x] c\n~~~\n- [ ] d\n";
    assert_eq!(read(text).steps.len(), 2);
}

#[test]
fn an_answer_may_say_the_plan() {
    let block = "Done so far.\n\n```plan\n# Goal\n- [x] a\n```\nBye";
    assert_eq!(of_answer(block), Some(json!("# Goal\n- [x] a\n")));
    let nested = "````plan\n- [ ] a\n  ```sh\n  ls\n  ```\n- [ ] b\n````";
    assert_eq!(of_answer(nested), Some(json!("- [ ] a\n  ```sh\n  ls\n  ```\n- [ ] b\n")));
    let json = "```plan\n{\"goal\":\"g\",\"steps\":[]}\n```";
    assert_eq!(of_answer(json), Some(json!({"goal": "g", "steps": []})));
    let section = "I did it.\n\n## Plan\n\nAs agreed:\n\n- [x] a\n- [ ] b\n\nTell me.\n\n## Notes\n\n- [ ] more";
    let steps = json!({"steps": [
        {"id": "s1", "title": "a", "status": "done"}, {"id": "s2", "title": "b", "status": "pending"},
    ]});
    assert_eq!(of_answer(section), Some(steps.clone()), "the list alone");
    for heading in ["# Plan", "### **Plan:**", "## PLAN ##"] {
        let answer = format!("{heading}\n- [x] a\n- [ ] b\n");
        assert_eq!(of_answer(&answer), Some(steps.clone()), "{heading}");
    }
    for none in [
        "",
        "All done.",
        "I planned:\n\n- [x] a\n- [x] b\n",
        "```md\n# x\n- [ ] a\n- [ ] b\n```",
        "# A\n\n- a\n- b",
        "# Ship it\n\n- [x] a\n- [ ] b\n",
        "- [x] a\n- [ ] b\n",
        "## Updated plan\n\n- [x] a\n- [ ] b\n",
        "## Why the plan failed\n\n- [x] a\n- [ ] b\n",
        "## Plan\n\nFirst this, then that.\n\n## To do\n\n- [ ] a\n- [ ] b\n",
        "~~~\n## Plan\n- [ ] a\n~~~\n",
    ] {
        assert_eq!(of_answer(none), None, "{none}");
    }
}

#[test]
fn a_change_keeps_what_it_does_not_mention() {
    let now = "# Ship it\n\nBy Friday.\n\n- [x] a\n- [ ] b\n";
    let change = |value: Value| markdown_of_change(&value, now).expect("a plan");
    let steps = change(json!({"steps": [{"title": "a"}, {"title": "c"}]}));
    assert!(steps.starts_with("# Ship it\n\nBy Friday.\n\n- [x] a\n- [ ] c"), "{steps}");
    assert_eq!(change(json!({"goal": "Ship"})), now.replace("Ship it", "Ship"));
    assert_eq!(change(json!("- [ ] d\n")), "- [ ] d\n", "a text is the whole");
    assert_eq!(words_of_line("  - [x] a b <!-- id: s9 -->"), "a b");
    assert_eq!(words_of_line("  prose "), "prose");
}

#[test]
fn moving_on_is_told_from_changing() {
    let before = read("# g\n- [ ] a\n- [ ] b\n");
    assert!(before.only_moves_to(&read("# g\n- [x] a\n- [/] b\n")));
    for other in ["# h\n- [ ] a\n- [ ] b\n", "# g\n- [ ] a\n", "# g\n- [ ] a\n- [ ] c\n", "# g\n- [ ] b\n- [ ] a\n"] {
        assert!(!before.only_moves_to(&read(other)), "{other}");
    }
}

fn any_status() -> impl Strategy<Value = Status> {
    proptest::sample::select(Status::ALL.to_vec())
}

fn any_title() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,12}( [a-z`*<>-]{1,8}){0,3}",
        Just("[x] - [ ] y".to_owned()),
        Just("a <!-- id: s1 -->".to_owned()),
        Just("```".to_owned()),
        Just(String::new()),
        any::<String>(),
    ]
}

fn any_steps() -> impl Strategy<Value = Steps> {
    let todos = proptest::option::of(proptest::collection::vec(
        (any_title(), any_status()).prop_map(|(title, status)| PlanTodo { title, status }),
        0..3,
    ));
    let id = prop_oneof![Just(String::new()), "s[1-6]", "[a-z]{1,4}", any::<String>()];
    let step =
        (id, any_title(), any_status(), todos).prop_map(|(id, title, status, todos)| Step { id, title, status, todos });
    (prop_oneof![any_title(), Just("a\n\n> b\n c".to_owned())], proptest::collection::vec(step, 0..6))
        .prop_map(|(goal, steps)| Steps { goal, steps })
}

fn any_text() -> impl Strategy<Value = String> {
    let lines = proptest::sample::select(vec![
        "# goal",
        "#",
        "> quoted",
        "",
        "text",
        "## part",
        "- [ ] a",
        "- [x] b <!-- id: s1 -->",
        "* [/] c",
        "1. [-] d",
        "  - [ ] below",
        "   - [x] below <!-- id: z -->",
        "  note",
        " - [ ] half",
        "\t- [!] tab",
        "```",
        "  ```",
        "~~~",
        "- plain",
        "- [ ]",
        "- [q] no",
        "- [ ]x",
        "  > q",
        "<!-- id: s2 -->",
    ]);
    (proptest::collection::vec(lines, 0..14), proptest::sample::select(vec!["\n", "\r\n"]), any::<bool>()).prop_map(
        |(lines, end, last)| {
            let text = lines.join(end);
            if last { format!("{text}{end}") } else { text }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_structured_plan_survives_its_file(steps in any_steps()) {
        let text = steps.clone().onto("").expect("it can be written");
        let back = Steps::of(&text);
        let sent = steps.tidy(&Steps::default());
        prop_assert_eq!(&back.goal, &sent.goal);
        for (back, sent) in back.steps.iter().zip(&sent.steps) {
            prop_assert_eq!((&back.id, &back.title, back.status), (&sent.id, &sent.title, sent.status));
            prop_assert_eq!(back.todos.as_deref().unwrap_or_default(), sent.todos.as_deref().unwrap_or_default());
        }
        prop_assert_eq!(back.steps.len(), sent.steps.len());
        prop_assert_eq!(Steps::of(&text).onto(&text).expect("the same"), text);
    }

    #[test]
    fn a_file_that_is_not_changed_keeps_every_byte(text in prop_oneof![any_text(), any::<String>()]) {
        prop_assert_eq!(Steps::of(&text).onto(&text).expect("the same"), text);
    }

    #[test]
    fn whatever_is_put_onto_whatever_stands_there_afterwards(text in any_text(), steps in any_steps()) {
        let known = Steps::of(&text);
        let wanted = steps.clone().tidy(&known);
        if let Ok(after) = steps.onto(&text) {
            let back = Steps::of(&after);
            prop_assert_eq!(&back.goal, &wanted.goal);
            let brief = |steps: &Steps| steps.steps.iter().map(|s| (s.id.clone(), s.title.clone(), s.status)).collect::<Vec<_>>();
            prop_assert_eq!(brief(&back), brief(&wanted));
            // Lines that are neither goal, step nor to-do are all there.
            for line in ["text", "## part", "  note", "<!-- id: s2 -->"] {
                let count = |text: &str| text.lines().filter(|other| other.trim() == line.trim()).count();
                prop_assert!(count(&after) >= count(&text) - removed(&text, &wanted, line), "{} in {:?}", line, after);
            }
        }
    }

    #[test]
    fn an_answer_is_searched_without_trouble(text in prop_oneof![any_text(), any::<String>()]) {
        let _ = of_answer(&text);
    }
}

/// Lines below steps that are gone go with them.
fn removed(text: &str, wanted: &Steps, line: &str) -> usize {
    let document = Document::parse(text);
    let gone =
        document.steps().steps.into_iter().enumerate().filter(|(_, old)| wanted.steps.iter().all(|s| s.id != old.id));
    gone.map(|(n, _)| document.notes(n).lines().filter(|other| other.trim() == line.trim()).count()).sum()
}
