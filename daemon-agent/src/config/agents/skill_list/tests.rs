//! A list changes, and nothing else: whatever else a person wrote into the file, and however they wrote it.

use proptest::prelude::*;

use super::*;

fn listed(text: &str) -> Vec<String> {
    YamlFile::of(text.to_owned(), "a.yaml").parse::<SkillsKey>().expect("YAML").skills.unwrap_or_default()
}

fn after(text: &str, name: &str, is_listed: bool) -> Option<String> {
    text::with_skill(text, &listed(text), name, is_listed)
}

#[test]
fn a_name_is_added_however_the_list_is_written() {
    for (before, expected) in [
        ("", "skills: [new]\n"),
        ("# mine\n", "# mine\nskills: [new]\n"),
        ("name: A", "name: A\nskills: [new]\n"),
        ("name: A\r\n", "name: A\r\nskills: [new]\r\n"),
        ("name: A\n...\n", "skills: [new]\nname: A\n...\n"),
        ("---\nsystemPrompt: |+\n  Hi\n\nname: A\n", "---\nsystemPrompt: |+\n  Hi\n\nname: A\nskills: [new]\n"),
        ("systemPrompt: |\n  Hi", "systemPrompt: |\n  Hi\nskills: [new]\n"),
        ("skills: []\n", "skills: [new]\n"),
        ("skills: [ ] # none\nname: A\n", "skills: [new ] # none\nname: A\n"),
        ("skills: [a, \"b\"] # two\n", "skills: [a, \"b\", new] # two\n"),
        ("\"skills\" : ['a',]\n", "\"skills\" : ['a', new,]\n"),
        ("skills: [\n  a, # one\n  b # [two], three\n]\n", "skills: [\n  a, # one\n  b, new # [two], three\n]\n"),
        ("skills:\n  - a # one\n  # and\n\nname: A\n", "skills:\n  - a # one\n  - new\n  # and\n\nname: A\n"),
        ("skills:\n- a\n- 'b'", "skills:\n- a\n- 'b'\n- new"),
        ("skills:\r\n  - a\r\nname: A\r\n", "skills:\r\n  - a\r\n  - new\r\nname: A\r\n"),
        ("skills: # none yet\nname: A\n", "skills: [new] # none yet\nname: A\n"),
    ] {
        assert_eq!(after(before, "new", true).as_deref(), Some(expected), "{before:?}");
    }
}

#[test]
fn a_name_is_taken_away_however_the_list_is_written() {
    for (before, expected) in [
        ("skills: [x]\n", "skills: []\n"),
        ("skills: [x,] # one\n", "skills: [] # one\n"),
        ("skills: [a, x]\n", "skills: [a]\n"),
        ("skills: [x, a]\n", "skills: [a]\n"),
        ("skills: [a, 'x', b,]\n", "skills: [a, b,]\n"),
        ("skills: [x, a, \"x\"]\n", "skills: [a]\n"),
        ("skills: [\n  a, # one\n  x # last\n]\n", "skills: [\n  a # one\n   # last\n]\n"),
        ("skills: [\n  a, # one\n  x\n]\n", "skills: [\n  a # one\n]\n"),
        ("skills: [\n  x, # one\n  a,\n]\n", "skills: [\n   # one\n  a,\n]\n"),
        ("skills: [\n  x,\n  a,\n]\n", "skills: [\n  a,\n]\n"),
        ("skills:\n  - x\nname: A\n", "skills: []\nname: A\n"),
        ("skills: # mine\n  - x # why\nname: A\n", "skills: [] # mine\n  # why\nname: A\n"),
        ("skills:\n- a\n- x\n", "skills:\n- a\n"),
        ("skills:\n  - x\n  # about b\n  - b\n  - x", "skills:\n  # about b\n  - b\n"),
    ] {
        assert_eq!(after(before, "x", false).as_deref(), Some(expected), "{before:?}");
    }
}

#[test]
fn what_is_not_written_plainly_is_left_alone() {
    for text in [
        "{ name: A }\n",
        "{ skills: [a] }\n",
        "skills: &all [a]\n",
        "skills: !!seq [a]\n",
        "skills: [\"a\\u0062\"]\n",
        "skills:\n  - >-\n    a\n",
        "skills: [a,\n",
        "  name: A\n",
        "skills: a\n",
    ] {
        let known: Vec<String> = YamlFile::of(text.to_owned(), "a.yaml")
            .parse::<SkillsKey>()
            .ok()
            .and_then(|key| key.skills)
            .unwrap_or_default();
        assert_eq!(text::with_skill(text, &known, "new", true), None, "{text:?}");
    }
    // What only looks like the key.
    let text = "systemPrompt: \"a\nskills: [b]\n  c\"\n";
    let draft = text::with_skill(text, &[], "new", true);
    assert!(draft.is_none_or(|draft| listed(&draft) == ["new"]), "{text}");
}

