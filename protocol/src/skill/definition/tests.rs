//! Front matters as people write them, each with what is expected of it.

use super::*;

const FRONT_MATTERS: &str = include_str!("front_matters.txt");

/// The commands of a machine.
fn is_program(name: &str) -> bool {
    matches!(name, "git" | "ls")
}

#[test]
fn a66_a67_front_matters_load_or_say_where_they_are_wrong() {
    let mut wrong = Vec::new();
    let cases: Vec<(&str, &str)> =
        FRONT_MATTERS.split("%%%% ").skip(1).map(|case| case.split_once('\n').expect("an expectation")).collect();
    assert!(cases.len() >= 60, "{}", cases.len());
    for (expected, text) in cases {
        let read = SkillDefinition::read(text, "SKILL.md", &is_program);
        let found = match &read {
            Ok(skill) => format!("{} {}", if skill.script.is_some() { "tool" } else { "instructions" }, skill.name),
            Err(error) => format!("error {} {}", error.line, error.message),
        };
        let (expected, warning) =
            expected.split_once(" ~").map_or((expected, None), |(expected, warning)| (expected, Some(warning)));
        let warnings = read.as_ref().map(|skill| skill.warnings.join("; ")).unwrap_or_default();
        let is_met = match expected.strip_prefix("error ").and_then(|rest| rest.split_once(' ')) {
            Some((line, word)) => found.starts_with(&format!("error {line} ")) && found.contains(word),
            None => found == expected && warning.map_or(warnings.is_empty(), |warning| warnings.contains(warning)),
        };
        if !is_met {
            wrong.push(format!("expected {expected} {warning:?}, found {found} {warnings:?} of\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn read(body: &str) -> SkillDefinition {
    let text = format!("---\nname: a\ndescription: b\nparameters: {{ x: {{}} }}\n---\n{body}");
    SkillDefinition::read(&text, "SKILL.md", &is_program).expect("a skill")
}

#[test]
fn the_script_is_what_the_text_says_and_says_why() {
    let spec = read("# Procedure\ngit add .\ngit commit -m \"$x\"\n");
    let script = spec.script.expect("a script");
    assert_eq!((script.shell, script.text.as_str()), ("sh", "# Procedure\ngit add .\ngit commit -m \"$x\"\n"));
    assert_eq!(spec.runs, "a script: its text begins with the command git");
    let blocks = read("Do:\n\n```sh\necho 1\n```\n~~~bash\necho 2\n```\n~~~\n````text\n```sh\n````\n");
    let script = blocks.script.expect("a script");
    assert_eq!((script.shell, script.text.as_str()), ("bash", "echo 1\n\necho 2\n```\n"));
    assert_eq!(blocks.runs, "a script: 2 bash blocks in its text");
    let prose = read("Look at git first.");
    assert!(prose.script.is_none() && prose.runs.contains("\"Look\""), "{}", prose.runs);
    let open = read("```sh\necho open");
    assert_eq!(open.script.expect("a script").text, "echo open\n");
}

#[test]
fn what_is_too_long_or_empty_is_told() {
    let error = |body: &str| {
        let text = format!("---\nname: a\ndescription: b\nrun: script\nparameters: {{}}\n---\n{body}");
        SkillDefinition::read(&text, "SKILL.md", &is_program).expect_err("a mistake").message
    };
    assert!(error("").contains("empty"));
    assert!(error(&format!("git {}", "x".repeat(130_000))).contains("120 KiB"));
    assert!(error("git \0").contains("NUL"));
    let long = format!("---\nname: a\ndescription: {}\n---\n", "word ".repeat(1_000));
    let read = SkillDefinition::read(&long, "SKILL.md", &is_program).expect("a skill");
    assert!(read.description.len() <= 2_000 && read.warnings[0].contains("cut"), "{:?}", read.warnings);
}
