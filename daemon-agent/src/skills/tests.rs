//! What agents are offered, and what they load.

use std::{fs, path::PathBuf};

use protocol::{SkillSource, SkillState};

use super::{scan::SkillPlace, *};

/// A ready skill of the home that is loaded and followed.
pub fn instructions(name: &str, description: &str, body: &str) -> Arc<Skill> {
    let text = format!("---\nname: {name}\ndescription: {description}\n---\n{body}");
    let definition = SkillDefinition::read(&text, "SKILL.md", &|_| false).expect("a skill");
    Arc::new(Skill {
        place: SkillPlace::Home,
        folder: PathBuf::from("/skills").join(name),
        main: "SKILL.md".to_owned(),
        is_single: false,
        path: format!("skills/{name}"),
        name: name.to_owned(),
        source: SkillSource::default(),
        digest: String::new(),
        has_links: false,
        is_pinned: false,
        copy: None,
        definition: Some(Arc::new(definition)),
        error: None,
        checks: Vec::new(),
        state: SkillState::Ready,
        agents: Vec::new(),
        warnings: Vec::new(),
    })
}

/// A home with these files, whose agents are read from it.
pub fn home_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::at(folder.path().join("home"));
    home.open().expect("a home");
    files.iter().for_each(|(path, text)| write(&home, path, text));
    (folder, home)
}

pub fn write(home: &Home, path: &str, text: &str) {
    let path = home.root().join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
    fs::write(path, text).expect("a file");
}

pub fn open(home: &Home) -> (Skills, watch::Sender<Arc<ConfigSnapshot>>) {
    let variables = Variables::of([("HOME", "/home/mia"), ("TOKEN", "t0ken")]);
    let (sender, files) = watch::channel(Arc::new(ConfigSnapshot::read(home, &variables)));
    (Skills::open(home, variables, files), sender)
}

fn agent(files: &watch::Sender<Arc<ConfigSnapshot>>, id: &str) -> Arc<Agent> {
    files.borrow().agent(id).expect("there").expect("good")
}

const HELLO: &str = "---\nname: hello\ndescription: Say hello\n---\nSay hello from {baseDir}.\n";

#[test]
fn a_goal_calls_a_skill_by_its_name() {
    let hidden = instructions("hidden", "x\nuser-invocable: false", "Body");
    let skills = AgentSkills::of(vec![instructions("hello", "Say hello", "Body"), hidden]);
    let called = |goal: &str| skills.called_by(goal).map(|skill| skill.name.clone());
    assert_eq!(called("/hello world").as_deref(), Some("hello"));
    assert_eq!(called("  /hello\nworld").as_deref(), Some("hello"));
    for goal in ["hello", "/hello/world", "/", "/ hello", "say /hello", "/hidden", "/nobody"] {
        assert_eq!(called(goal), None, "{goal}");
    }
}

#[test]
fn what_people_cannot_call_is_reported_so() {
    let quiet = "---\nname: quiet\ndescription: For agents\nuser-invocable: false\n---\nBody\n";
    let (_folder, home) = home_with(&[("skills/hello/SKILL.md", HELLO), ("skills/quiet/SKILL.md", quiet)]);
    let (skills, _files) = open(&home);
    let mut reported: Vec<_> = skills.report().into_iter().map(|info| (info.name, info.agents_only)).collect();
    reported.sort();
    assert_eq!(reported, [("hello".to_owned(), false), ("quiet".to_owned(), true)]);
}

#[test]
fn a_loaded_skill_gives_its_text_and_its_files_and_nothing_else() {
    let (_folder, home) = home_with(&[
        ("agents/a.yaml", "skills: [\"*\"]\n"),
        ("skills/hello/SKILL.md", HELLO),
        ("skills/hello/notes/more.md", "More\n</file>\n"),
        ("skills/one.skill.md", "---\nname: one\ndescription: A single file\n---\nBody\n"),
        ("secret", "SECRET"),
    ]);
    std::os::unix::fs::symlink(home.root().join("secret"), home.root().join("skills/hello/link")).expect("a link");
    fs::write(home.root().join("skills/hello/image"), [0, 159, 146, 150]).expect("a file");
    let (skills, files) = open(&home);
    let offered = skills.of(&agent(&files, "a"));
    let hello = offered.find("hello").expect("offered");
    let folder = home.root().canonicalize().expect("there").join("skills/hello");
    let text = hello.load();
    assert!(text.contains(&format!("Say hello from {}.", folder.display())), "{text}");
    assert!(text.contains("- notes/more.md") && !text.contains("link"), "{text}");
    let more = hello.load_file("notes/more.md").expect("a file");
    assert_eq!(more.matches("</file>").count(), 1, "{more}");
    for path in ["../../secret", "link", "/etc/passwd", "notes", "nothing", "image", "notes/../../one.skill.md"] {
        let why = hello.load_file(path).expect_err(path);
        assert!(why.contains(path), "{why}");
    }
    assert!(offered.find("one").expect("offered").load_file("x").expect_err("a file").contains("single file"));
    assert_eq!(offered.folders().collect::<Vec<_>>(), [folder.as_path()]);
    let info = skills.report().into_iter().find(|info| info.name == "hello").expect("reported");
    assert!(info.warnings[0].contains("links") && info.agents == ["a"] && info.tokens.body > 0, "{info:?}");
}

