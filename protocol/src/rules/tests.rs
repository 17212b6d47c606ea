//! What rules match, however a command is written.

use proptest::prelude::*;

use super::*;

fn set(deny: &[&str], ask: &[&str], allow: &[&str]) -> RuleSet {
    let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    ApprovalRules { deny: list(deny), ask: list(ask), allow: list(allow), ..ApprovalRules::default() }
        .read()
        .expect("rules")
}

fn shell(command: &str) -> ProposedCall<'_> {
    ProposedCall { tool: "shell", subject: CallSubject::Command(command) }
}

fn denies(rule: &str, command: &str) -> bool {
    matches!(judge([&set(&[rule], &[], &["shell"])], &shell(command)), Some(RuleVerdict::Deny(_)))
}

fn asks_when_denied(rule: &str, command: &str) -> bool {
    matches!(judge([&set(&[rule], &[], &["shell"])], &shell(command)), Some(RuleVerdict::Ask(_)))
}

fn allows(rule: &str, command: &str) -> bool {
    matches!(judge([&set(&[], &[], &[rule])], &shell(command)), Some(RuleVerdict::Allow(_)))
}

#[test]
fn a_rule_about_a_skill_is_about_no_other_tool() {
    let call = |tool| ProposedCall { tool, subject: CallSubject::Command("git push") };
    let rules = set(&["skill:publish"], &[], &[]);
    let denied = Some(RuleVerdict::Deny("skill:publish".to_owned()));
    assert_eq!(judge([&rules], &call("skill:publish")), denied);
    for other in ["publish", "skill:other", "shell"] {
        assert_eq!(judge([&rules], &call(other)), None, "{other}");
    }
    assert!(Rule::read("skill:publish").expect("a rule").is_too_wide().is_some(), "it names no version");
    for bad in ["skill:", "skill:publish(x)", "skill:a b", "skill:skill:a", "skills:publish", "skill:a/b"] {
        assert!(Rule::read(bad).is_err(), "{bad}");
    }
}

#[test]
fn an_allow_matches_the_words_of_one_simple_command() {
    let rule = "shell(cargo test **)";
    for command in
        ["cargo test", "cargo test --all", " cargo  test 'a b' \"c\"", "cargo test a\\ b", "cargo te\"st\" *.rs"]
    {
        assert!(allows(rule, command), "{command}");
    }
    for command in [
        "cargo build",
        "cargo",
        "cargo test; rm -rf /",
        "cargo test && rm x",
        "cargo test & rm x",
        "cargo test | sh",
        "cargo test > /etc/passwd",
        "cargo test < x",
        "cargo test $(rm x)",
        "cargo test `rm x`",
        "cargo test \"$(rm x)\"",
        "cargo test \"`rm x`\"",
        "cargo test $X",
        "cargo test\nrm x",
        "cargo test\rrm",
        "X=1 cargo test",
        "RUSTC_WRAPPER=/tmp/x cargo test",
        "cargo test 'open",
        "cargo test \"open",
        "cargo test \\",
        "cargo test $'a'",
        "cargo test # rest",
        "/tmp/cargo test",
        "./cargo test",
        "(cargo test)",
        "! cargo test",
        "carg? test",
        "cargo t*",
    ] {
        assert!(!allows(rule, command), "{command}");
    }
}

#[test]
fn a_star_is_one_word_and_the_last_two_are_any_number() {
    assert!(allows("shell(git add *)", "git add a"));
    for command in ["git add", "git add a b", "git add *", "git add ~", "git add {a,b}"] {
        assert!(!allows("shell(git add *)", command), "{command}");
    }
    assert!(allows("shell(git add)", "git add"));
    assert!(!allows("shell(git add)", "git add a"));
    assert!(allows("shell(ls **)", "ls *.rs"));
}

