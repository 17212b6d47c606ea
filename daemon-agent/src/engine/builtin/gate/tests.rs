//! Verdicts on calls: by mode, by table, by rules, and the words of the questions.

use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::tools::{FileArea, ProposedFile};

fn gate(mode: AgentMode, sets: &[(&str, &[&str], &[&str], &[&str])]) -> Gate {
    let owned = |list: &[&str]| list.iter().map(|rule| (*rule).to_owned()).collect();
    let sets = sets.iter().map(|(origin, deny, ask, allow)| {
        let rules =
            ApprovalRules { deny: owned(deny), ask: owned(ask), allow: owned(allow), ..ApprovalRules::default() };
        NamedRules { origin: (*origin).to_owned(), rules: rules.read().expect("rules") }
    });
    Gate {
        mode,
        mode_origin: "the task's mode".to_owned(),
        sets: sets.collect(),
        allowed: HashSet::new(),
        network: Network::Open,
    }
}

fn proposal(subject: ProposalSubject) -> CallProposal {
    CallProposal {
        cwd: PathBuf::from("/code/app"),
        subject,
        variables: Vec::new(),
        files: Vec::new(),
        preview: String::new(),
        skill: None,
    }
}

fn command(line: &str) -> CallProposal {
    proposal(ProposalSubject::Command(line.to_owned()))
}

fn file(inside: &str, area: FileArea) -> CallProposal {
    let absolute = format!("/code/app/{inside}");
    proposal(ProposalSubject::File(ProposedFile { absolute, inside: Some(inside.to_owned()), area }))
}

/// `free`, `asks` or `denies`.
fn word(gate: &Gate, tool: &str, proposal: &CallProposal) -> &'static str {
    match gate.judge(tool, &json!({}), proposal) {
        CallVerdict::Free => "free",
        CallVerdict::Denied(_) => "denies",
        CallVerdict::Asked(_) => "asks",
    }
}

fn asked(gate: &Gate, tool: &str, proposal: &CallProposal) -> AskedCall {
    match gate.judge(tool, &json!({}), proposal) {
        CallVerdict::Asked(asked) => asked,
        other => panic!("not asked: {other:?}"),
    }
}

#[test]
fn each_mode_asks_about_what_it_says() {
    let cases: [(&str, CallProposal, &str); 10] = [
        ("read_file", file("src/a.rs", FileArea::Space), "free"),
        ("grep", file("", FileArea::Space), "free"),
        ("update_plan", proposal(ProposalSubject::Other), "free"),
        ("remember", proposal(ProposalSubject::Other), "free"),
        ("write_file", file("src/a.rs", FileArea::Space), "free"),
        ("write_file", file("sessions/x/walkthrough.md", FileArea::Session), "free"),
        ("edit_file", file("notes.md", FileArea::Elsewhere), "asks"),
        ("edit_file", file(".github/workflows/ci.yml", FileArea::Space), "asks"),
        ("shell", command("ls -la src"), "free"),
        ("shell", command("ls; rm -rf ."), "asks"),
    ];
    for (tool, proposal, decides) in cases {
        let changes = ["write_file", "edit_file", "shell"].contains(&tool);
        for (mode, expected) in [
            (AgentMode::AlwaysAsk, if changes { "asks" } else { "free" }),
            (AgentMode::ViberDecides, decides),
            (AgentMode::AlwaysExecute, "free"),
        ] {
            let gate = gate(mode, &[]);
            assert_eq!(word(&gate, tool, &proposal), expected, "{mode:?} {tool} {:?}", proposal.subject);
            // What passes without a look would pass with one.
            assert!(!gate.lets_pass(tool) || expected == "free");
        }
    }
}

#[test]
fn a_tool_of_a_server_is_asked_about_unless_a_rule_says_otherwise() {
    let call = proposal(ProposalSubject::Other);
    for (mode, expected) in
        [(AgentMode::AlwaysAsk, "asks"), (AgentMode::ViberDecides, "asks"), (AgentMode::AlwaysExecute, "free")]
    {
        assert_eq!(
            word(&gate(mode, &[]), "mcp__fs__read_file", &call),
            expected,
            "{mode:?}: whatever it says of itself"
        );
    }
    let ruled = gate(AgentMode::AlwaysAsk, &[("a", &["mcp__fs__delete"], &[], &["mcp__fs__*"])]);
    assert_eq!(word(&ruled, "mcp__fs__read_file", &call), "free");
    assert_eq!(word(&ruled, "mcp__fs__delete", &call), "denies");
    assert_eq!(word(&ruled, "mcp__web__read_file", &call), "asks");
    assert!(!ruled.lets_pass("mcp__fs__delete"));
}

