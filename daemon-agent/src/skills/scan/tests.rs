//! Which skills there are, which of them are offered, and what becomes of them when files change.

use protocol::SkillInfo;

use super::*;
use crate::skills::{
    Skills,
    tests::{home_with, open, write},
};

fn skill(name: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}\n{more}---\nBody of {name}\n")
}

fn info(skills: &Skills, path: &str) -> SkillInfo {
    let found = skills.report().into_iter().find(|info| info.path == path);
    found.unwrap_or_else(|| panic!("{path} is not among {:#?}", skills.report()))
}

fn offered(skills: &Skills, files: &ConfigSnapshot, id: &str) -> Vec<String> {
    let agent = files.agent(id).expect("there").expect("good");
    skills.now().offered_to(&agent).iter().map(|skill| format!("{} {}", skill.name, skill.path)).collect()
}

#[test]
fn agents_are_offered_what_their_files_list_and_their_own_first() {
    let (folder, home) = home_with(&[
        ("agents/a.yaml", "skills: [\"*\"]\n"),
        ("agents/b.yaml", "skills: [both, gone]\n"),
        ("agents/c.yaml", "name: C\n"),
        ("skills/both/SKILL.md", &skill("both", "")),
        ("skills/home-only/SKILL.md", &skill("home-only", "")),
        ("agents/a/skills/both/SKILL.md", &skill("both", "")),
        ("agents/b/skills/broken/SKILL.md", "---\nname: both\n---\n"),
    ]);
    let space = folder.path().join("space");
    for (path, name) in [(".agents/skills/in-space", "in-space"), (".claude/skills/both", "both")] {
        write(&home, &format!("../space/{path}/SKILL.md"), &skill(name, ""));
    }
    write(&home, "agents/a.yaml", &format!("skills: [\"*\"]\nspaces: [{}]\n", space.display()));
    let (skills, files) = open(&home);
    let files = files.borrow().clone();
    assert_eq!(offered(&skills, &files, "a"), ["both agents/a/skills/both", "home-only skills/home-only"]);
    // A broken one hides no other.
    assert_eq!(offered(&skills, &files, "b"), ["both skills/both"]);
    assert!(offered(&skills, &files, "c").is_empty());
    let agent = files.agent("b").expect("there").expect("good");
    assert_eq!(skills.now().missing_for(&agent), ["gone"]);
    let real = space.canonicalize().expect("there");
    let in_space = info(&skills, &real.join(".agents/skills/in-space").display().to_string());
    assert_eq!((in_space.state, in_space.agents.len()), (SkillState::Untrusted, 0));
    assert_eq!(in_space.source.kind, "space");
    let shadowed = info(&skills, &real.join(".claude/skills/both").display().to_string());
    assert_eq!(shadowed.state, SkillState::Shadowed);
    assert_eq!(info(&skills, "skills/both").agents, ["b"]);
    assert_eq!(info(&skills, "agents/b/skills/broken").state, SkillState::Error);
}

#[test]
fn a_broken_edit_keeps_the_last_good_version_and_says_where() {
    let (_folder, home) = home_with(&[("agents/a.yaml", "skills: [x]\n"), ("skills/x/SKILL.md", &skill("x", ""))]);
    let (skills, files) = open(&home);
    let good = info(&skills, "skills/x");
    assert_eq!((good.state, good.error.is_none()), (SkillState::Ready, true));
    write(&home, "skills/x/SKILL.md", "---\nname: x\ndescription: [never\n---\n");
    // Text that is no YAML is read line by line; this is no text.
    write(&home, "skills/x/SKILL.md", "---\nname: x\ndescription: [never]\n---\n");
    skills.read();
    let broken = info(&skills, "skills/x");
    assert_eq!(
        (broken.state, &broken.digest, &broken.description),
        (SkillState::Ready, &good.digest, &good.description)
    );
    let error = broken.error.expect("an error");
    assert_eq!((error.file.as_str(), error.line), ("skills/x/SKILL.md", 3));
    assert_eq!(offered(&skills, &files.borrow().clone(), "a"), ["x skills/x"]);
    write(&home, "skills/x/SKILL.md", &skill("x", "license: MIT\n"));
    skills.read();
    let mended = info(&skills, "skills/x");
    assert!(mended.error.is_none() && mended.digest != good.digest, "{mended:?}");
    std::fs::remove_dir_all(home.root().join("skills/x")).expect("removed");
    skills.read();
    assert!(skills.now().all.is_empty(), "what was removed is gone");
}