/// Lines that may be there, in any order.
fn some_of(lines: [&'static str; 5]) -> impl Strategy<Value = Vec<String>> {
    let lines = lines.map(prop::option::of);
    let there = Vec::from(lines).prop_map(|lines| lines.into_iter().flatten().collect::<Vec<String>>());
    there.prop_shuffle()
}

/// What else a file says: keys, comments, texts over several lines.
const ABOVE: [&str; 5] = [
    "# [a-z\\[\\],:# ]{0,20}",
    "",
    "name: [A-Z][a-z]{0,5}( # [a-z, \\[\\]]{0,9})?",
    "systemPrompt: \\|\n  [a-z][a-z:\\[\\], ]{0,20}\n\n  skills: \\[a\\]",
    "spaces:\n  - /[a-z]{1,5} # [a-z]{0,5}\n  - /[a-z]{1,5}",
];
const BELOW: [&str; 5] = [
    "  # [a-z\\[\\],:# ]{0,20}",
    "",
    "description: >-\n  [a-z]{1,9}\n  - [a-z]{1,9}",
    "model: \"[a-z]{1,5}/[a-z]{1,5}\"",
    "limits: \\{ steps: [1-9] \\}",
];

/// The same list in one of the ways in which people write it.
fn list_lines(names: &[String], form: usize) -> String {
    let joined = |between: &str| names.join(between);
    match form {
        _ if names.is_empty() && form < 4 => {
            ["skills: []", "skills: [ ]  # none", "skills: [\n]", "'skills' : []"][form].to_owned()
        }
        0 => format!("skills: [{}]", joined(", ")),
        1 => format!("skills: [ {} ]  # [some], names", joined(" ,")),
        2 => format!("skills: [\n  \"{}\", # a, b]\n  # more\n]", joined("\", # [x]\n  \"")),
        3 => format!("skills: # here\n  - {} # last", joined(" # [x]\n\n  # between\n  - ")),
        _ if names.is_empty() => "# no list".to_owned(),
        4 => format!("\"skills\":\n- '{}'", joined("'\n- '")),
        _ => format!("skills:\n    - {}", joined("\n    - ")),
    }
}

/// The comments of a text.
fn comments(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.find('#').map(|at| line[at..].trim_end())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_change_is_of_the_list_alone(
        above in some_of(ABOVE),
        below in some_of(BELOW),
        names in prop::collection::btree_set("[a-w][a-z0-9_-]{0,5}", 0..5),
        form in 0..6_usize,
        end in prop_oneof![Just("\n"), Just("")],
        crlf in any::<bool>(),
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let text = above.iter().chain([&list_lines(&names, form)]).chain(&below).cloned().collect::<Vec<_>>().join("\n");
        let text = if crlf { (text + end).replace('\n', "\r\n") } else { text + end };
        let source = YamlFile::of(text.clone(), "a.yaml");
        prop_assume!(source.parse::<std::collections::BTreeMap<String, serde_json::Value>>().is_ok());
        let known = listed(&text);
        prop_assume!(known == names);
        let more = after(&text, "zz", true);
        prop_assert!(more.is_some(), "cannot be added to:\n{}", text);
        let more = more.unwrap_or_default();
        prop_assert_eq!(listed(&more), [names.clone(), vec!["zz".to_owned()]].concat());
        // Everything of the text is still there, in its order.
        let mut rest = more.chars();
        prop_assert!(text.chars().all(|c| rest.any(|other| other == c)), "{}\n---\n{}", text, more);
        let less = after(&more, "zz", false);
        prop_assert!(less.is_some(), "cannot be taken from:\n{}", more);
        let less = less.unwrap_or_default();
        prop_assert_eq!(listed(&less), names.clone());
        prop_assert_eq!(comments(&less), comments(&text));
        for name in &names {
            let without = after(&text, name, false);
            prop_assert!(without.is_some(), "{} cannot be taken from:\n{}", name, text);
            let without = without.unwrap_or_default();
            let expected: Vec<String> = names.iter().filter(|known| *known != name).cloned().collect();
            prop_assert_eq!(listed(&without), expected);
            prop_assert_eq!(comments(&without), comments(&text));
        }
    }

    #[test]
    fn no_text_breaks_it(text in "(?s)(skills:|- |\\[|\\]|a|b|,|#|\"|'|\n| |\r|x: y\n|\\PC){0,24}") {
        for is_listed in [true, false] {
            if let Some(changed) = text::with_skill(&text, &["a".to_owned()], "b", is_listed) {
                prop_assert_eq!(listed(&changed).contains(&"b".to_owned()), is_listed);
            }
        }
    }
}

fn home_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::at(folder.path());
    home.open().expect("a home");
    for (path, text) in files {
        let path = home.root().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("written");
    }
    (folder, home)
}