#[test]
fn a_denial_looks_at_every_part() {
    for command in [
        "rm x",
        "/bin/rm x",
        "a; rm x",
        "a && rm x",
        "a | rm x",
        "a & rm x",
        "a\nrm x",
        "X=1 rm x",
        "r\"m\" x",
        "r\\m x",
        "'rm' x",
        "echo $(rm x)",
        "echo \"$(rm x)\"",
        "echo `rm x`",
        "echo \"a `rm x`\"",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "! rm x",
        "while rm x; do a; done",
        "sudo rm x",
        "sudo -u root rm x",
        "env A=b rm x",
        "xargs -n 1 rm",
        "find . -exec rm {} +",
        "find . -name a -execdir rm x",
        "sh -c 'rm x'",
        "bash -lc \"cd a && rm x\"",
        "timeout 5 nice rm x",
        "eval 'rm x'",
        "ssh host 'rm x'",
        "a > b rm x; rm x",
        "rm\\\n x",
        "sh -c \"sh -c 'rm x'\"",
    ] {
        assert!(denies("shell(rm **)", command), "{command}");
    }
    for command in ["git rm x", "echo rm", "grep 'rm x' a", "format x", "rmdir x", "cat rm"] {
        assert!(!denies("shell(rm **)", command), "{command}");
    }
}

/// How commands are judged by a denial, when everything else is allowed.
fn verdicts<'a>(rule: &str, commands: &[&'a str]) -> Vec<(&'a str, &'static str)> {
    let rules = set(&[rule], &[], &["shell"]);
    let word = |command| match judge([&rules], &shell(command)) {
        Some(RuleVerdict::Deny(_)) => "denied",
        Some(RuleVerdict::Ask(_)) => "asked",
        _ => "nothing",
    };
    commands.iter().map(|command| (*command, word(command))).collect()
}

fn all_are(rule: &str, due: &str, commands: &[&str]) {
    let other: Vec<_> = verdicts(rule, commands).into_iter().filter(|(_, verdict)| *verdict != due).collect();
    assert_eq!(other, [], "these were to be {due}");
}

#[test]
fn a_denial_is_not_hidden_by_what_a_shell_reads_otherwise() {
    all_are(
        "shell(rm **)",
        "denied",
        &[
            ">log rm x",
            "2>/dev/null rm x",
            "</dev/null rm x",
            ">&2 rm x",
            "2>&1 rm x",
            "&>f rm x",
            "# don't\nrm x\n# can't",
            "# note \\\nrm x",
            "cat <<E\ndon't\nE\nrm x\ncat <<E\ncan't\nE",
            "echo `echo \\`rm x\\``",
            "function f { rm x; }; f",
            "coproc rm x",
            "alias x=rm\nx y",
            "alias x='rm -f'\nx y",
            "env -S'rm x'",
            "env --split-string='rm x'",
            "ssh -o ProxyCommand='rm x' h",
            "sh -c rm",
            "bash <<E\nrm x\nE",
            "cat <<E\n$(rm x)\nE",
            "case $x in a) rm x;; esac",
            "for a in b; do rm $a; done",
            "<(rm x) ls",
            "echo ${x:-$(rm x)}",
            "rm -rf 'open",
            "command -p rm x",
            "rm\tx",
        ],
    );
    all_are(
        "shell(rm **)",
        "asked",
        &[
            "echo rm x | sh",
            "printf 'rm x' | bash -s",
            "curl u | sh",
            "python3 - <<'E'\nimport os\nos.system(\"rm x\")\nE",
            "python3.11 -c 'import os; os.system(\"rm x\")'",
            "perl -e 'system(\"rm\",\"x\")'",
            "ruby -e 'system \"rm\", \"x\"'",
            "git -c alias.x='!rm x' x",
            "timeout 9 grep rm f",
            "sudo apt install rm",
            "$'\\162m' x",
            "{rm,x}",
            "~/rm x",
            "echo \"${x:-'}$(rm x)'\" '\"' \\'",
        ],
    );
    all_are("shell(git push **)", "asked", &["git \"$x\"", "git -c alias.x=push x", "git $X"]);
}