#[test]
fn a_viber_decides_by_its_table() {
    let gate = gate(AgentMode::ViberDecides, &[]);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join(".git")).expect("a folder");
    let shell = |line: &str, cwd: &std::path::Path| {
        word(&gate, "shell", &CallProposal { cwd: cwd.to_owned(), ..command(line) })
    };
    for line in ["ls", "ls -la src", "cat src/main.rs Cargo.toml", "pwd", "git rev-parse HEAD", "git branch", "wc -l a"]
    {
        assert_eq!(shell(line, folder.path()), "free", "{line}");
    }
    for line in [
        "",
        "rm a",
        "ls && rm a",
        "ls > a",
        "ls | sh",
        "ls $(rm a)",
        "ls `rm a`",
        "X=1 ls",
        "ls *",
        "sort -o a b",
        "find . -delete",
        "sh -c ls",
        "./ls",
        "git push",
        "git diff --output=.bashrc",
        "git diff \"--out\"put=.bashrc",
        "git log --ext-diff",
        "git -c core.pager=x log",
        "git branch new",
        "git status",
        "git log --oneline -5",
        "git diff HEAD~1 -- src",
        "git ls-files -m",
        "git show",
        "pwd x",
        "env",
        "ls\nrm a",
    ] {
        assert_eq!(shell(line, folder.path()), "asks", "{line}");
    }
    // Files of an agent's own could look like a repository.
    assert_eq!(shell("git branch", &folder.path().join(".git")), "asks");
    for path in [".git/hooks/pre-commit", "sub/.git/config", ".bashrc", "AGENTS.md", "docs/agents.md", "Jenkinsfile"] {
        assert_eq!(word(&gate, "write_file", &file(path, FileArea::Space)), "asks", "{path}");
    }
    for path in ["src/a.rs", "a.txt", "git/hooks/x", "docs/AGENTS.md.txt"] {
        assert_eq!(word(&gate, "write_file", &file(path, FileArea::Space)), "free", "{path}");
    }
}

#[test]
fn a_denial_goes_before_a_question_before_a_permission_whoever_says_it() {
    let push = command("docker push origin main");
    for mode in [AgentMode::AlwaysAsk, AgentMode::ViberDecides, AgentMode::AlwaysExecute] {
        let allow: (&str, &[&str], &[&str], &[&str]) = ("the team's rules", &[], &[], &["shell(docker push **)"]);
        let ask: (&str, &[&str], &[&str], &[&str]) = ("the agent's file", &[], &["shell"], &[]);
        let deny: (&str, &[&str], &[&str], &[&str]) = ("policy.yaml", &["shell(docker push **)"], &[], &[]);
        assert_eq!(word(&gate(mode, &[allow]), "shell", &push), "free");
        assert_eq!(word(&gate(mode, &[allow, ask]), "shell", &push), "asks");
        let mut all = gate(mode, &[allow, ask, deny]);
        assert_eq!(word(&all, "shell", &push), "denies");
        all.allow_call("shell", &json!({}), None);
        all.allow_rule("shell(docker push origin main)", "Ada").expect("a rule");
        assert_eq!(word(&all, "shell", &push), "denies", "whatever a person allowed");
        let CallVerdict::Denied(why) = all.judge("shell", &json!({}), &push) else { panic!("denied") };
        assert!(why.contains("`shell(docker push **)` under `deny` of policy.yaml"), "{why}");
        assert_eq!(all.denies("shell", &push), Some(why));
    }
    let files = gate(AgentMode::AlwaysExecute, &[("policy.yaml", &["read_file(**/.env)"], &[], &[])]);
    assert_eq!(word(&files, "read_file", &file("sub/.env", FileArea::Space)), "denies");
    assert!(!files.lets_pass("read_file") && files.lets_pass("write_file"));
    // A rule about one tool that writes is about the other.
    let edits = gate(AgentMode::AlwaysExecute, &[("policy.yaml", &["edit_file(secret/**)"], &["remember"], &[])]);
    assert!(!edits.lets_pass("write_file") && !edits.lets_pass("edit_file") && edits.lets_pass("shell"));
    assert_eq!(word(&edits, "write_file", &file("secret/x", FileArea::Space)), "denies");
    assert!(
        edits.restricts_words("edit_file")
            && edits.restricts_words("remember")
            && !edits.restricts_words("update_plan")
    );
}