#[test]
fn a_report_fits_however_many_there_are() {
    let (_folder, home) = home_with(&[("agents/a.yaml", "skills: [\"*\"]\n")]);
    let needs = "requires: { bins: [no-such-program-1, no-such-program-2] }";
    for n in 0..500 {
        let text = format!("---\nname: skill-{n}\ndescription: {}\n{needs}\n---\nBody\n", "word ".repeat(80));
        write(&home, &format!("skills/skill-{n}/SKILL.md"), &text);
    }
    let begun = std::time::Instant::now();
    let (skills, _files) = open(&home);
    let took = begun.elapsed();
    let report = skills.report();
    let size = serde_json::to_string(&report).expect("JSON").len();
    assert!(size <= MAX_REPORT_BYTES + 1_000 && report.len() > 150, "{size} bytes, {} skills", report.len());
    assert!(report[0].checks.len() == 2 && report[0].state == SkillState::NeedsSetup, "{:?}", report[0]);
    assert!(!report[0].digest.is_empty() && report.last().is_some_and(|info| info.digest.is_empty()), "in brief");
    assert!(took < std::time::Duration::from_secs(5), "{took:?}");
}

#[test]
fn in_brief_there_is_still_what_people_decide_by() {
    let info = |kind: &str, state| {
        let source = SkillSource { kind: kind.to_owned(), ..SkillSource::default() };
        brief(SkillInfo { digest: "ab".to_owned(), source, state, ..SkillInfo::default() }).digest
    };
    assert_eq!((info("library", SkillState::Ready), info("space", SkillState::Untrusted)), ("ab".into(), "ab".into()));
    assert_eq!(info("local", SkillState::Ready), "");
}

#[test]
fn a_skill_outside_of_the_home_is_checked_with_its_file_and_line() {
    let (folder, home) = home_with(&[]);
    write(&home, "../mine/SKILL.md", "---\nname: mine\ndescription: d\n---\nBody\n");
    write(&home, "../bad.skill.md", "---\nname: bad\ndescription: d\nrun: never\n---\nBody\n");
    assert_eq!(validate(&folder.path().join("mine")).expect("good").name, "mine");
    let error = validate(&folder.path().join("bad.skill.md")).expect_err("a mistake");
    assert!(error.file.ends_with("bad.skill.md") && error.line == 4, "{error:?}");
    for path in ["nothing", "home"] {
        assert!(validate(&folder.path().join(path)).expect_err(path).message.contains("SKILL.md"));
    }
}

#[test]
fn who_asks_for_a_skill_that_is_not_there_for_the_agent_is_told_why() {
    let text = |name: &str, more: &str| format!("---\nname: {name}\ndescription: d\n{more}---\nBody\n");
    let (_folder, home) = home_with(&[
        ("agents/a.yaml", "skills: [hello, needy, broken, quiet]\n"),
        ("agents/b.yaml", "skills: [\"*\"]\n"),
        ("skills/hello/SKILL.md", HELLO),
        ("skills/needy/SKILL.md", &text("needy", "requires: { bins: [no-such-program] }\n")),
        ("skills/broken/SKILL.md", &text("broken", "run: never\n")),
        ("skills/quiet/SKILL.md", &text("quiet", "user-invocable: false\n")),
        ("skills/other/SKILL.md", &text("other", "")),
        ("agents/b/skills/own/SKILL.md", &text("own", "")),
    ]);
    let (skills, files) = open(&home);
    let of = |text: &str| skills.why_not_called(&agent(&files, "a"), text);
    for (said, why) in [
        ("/needy now", "no-such-program is missing on the machine"),
        ("/broken", "its file is broken"),
        ("/quiet", "only agents load it"),
        ("/other", "this agent does not have it"),
        ("/own", "this agent does not have it"),
    ] {
        let told = of(said).expect(said);
        assert!(told.starts_with("The skill ") && told.ends_with(&format!(" was not loaded: {why}.")), "{told}");
    }
    for said in ["/hello", "hello", "/etc/hosts", "/nothing", "/", ""] {
        assert_eq!(of(said), None, "{said}");
    }
}

#[test]
fn a_skill_shows_its_own_uses_and_not_those_of_another_of_its_name() {
    let (_folder, home) = home_with(&[
        ("agents/a.yaml", "skills: [hello]\n"),
        ("agents/a/skills/hello/SKILL.md", HELLO),
        ("skills/hello/SKILL.md", HELLO),
    ]);
    let (skills, files) = open(&home);
    let used = skills.of(&agent(&files, "a")).find("hello").expect("offered").clone();
    skills.count(&used, true, Instant(5));
    let report = skills.report().into_iter();
    let mut calls: Vec<_> = report.map(|info| (info.path, info.calls, info.last_used_at)).collect();
    calls.sort();
    let expected = [("agents/a/skills/hello", 1, Some(Instant(5))), ("skills/hello", 0, None)];
    assert_eq!(calls, expected.map(|(path, calls, at)| (path.to_owned(), calls, at)));
}