#[test]
fn what_is_missing_keeps_a_skill_from_being_offered() {
    let tool = "parameters: { q: {} }\nrun: script\nrequires: { env: [TOKEN] }\n";
    let (_folder, home) = home_with(&[
        ("agents/a.yaml", "skills: [\"*\"]\n"),
        (
            "skills/bin/SKILL.md",
            &skill(
                "bin",
                "metadata: { openclaw: { requires: { bins: [no-such-program] }, install: [{ kind: brew, formula: nsp, bins: [no-such-program] }] } }\n",
            ),
        ),
        ("skills/os/SKILL.md", &skill("os", "metadata: { openclaw: { os: [darwin, win32] } }\n")),
        ("skills/env/SKILL.md", &skill("env", tool)),
        ("skills/text/SKILL.md", &skill("text", "requires: { env: [TOKEN] }\n")),
        ("skills/script/SKILL.md", &skill("script", "")),
        ("skills/script/run", "#!/usr/bin/env no-such-interpreter\n"),
    ]);
    let (skills, files) = open(&home);
    let missing = |name: &str| {
        let info = info(&skills, &format!("skills/{name}"));
        assert_eq!(info.state, SkillState::NeedsSetup, "{info:?}");
        info.checks.into_iter().find(|check| !check.ok).expect("something is missing")
    };
    assert_eq!(missing("bin").fix.as_deref(), Some("brew install nsp"));
    assert_eq!((missing("os").kind.as_str(), missing("script").kind.as_str()), ("os", "interpreter"));
    assert!(missing("env").fix.is_some_and(|fix| fix.contains("skills: { env: { env: { TOKEN: \"${TOKEN}\" } } }")));
    assert!(missing("text").fix.is_some_and(|fix| fix.contains("agent's file")));
    assert!(offered(&skills, &files.borrow().clone(), "a").is_empty());
    write(
        &home,
        "config.yaml",
        "skills: { env: { env: { TOKEN: \"${TOKEN}\" } }, other: { env: { X: \"${NOT_SET}\" } } }\n",
    );
    write(&home, "agents/a.yaml", "skills: [env, text]\nenv: [TOKEN]\n");
    let variables = Variables::of([("HOME", "/home/mia"), ("TOKEN", "t0ken")]);
    files.send_replace(Arc::new(ConfigSnapshot::read(&home, &variables)));
    skills.read();
    assert_eq!(offered(&skills, &files.borrow().clone(), "a"), ["env skills/env", "text skills/text"]);
    let config = &files.borrow().config;
    assert_eq!(config.skills["env"].0["TOKEN"], "t0ken");
    assert!(config.skills["other"].0.is_empty() && !format!("{config:?}").contains("t0ken"));
}

#[test]
fn names_are_unique_in_a_place_and_links_are_told() {
    let (folder, home) = home_with(&[
        ("agents/a.yaml", "skills: [\"*\"]\n"),
        ("skills/one/SKILL.md", &skill("same", "")),
        ("skills/two/SKILL.md", &skill("same", "")),
    ]);
    write(&home, "../elsewhere/SKILL.md", &skill("linked", ""));
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), home.root().join("skills/linked")).expect("a link");
    let (skills, files) = open(&home);
    assert_eq!(offered(&skills, &files.borrow().clone(), "a"), ["same skills/one"]);
    let second = info(&skills, "skills/two");
    assert_eq!(second.state, SkillState::Error);
    assert!(second.error.is_some_and(|error| error.message.contains("skills/one")));
    let link = info(&skills, "skills/linked");
    assert!(link.state == SkillState::Error && link.error.is_some_and(|error| error.message.contains("link")));
}

#[test]
fn where_a_bundle_was_fetched_is_shown() {
    let origin = r#"{"version":1,"registry":"https://clawhub.ai","slug":"weather","installedVersion":"1.2.0"}"#;
    let (_folder, home) = home_with(&[
        ("skills/weather/SKILL.md", &skill("weather", "")),
        ("skills/weather/.clawhub/origin.json", origin),
        ("skills/mine/SKILL.md", &skill("mine", "")),
        ("skills/mine/.clawhub/origin.json", "not JSON"),
    ]);
    let (skills, _files) = open(&home);
    let source = info(&skills, "skills/weather").source;
    assert_eq!((source.kind.as_str(), source.version.as_deref()), ("clawhub", Some("1.2.0")));
    assert_eq!(info(&skills, "skills/mine").source.kind, "local");
}

#[test]
fn a_decision_is_bound_to_no_script_with_links() {
    let text = "---\nname: run\ndescription: Runs\nparameters: {}\n---\n```sh\nsh \"$SKILL_DIR/x.sh\"\n```\n";
    let (_folder, home) = home_with(&[("agents/a.yaml", "skills: [\"*\"]\n"), ("skills/run/SKILL.md", text)]);
    let (skills, _files) = open(&home);
    let run = skills.now().all[0].clone();
    assert_eq!(run.digest_now().expect("readable"), run.digest);
    let link = home.root().join("skills/run/x.sh");
    std::os::unix::fs::symlink("/tmp/x.sh", &link).expect("a link");
    let why = run.digest_now().expect_err("it holds a link").to_string();
    assert!(why.contains("holds links"), "{why}");
    std::fs::remove_file(&link).expect("removed");
    assert!(run.digest_now().is_ok());
}

#[test]
fn no_name_forges_a_line() {
    let name = fallback_name(Path::new("/s/x\ndeploy (ready)\u{202e}\u{200b}"), "SKILL.md", false);
    assert_eq!(name, "xdeploy (ready)");
}