#[test]
fn rules_of_the_team_are_expanded_and_only_allow_what_is_narrow() {
    let owned = |list: &[&str]| list.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>();
    let written = ApprovalRules {
        deny: owned(&["file(secret/**)"]),
        ask: owned(&["search"]),
        allow: owned(&[
            "file",
            "shell",
            "shell(git **)",
            "shell(cargo test **)",
            "launch_rocket",
            "write_file(src/**)",
        ]),
        ..ApprovalRules::default()
    };
    let texts = |rules: &[Rule]| rules.iter().map(|rule| rule.as_str().to_owned()).collect::<Vec<_>>();
    let team = team_rules(&written, true).expect("readable");
    let denied = ["read_file", "write_file", "edit_file", "list_files"].map(|tool| format!("{tool}(secret/**)"));
    assert_eq!((texts(&team.deny), texts(&team.ask)), (denied.to_vec(), owned(&["glob", "grep"])));
    let narrow = owned(&["read_file", "list_files", "shell(cargo test **)", "write_file(src/**)"]);
    assert_eq!(texts(&team.allow), narrow);
    // Where the machine bounds the mode, the team restricts as before and allows nothing.
    let bound = team_rules(&written, false).expect("readable");
    assert_eq!((bound.deny.len(), bound.ask.len(), bound.allow.len()), (4, 2, 0));
    for unknown in [
        ApprovalRules { deny: owned(&["launch_rocket"]), ..ApprovalRules::default() },
        ApprovalRules { ask: owned(&["launch_rocket"]), ..ApprovalRules::default() },
    ] {
        assert!(team_rules(&unknown, true).is_err_and(|why| why.contains("launch_rocket")));
    }
}

#[test]
fn a_permission_for_git_counts_in_a_repository_alone() {
    let allow: &[&str] = &["shell(git status **)"];
    let gate = gate(AgentMode::ViberDecides, &[("the team's rules", &[], &[], allow)]);
    let folder = tempfile::tempdir().expect("a folder");
    let at = |inside: &str| {
        let cwd = folder.path().join(inside);
        std::fs::create_dir_all(&cwd).expect("made");
        CallProposal { cwd, ..command("git status -s") }
    };
    assert_eq!(word(&gate, "shell", &at("src")), "asks", "no repository");
    std::fs::create_dir(folder.path().join(".git")).expect("made");
    assert_eq!((word(&gate, "shell", &at("src")), word(&gate, "shell", &at(""))), ("free", "free"));
    // Files that an agent wrote look like a repository without a folder `.git`.
    for name in ["x/HEAD", "x/objects/a"] {
        let file = folder.path().join("src").join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(&file, "").expect("written");
    }
    assert_eq!((word(&gate, "shell", &at("src/x")), word(&gate, "shell", &at("src/x/y"))), ("asks", "asks"));
}

#[test]
fn what_people_allowed_holds_for_the_call_or_for_the_rule() {
    let mut gate = gate(AgentMode::AlwaysAsk, &[("the agent's file", &[], &["shell(cargo doc **)"], &[])]);
    let (test, make) = (command("cargo test -p a"), command("make all"));
    gate.allow_call("shell", &json!({ "command": "make all" }), None);
    assert!(matches!(gate.judge("shell", &json!({ "command": "make all" }), &make), CallVerdict::Free));
    assert_eq!(word(&gate, "shell", &make), "asks", "other arguments");
    gate.allow_rule("shell(cargo test **)", "Ada").expect("a rule");
    assert_eq!((word(&gate, "shell", &test), word(&gate, "shell", &command("cargo build"))), ("free", "asks"));
    gate.allow_rule("shell(cargo doc --open)", "Ada").expect("a rule");
    assert_eq!(word(&gate, "shell", &command("cargo doc --open")), "asks", "a rule that asks goes before it");
    for (rule, part) in [("shell", "every command"), ("shell(sudo **)", "runs others"), ("shell(", "bracket")] {
        assert!(gate.allow_rule(rule, "Ada").is_err_and(|why| why.contains(part)), "{rule}");
    }
}