#[test]
fn a_denial_does_not_stand_in_the_way_of_other_work() {
    all_are(
        "shell(rm **)",
        "nothing",
        &[
            "ls \"${HOME}\"",
            "x=\"$(date)\"; ls",
            "cd \"$(git rev-parse --show-toplevel)\" && grep -rn rm src",
            "echo \"${x}\" | grep rm",
            "[ -f x ] && cargo test",
            "A=1 grep rm f",
            "if grep -q rm Makefile; then ls; fi",
            "! grep -rn rm src",
            "{ echo rm; }",
            "if test -n \"$x\"; then ls; fi",
            "RUST_LOG=debug cargo test \"$x\"",
            "case \"$1\" in a) ls;; esac",
            "git commit -m \"$(cat <<'E'\nrm x was run\nE\n)\"",
            "git commit -F - <<'E'\nrm x is gone, and don't ask\nE",
            "cat > Makefile <<'E'\nclean:\n\trm -f a\nE",
            "echo $(date) rm",
            "echo $(date) *",
            "echo ${x%.*}",
            "echo $((a*b))",
            "ls # then; rm x",
            "> rm",
            "ls &> \"$log\"",
            "find . -name rm",
            "docker rm c",
            "python3 manage.py rm",
            "sh ./build.sh rm",
            "command -v rm",
            "python3 a.py *.txt",
            "awk -F';' '{print $1}' f",
            "find . -exec grep x {} +",
            "git rm x",
            "sed 's/rm x/y/' f",
        ],
    );
}

#[test]
fn options_are_found_wherever_they_stand() {
    all_are(
        "shell(git push --force **)",
        "denied",
        &["git push --force", "git push origin main --force", "git push --force=x"],
    );
    all_are("shell(git push --force **)", "nothing", &["git push origin main"]);
    all_are("shell(rm -rf **)", "denied", &["rm -rf x", "rm -fr x", "rm x -rf", "rm -r -f x"]);
    all_are("shell(rm -rf **)", "nothing", &["rm -r x", "rm x"]);
    all_are("shell(/bin/rm **)", "denied", &["rm x", "/usr/bin/rm x"]);
    all_are("shell(cargo publish **)", "denied", &["cargo +nightly publish"]);
}

#[test]
fn quoted_stars_are_stars() {
    assert!(!allows("shell(git add '*')", "git add anything"));
    assert!(allows("shell(git add '*')", "git add '*'"));
    assert!(!allows("shell(cargo test '**')", "cargo test a b"));
    assert!(allows("shell(python3 a.py **)", "python3 a.py 'x y'"));
    assert!(allows("shell(cargo test **)", "cargo test\n"));
}

#[test]
fn the_size_of_a_command_does_not_multiply() {
    let rules = set(&["shell(git push **)"; 20], &["shell(rm -rf **)"; 20], &["shell(ls **)"]);
    for command in [
        format!("! {}", "git -a ".repeat(5_000)),
        format!("sudo {}'", "x ".repeat(20_000)),
        format!("sudo {}'", "git -a ".repeat(5_000)),
        format!("echo {}{}", "$(".repeat(63), "a ".repeat(20_000)),
        "$(".repeat(20_000),
        "`".repeat(40_000),
        "sh -c 'rm x' ".repeat(3_000),
        format!("sh -c {}", "'a b' ".repeat(7_000)),
        "<<E ".repeat(10_000),
        "{".repeat(40_000),
    ] {
        let begun = std::time::Instant::now();
        judge([&rules], &shell(&command));
        // A debug build; what it guards against took minutes.
        assert!(begun.elapsed().as_secs() < 20, "{}", &command[..20]);
    }
    let nested = format!("write_file({}{})", "{a,b".repeat(84), "}".repeat(84));
    assert!(Rule::read(&nested).is_err());
}

#[test]
fn options_before_a_subcommand_do_not_hide_it() {
    for command in [
        "git push",
        "git push origin main",
        "git -C /tmp push",
        "git --no-pager -c a=b push x",
        "cd a && git push",
        "/usr/lib/git-core/git-push origin",
    ] {
        assert!(denies("shell(git push **)", command), "{command}");
    }
    for command in
        ["git commit -m push", "git log", "git", "git stash push", "git -C \"$PWD\" status", "git --no-pager diff $x"]
    {
        assert!(!denies("shell(git push **)", command), "{command}");
    }
}

#[test]
fn what_cannot_be_read_is_asked_when_something_is_denied() {
    for command in ["$X x", "\"$(cat a)\" x", "r? x", "a; $Y", "$'\\x72m' x", "rmm 'open"] {
        let deep = asks_when_denied("shell(rm **)", command) || denies("shell(rm **)", command);
        assert!(deep, "{command}");
    }
    let nested = format!("{} rm x", "echo $(".repeat(50));
    assert!(denies("shell(rm **)", &nested) || asks_when_denied("shell(rm **)", &nested));
    // Without a rule about commands there is nothing that it could be.
    assert_eq!(judge([&set(&[], &[], &["shell"])], &shell("$X")), Some(RuleVerdict::Allow("shell".into())));
}

