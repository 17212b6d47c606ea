//! What shells complete: every command of both programs, in bash, zsh and fish.

use std::{collections::BTreeSet, process::Command};

use board_tests::programs::{program, run};

/// The commands that the help of `words` names.
async fn commands(name: &str, words: &[String]) -> Vec<String> {
    let mut help = Command::new(program(name));
    help.args(words).arg("--help");
    let said = run(help, "").await.good();
    let list = said.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Long descriptions go on below, further in.
    let named = list.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names = named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn completions_name_every_command() {
    for name in ["viber-board", "daemon-agent"] {
        let mut all: BTreeSet<String> = BTreeSet::new();
        let mut left: Vec<Vec<String>> = vec![Vec::new()];
        while let Some(words) = left.pop() {
            for command in commands(name, &words).await {
                left.push(words.iter().cloned().chain([command.clone()]).collect());
                all.insert(command);
            }
        }
        assert!(all.len() > 15 && all.contains("completions"), "{name}: {all:?}");
        for shell in ["bash", "zsh", "fish"] {
            let mut print = Command::new(program(name));
            print.args(["completions", shell]);
            let script = run(print, "").await.good();
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let words: BTreeSet<&str> = script.split(|c| !is_part(c)).collect();
            let missing: Vec<&String> = all.iter().filter(|command| !words.contains(command.as_str())).collect();
            assert!(missing.is_empty(), "{name} {shell}: {missing:?}");
            if shell == "bash" {
                let mut check = Command::new("bash");
                check.arg("-n");
                run(check, &script).await.good();
            }
        }
        let mut unknown = Command::new(program(name));
        unknown.args(["completions", "cmd"]);
        assert_eq!(run(unknown, "").await.code(), 2);
    }
}