#[test]
fn a_question_says_why_and_proposes_a_narrow_rule() {
    let gate = gate(
        AgentMode::ViberDecides,
        &[("policy.yaml", &["shell(sudo **)"], &[], &[]), ("the agent's file", &[], &["shell(git push **)"], &[])],
    );
    let push = asked(&gate, "shell", &command("git push"));
    assert_eq!(push.reason, "the rule `shell(git push **)` under `ask` of the agent's file");
    assert_eq!(push.rule, None);
    let hidden = asked(&gate, "shell", &command("$X ls"));
    assert!(hidden.reason.contains("`shell(sudo **)` under `deny` of policy.yaml could be meant"), "{}", hidden.reason);
    let build = asked(&gate, "shell", &command("cargo build --release"));
    assert_eq!(build.reason, "the task's mode is viber_decides: a command that may change something");
    assert!(build.risk.ends_with("over the network."), "{}", build.risk);
    for (line, rule) in [
        ("cargo build --release", Some("shell(cargo build **)")),
        ("rm -rf build", Some("shell(rm -rf build)")),
        ("npm run lint:fix", Some("shell(npm run lint:fix)")),
        ("./configure", None),
        ("make && make install", None),
        ("python x.py", None),
        ("bash -c ls", None),
        ("rm *.o", None),
    ] {
        assert_eq!(asked(&gate, "shell", &command(line)).rule.as_deref(), rule, "{line}");
    }
    for (path, area, rule) in [
        ("src/b/a [1].rs", FileArea::Elsewhere, "write_file(src/b/**)"),
        ("we{ir}d/a", FileArea::Elsewhere, "write_file(we\\{ir\\}d/**)"),
        ("a.txt", FileArea::Elsewhere, "write_file(a.txt)"),
        (".github/workflows/ci.yml", FileArea::Space, "write_file(.github/workflows/ci.yml)"),
    ] {
        assert_eq!(asked(&gate, "write_file", &file(path, area)).rule.as_deref(), Some(rule));
    }
}

#[test]
fn a_digest_names_everything_that_would_run() {
    let whole = || {
        let files = vec![protocol::AffectedFile { path: "/code/app/a".to_owned(), hash: Some("1".to_owned()) }];
        CallProposal { variables: vec!["PATH".to_owned()], files, ..command("ls") }
    };
    let args = json!({ "command": "ls" });
    let one = digest("shell", &args, &whole());
    assert_eq!((one.len(), &one), (64, &digest("shell", &args, &whole())));
    let mut others = vec![digest("other", &args, &whole()), digest("shell", &json!({ "command": "ls " }), &whole())];
    let changes: [fn(&mut CallProposal); 4] = [
        |call| call.cwd = PathBuf::from("/code"),
        |call| call.variables.clear(),
        |call| call.files[0].hash = None,
        |call| call.files[0].hash = Some("2".to_owned()),
    ];
    for change in changes {
        let mut call = whole();
        change(&mut call);
        others.push(digest("shell", &args, &call));
    }
    assert!(!others.contains(&one));
}

#[test]
fn a_rule_may_name_a_skill() {
    let script = CallProposal { skill: Some("d1".to_owned()), ..command("make dist") };
    let gate = |mode, deny: &[&str], ask: &[&str], allow: &[&str]| gate(mode, &[("policy.yaml", deny, ask, allow)]);
    let denying = gate(AgentMode::AlwaysExecute, &["skill:publish"], &[], &[]);
    assert_eq!(word(&denying, "publish", &script), "denies");
    assert!(denying.denies("publish", &script).is_some_and(|why| why.contains("skill:publish")));
    assert_eq!((word(&denying, "other", &script), word(&denying, "shell", &command("make"))), ("free", "free"));
    assert!(!denying.lets_pass("publish") && denying.lets_pass("other") && denying.lets_pass("shell"));
    let asking = gate(AgentMode::AlwaysExecute, &[], &["skill:publish"], &[]);
    assert!(asked(&asking, "publish", &script).reason.contains("`skill:publish` under `ask` of policy.yaml"));
    let mut allowing = gate(AgentMode::AlwaysAsk, &[], &[], &["skill:publish"]);
    assert_eq!((word(&allowing, "publish", &script), word(&allowing, "other", &script)), ("free", "asks"));
    assert!(allowing.allow_rule("skill:other", "Ada").is_err(), "people decide about a version");
    // What its script may not is not freed.
    let both = gate(AgentMode::AlwaysAsk, &["shell(make **)"], &[], &["skill:publish"]);
    assert_eq!(word(&both, "publish", &script), "denies");
}