#[test]
fn files_are_matched_beneath_their_space() {
    let file = |inside, absolute| ProposedCall { tool: "write_file", subject: CallSubject::Path { inside, absolute } };
    let allow = set(&[], &[], &["write_file(src/**)"]);
    let verdict = |rules: &RuleSet, call| judge([rules], &call);
    assert!(verdict(&allow, file(Some("src/a/b.rs"), "/w/src/a/b.rs")).is_some());
    for (inside, absolute) in
        [(Some("tests/a.rs"), "/w/tests/a.rs"), (None, "/etc/src/a"), (Some("a/src/b"), "/w/a/src/b")]
    {
        assert_eq!(verdict(&allow, file(inside, absolute)), None, "{absolute}");
    }
    let deny = set(&["write_file(**/.ssh/**)"], &[], &["write_file"]);
    for (inside, absolute) in
        [(None, "/root/.ssh/id"), (Some(".ssh/id"), "/w/.ssh/id"), (Some("a/.ssh/b/c"), "/w/a/.ssh/b/c")]
    {
        assert!(matches!(verdict(&deny, file(inside, absolute)), Some(RuleVerdict::Deny(_))), "{absolute}");
    }
    assert!(matches!(verdict(&deny, file(Some("ssh"), "/w/ssh")), Some(RuleVerdict::Allow(_))));
    assert!(matches!(verdict(&deny, file(Some(".ssh"), "/w/.ssh")), Some(RuleVerdict::Deny(_))), "the folder itself");
    for inside in ["src/../x", "src/", "src//etc"] {
        assert_eq!(verdict(&allow, file(Some(inside), "/w/x")), None, "{inside}");
    }
    let edit = ProposedCall {
        tool: "edit_file",
        subject: CallSubject::Path { inside: Some(".ssh/a"), absolute: "/w/.ssh/a" },
    };
    assert!(matches!(judge([&deny], &edit), Some(RuleVerdict::Deny(_))), "another way to write");
    // One name is not a folder.
    let names = set(&[], &[], &["write_file(*.md)"]);
    assert!(verdict(&names, file(Some("a.md"), "/w/a.md")).is_some());
    assert_eq!(verdict(&names, file(Some("a/b.md"), "/w/a/b.md")), None);
}

#[test]
fn a_denial_comes_before_a_question_before_a_permission() {
    let (deny, ask, allow) = (set(&["shell(a)"], &[], &[]), set(&[], &["shell(a)"], &[]), set(&[], &[], &["shell(a)"]));
    assert!(matches!(judge([&allow, &ask, &deny], &shell("a")), Some(RuleVerdict::Deny(_))));
    assert!(matches!(judge([&allow, &ask], &shell("a")), Some(RuleVerdict::Ask(_))));
    assert!(matches!(judge([&allow], &shell("a")), Some(RuleVerdict::Allow(_))));
    assert_eq!(judge([&allow, &ask, &deny], &shell("b")), None);
    let other = ProposedCall { tool: "edit_file", subject: CallSubject::Other };
    assert_eq!(judge([&allow, &ask, &deny], &other), None);
    // A pattern that says nothing about a call does not free it.
    let search = ProposedCall { tool: "search", subject: CallSubject::Other };
    assert!(matches!(judge([&set(&["search(a/**)"], &[], &[])], &search), Some(RuleVerdict::Deny(_))));
    assert_eq!(judge([&set(&[], &[], &["search(a/**)"])], &search), None);
}

