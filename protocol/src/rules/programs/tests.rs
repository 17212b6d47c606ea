//! Which permissions are too wide for a page, and what programs run that rules deny.

use crate::rules::{ApprovalRules, CallSubject, ProposedCall, Rule, RuleVerdict, judge};

#[test]
fn a_page_writes_no_rule_that_allows_anything() {
    for text in [
        "shell",
        "shell(sh **)",
        "shell(/bin/bash -c *)",
        "shell(sudo apt **)",
        "shell(env **)",
        "shell(xargs **)",
        "shell(find **)",
        "shell(python3 **)",
        "shell(python3.12 a.py)",
        "shell(* a)",
        "shell(** )",
        "shell(node **)",
    ] {
        assert!(Rule::read(text).expect(text).is_too_wide().is_some(), "{text}");
    }
    for text in [
        "shell(git **)",
        "shell(make **)",
        "shell(npm run **)",
        "shell(git -c a=b status)",
        "shell(git push **)",
        "shell(./x.sh **)",
        "shell(sed **)",
        "write_file(**)",
        "write_file",
        "shell(npx **)",
        "shell(python3.11-dbg **)",
        "shell(uv run **)",
        "shell(poetry run *)",
        "shell(mise exec **)",
        "shell(bundle exec **)",
        "shell(rustup run **)",
        "shell(nix develop **)",
        "shell(bun x **)",
        "shell(pip install **)",
        "shell(tool run **)",
    ] {
        assert!(Rule::read(text).expect(text).is_too_wide().is_some(), "{text}");
    }
    for text in [
        "shell(cargo test **)",
        "write_file(src/**)",
        "remember",
        "shell(git status)",
        "shell(git push)",
        "shell(ls **)",
        "shell(uv run pytest)",
        "shell(rustup show **)",
    ] {
        assert_eq!(Rule::read(text).expect(text).is_too_wide(), None, "{text}");
    }
}

#[test]
fn what_environments_run_is_denied_too() {
    let rules =
        ApprovalRules { deny: vec!["shell(sudo **)".into(), "shell(git push **)".into()], ..ApprovalRules::default() };
    let rules = rules.read().expect("rules");
    let verdict =
        |command: &str| judge([&rules], &ProposedCall { tool: "shell", subject: CallSubject::Command(command) });
    for command in [
        "uv run sudo a",
        "mise exec -- git push -f",
        "npx sudo a",
        "npm exec -c 'sudo a'",
        "poetry run -q sudo a",
        "nix shell nixpkgs#x -c sudo a",
    ] {
        assert!(matches!(verdict(command), Some(RuleVerdict::Deny(_))), "{command}");
    }
    for command in ["rustup run nightly sudo a", "bun run x sudo", "bun run -e \"exec('sudo a')\""] {
        assert!(matches!(verdict(command), Some(RuleVerdict::Ask(_))), "{command}");
    }
    for command in ["uv sync", "cargo test", "npm run build", "git status"] {
        assert_eq!(verdict(command), None, "{command}");
    }
}