fn names(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn a_skill_is_listed_by_the_agents_that_are_named_and_by_no_others() {
    let (_folder, home) = home_with(&[
        ("agents/a.yaml", "name: A # the first\n"),
        ("agents/b.yaml", "skills: [old, x]\n"),
        ("agents/all.yaml", "skills: [\"*\"]\n"),
        ("agents/broken.yaml", "nmae: [\n"),
        ("vibers/older.yaml", "name: Older\n"),
        ("vibers/a.yaml", "skills: [x]\n"),
    ]);
    let text = |path: &str| fs::read_to_string(home.root().join(path)).expect("there");
    let wanted = names(&["a", "all"]);
    assert_eq!(check_skill_agents(&home, "x", &wanted), Ok(()));
    assert_eq!(text("agents/a.yaml"), "name: A # the first\n", "only looked at");
    for _ in 0..2 {
        assert_eq!(set_skill_agents(&home, "x", &wanted), Ok(()));
        assert_eq!(text("agents/a.yaml"), "name: A # the first\nskills: [x]\n");
        assert_eq!(
            (text("agents/b.yaml"), text("agents/all.yaml")),
            ("skills: [old]\n".into(), "skills: [\"*\"]\n".into())
        );
    }
    for (agents, word) in [
        (vec!["a"], "agents/all.yaml lists all skills"),
        (vec!["all", "nobody"], "no agent \"nobody\""),
        (vec!["all", "broken"], "agents/broken.yaml:"),
        (vec!["all", "older"], "vibers/older.yaml is a file of the older form"),
    ] {
        let why = set_skill_agents(&home, "x", &names(&agents)).expect_err(word);
        assert!(why.contains(word), "{why}");
        assert_eq!(text("agents/a.yaml"), "name: A # the first\nskills: [x]\n", "nothing is half done");
    }
    assert!(set_skill_agents(&home, "../x", &wanted).is_err_and(|why| why.contains("not a skill's name")));
}

#[test]
fn a_skill_that_is_gone_is_named_by_no_agent() {
    let (_folder, home) = home_with(&[
        ("agents/a.yaml", "name: A\n"),
        ("agents/b.yaml", "skills: [old, x] # mine\n"),
        ("agents/all.yaml", "skills: [\"*\"]\n"),
        ("agents/broken.yaml", "nmae: [\n"),
    ]);
    let text = |path: &str| fs::read_to_string(home.root().join(path)).expect("there");
    for _ in 0..2 {
        assert_eq!(forget_skill(&home, "x"), Ok(()));
        assert_eq!(text("agents/a.yaml"), "name: A\n");
        assert_eq!(text("agents/b.yaml"), "skills: [old] # mine\n");
        assert_eq!(text("agents/all.yaml"), "skills: [\"*\"]\n");
    }
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let (folder, home) = home_with(&[("agents/b.yaml", "name: B\n"), ("real.yaml", "name: A\n")]);
    std::os::unix::fs::symlink(folder.path().join("real.yaml"), folder.path().join("agents/a.yaml")).expect("a link");
    let why = set_skill_agents(&home, "x", &names(&["a"])).expect_err("a link");
    assert!(why.contains("is a link"), "{why}");
    // What an editor saves meanwhile is read again.
    let path = home.agents().join("b.yaml");
    let times = std::cell::Cell::new(0);
    let saves_once = || {
        if times.replace(1) == 0 {
            fs::write(&path, "name: B2\n").expect("saved");
        }
    };
    assert_eq!(set_meanwhile(&home, "x", Some(&names(&["b"])), saves_once), Ok(()));
    assert_eq!(fs::read_to_string(&path).expect("there"), "name: B2\nskills: [x]\n");
    fs::write(&path, "name: B\n").expect("written");
    let saves = || {
        times.set(times.get() + 1);
        fs::write(&path, format!("maxSteps: {}\n", times.get())).expect("saved");
    };
    assert!(set_meanwhile(&home, "x", Some(&names(&["b"])), saves).is_err_and(|why| why.contains("keeps changing")));
}