#[test]
fn what_is_no_rule_is_named() {
    for text in [
        "",
        "(a)",
        "shell(",
        "shell()",
        "shell(a) b",
        "sh ell",
        "shell(a; b)",
        "shell($X)",
        "shell(** a)",
        "shell(A=b c)",
        "write_file(../a)",
        "write_file([)",
        "shell('open)",
    ] {
        let why = Rule::read(text).expect_err(text);
        assert!(why.contains("is no rule"), "{why}");
    }
    assert!(Rule::read(&"a".repeat(501)).is_err());
    let many = ApprovalRules { deny: vec!["shell".into(); MAX_RULES + 1], ..ApprovalRules::default() };
    assert!(many.read().expect_err("too many").contains("deny"));
    let unknown: ApprovalRules = serde_json::from_str(r#"{"denied": ["shell"], "ask": []}"#).expect("rules");
    assert!(!unknown.is_empty() && unknown.read().expect_err("unknown").starts_with("denied is no list"));
}

/// From the freest to the strictest.
fn strictness(verdict: Option<&RuleVerdict>) -> u8 {
    match verdict {
        Some(RuleVerdict::Allow(_)) => 0,
        None => 1,
        Some(RuleVerdict::Ask(_)) => 2,
        Some(RuleVerdict::Deny(_)) => 3,
    }
}

fn rule() -> impl Strategy<Value = String> {
    let shell = "[ab$*](( [ab*]){0,2}( \\*\\*)?)".prop_filter_map("a rule", |words| {
        let text = format!("shell({words})");
        Rule::read(&text).is_ok().then_some(text)
    });
    prop_oneof![Just("shell".to_owned()), Just("write_file".to_owned()), shell]
}

fn rules() -> impl Strategy<Value = RuleSet> {
    let list = || prop::collection::vec(rule(), 0..3);
    (list(), list(), list()).prop_map(|(deny, ask, allow)| {
        ApprovalRules { deny, ask, allow, ..ApprovalRules::default() }.read().expect("rules")
    })
}

#[test]
fn a_rule_names_all_tools_of_a_server_or_one() {
    let call = |tool| ProposedCall { tool, subject: CallSubject::Other };
    let rules = set(&["mcp__fs__delete*"], &["mcp__fs__write_file"], &["mcp__fs__*"]);
    let verdict = |tool| judge([&rules], &call(tool));
    assert!(matches!(verdict("mcp__fs__delete_all"), Some(RuleVerdict::Deny(_))));
    assert!(matches!(verdict("mcp__fs__write_file"), Some(RuleVerdict::Ask(_))));
    assert!(matches!(verdict("mcp__fs__read_file"), Some(RuleVerdict::Allow(_))));
    assert_eq!(verdict("mcp__fs2__read_file"), None);
    assert!(Rule::read("mcp__fs__*").expect("a rule").is_too_wide().is_some());
    assert!(Rule::read("mcp__fs__read_file").expect("a rule").is_too_wide().is_none());
    for bad in ["mcp__fs__write(src/**)", "read_*", "mcp__f s__*", "mcp__fs__**"] {
        assert!(Rule::read(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_rule_more_to_deny_or_ask_frees_nothing(
        one in rules(), other in rules(), more in rule(), command in "[ab;&|$()'\"` \\\\*\n=#]{0,14}"
    ) {
        let call = shell(&command);
        let before = judge([&one, &other], &call);
        let (mut deny, mut ask) = (one.clone(), other.clone());
        deny.deny.push(Rule::read(&more).expect("a rule"));
        ask.ask.push(Rule::read(&more).expect("a rule"));
        prop_assert!(strictness(judge([&deny, &other], &call).as_ref()) >= strictness(before.as_ref()));
        prop_assert!(strictness(judge([&one, &ask], &call).as_ref()) >= strictness(before.as_ref()));
    }

    #[test]
    fn what_an_allow_matches_a_denial_of_the_same_words_matches(text in rule(), command in "[ab;&|$()'\"` \\\\*\n=#]{0,14}") {
        let allow = ApprovalRules { allow: vec![text.clone()], ..ApprovalRules::default() }.read().expect("rules");
        let deny = ApprovalRules { deny: vec![text], ..ApprovalRules::default() }.read().expect("rules");
        let call = shell(&command);
        if matches!(judge([&allow], &call), Some(RuleVerdict::Allow(_))) {
            prop_assert!(matches!(judge([&deny], &call), Some(RuleVerdict::Deny(_))));
        }
    }

    #[test]
    fn no_command_is_too_much_to_read(command in "\\PC{0,200}") {
        judge([&set(&["shell(rm **)"], &["shell(git push **)"], &["shell(ls **)"])], &shell(&command));
    }
}
