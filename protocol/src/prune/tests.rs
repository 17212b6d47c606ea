//! What stays of results, by table and by properties.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Debug)]
struct Made {
    tool: &'static str,
    args: Value,
    result: String,
    ok: bool,
    is_pinned: bool,
}

fn made(tool: &'static str, args: Value, result: impl Into<String>) -> Made {
    Made { tool, args, result: result.into(), ok: true, is_pinned: false }
}

fn past(calls: &[Made]) -> Vec<PastCall<'_>> {
    calls
        .iter()
        .map(|Made { tool, args, result, ok, is_pinned }| PastCall {
            tool,
            args,
            result,
            ok: *ok,
            is_pinned: *is_pinned,
        })
        .collect()
}

#[test]
fn a_line_says_what_a_call_was_about_and_what_came_of_it() {
    let numbered: String = (1..=247).map(|n| format!("{n:>6}\tline\n")).collect();
    let failed = |made: Made| Made { ok: false, ..made };
    let table = [
        (
            made("read_file", json!({"path": "src/app.ts"}), numbered.clone()),
            r#"[tool: read_file("src/app.ts") → 247 lines, TypeScript]"#,
        ),
        (
            made(
                "read_file",
                json!({"path": "notes"}),
                format!("{numbered}[more lines follow: continue with offset 248]"),
            ),
            r#"[tool: read_file("notes") → 247 lines]"#,
        ),
        (made("grep", json!({"pattern": "fn main"}), "a.rs:1:fn main() {"), r#"[tool: grep("fn main") → 1 match]"#),
        (
            made("read_output", json!({"callId": "c7"}), tokens::head_and_tail(&numbered, 100)),
            r#"[tool: read_output("c7") → over 16 lines]"#,
        ),
        (made("glob", json!({"pattern": "*.rs"}), "a.rs\nb.rs"), r#"[tool: glob("*.rs") → 2 files]"#),
        (made("list_files", json!({}), "src/\nCargo.toml"), "[tool: list_files() → 2 entries]"),
        (
            made("shell", json!({"command": "cargo test"}), "running 3 tests\nok\n[exit code 0]"),
            r#"[tool: shell("cargo test") → exit code 0, 2 lines]"#,
        ),
        (
            failed(made(
                "shell",
                json!({"command": "make \"x\"\ny"}),
                "cc a.c\na.c:1: error: no\n[exit code 2; took 3 s]",
            )),
            r#"[tool: shell("make 'x' y") → exit code 2, 2 lines: a.c:1: error: no]"#,
        ),
        (
            failed(made("read_file", json!({"path": "a"}), "a: no such file\n[not_found: Look for it.]")),
            r#"[tool: read_file("a") → failed: a: no such file]"#,
        ),
        (
            made("browse", json!({"depth": 2, "url": "https://example.org"}), "Title\nmore\nmore"),
            r#"[tool: browse("https://example.org") → Title (and 2 more lines)]"#,
        ),
        (made("noop", json!(null), ""), "[tool: noop() → nothing]"),
    ];
    for (call, line) in &table {
        assert_eq!(super::line(&past(std::slice::from_ref(call))[0]), *line);
    }
    let long = made("search", json!({"query": "ü".repeat(500)}), "ß".repeat(5_000));
    let line = super::line(&past(&[long])[0]);
    assert!(line.len() <= 400, "{}", line.len());
}

#[test]
fn evidence_pins_and_the_newest_reads_stay() {
    use ResultShare::{Line, Text};
    let read = |path: &str, more: Value| {
        let mut args = json!({ "path": path });
        args.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        made("read_file", args, "text")
    };
    let shell = |command: &str| made("shell", json!({ "command": command }), "out\n[exit code 0]");
    let calls = [
        (shell("cargo test"), Line),
        (Made { is_pinned: true, ..shell("ls") }, Text),
        (shell("cd app && npm run lint:css"), Text),
        (shell("ls -l"), Line),
        (made("take_screenshot", json!({}), "saved"), Text),
        (shell("cargo test"), Text),
        // From here on results are kept.
        (read("src/a.rs", json!({})), Line),
        (read("src/b.rs", json!({"offset": 10})), Text),
        (read("src/c.rs", json!({"offset": 10})), Line),
        (read("./src/a.rs", json!({})), Text),
        (read("src/c.rs", json!({})), Text),
        (Made { ok: false, ..read("src/c.rs", json!({})) }, Text),
        (shell("git status"), Text),
    ];
    let (made, expected): (Vec<Made>, Vec<ResultShare>) = calls.into_iter().unzip();
    let past = past(&made);
    assert_eq!(shares(&past, 6), expected);
}

#[test]
fn checks_that_are_never_repeated_stay_up_to_a_bound() {
    let run = |n: usize| made("shell", json!({ "command": format!("cargo test case_{n}") }), "out\n[exit code 0]");
    let calls: Vec<Made> = (0..300).map(run).collect();
    let shares = shares(&past(&calls), 300);
    let kept: Vec<usize> = (0..300).filter(|n| shares[*n] == ResultShare::Text).collect();
    assert_eq!(kept, (292..300).collect::<Vec<_>>());
}

#[test]
fn a_line_is_given_its_calls_id_once() {
    let call = made("grep", json!({"pattern": "a"}), "x\ny\nz");
    let line = super::line(&past(std::slice::from_ref(&call))[0]);
    let named = with_call_id(line.clone(), "c7");
    assert_eq!(named, r#"[tool: grep("a") → 3 matches; callId c7]"#);
    let again = Made { result: named.clone(), ..call };
    assert_eq!(with_call_id(super::line(&past(&[again])[0]), "c7"), named);
    assert_eq!(with_call_id(line.clone(), &"c".repeat(400)), line, "too long");
    assert_eq!(with_call_id("text]".to_owned(), "c7"), "text]", "no line");
}

#[test]
fn checks_are_known_by_what_is_run() {
    let is_check = |command: &str| evidence::is_check(&past(&[made("shell", json!({ "command": command }), "")])[0]);
    for command in [
        "cargo clippy --workspace",
        "RUST_LOG=debug cargo nextest run",
        "cd web && pnpm test",
        "./gradlew check",
        "make -j4 lint",
        "python3 -m pytest -q",
        "tsc --noEmit",
        "timeout 60 go vet ./...",
        "npx eslint . | tail -5",
        "/usr/bin/make test",
    ] {
        assert!(is_check(command), "{command}");
    }
    for command in ["ls test", "echo cargo test", "git log", "cat build/test.log", "cargo add serde", ""] {
        assert!(!is_check(command), "{command}");
    }
}

#[test]
fn long_arguments_are_shortened_where_a_line_is_left() {
    let call = made(
        "write_file",
        json!({"path": "a", "content": "x".repeat(9_000)}),
        "wrote 9000 bytes\nand more\n".repeat(9),
    );
    let past = past(std::slice::from_ref(&call));
    let (args, result) = carried(&past[0], ResultShare::Line, &ResultCaps::default());
    assert!(args["content"].as_str().is_some_and(|text| text.len() <= 256 && text.contains("bytes omitted")));
    assert!(result.starts_with("[tool: write_file(\"a\") → wrote 9000 bytes (and "), "{result}");
    let steps: Vec<Value> = (0..90).map(|n| json!({ "id": n, "title": "a short step" })).collect();
    let many = json!({ "steps": steps });
    let size = many.to_string().len();
    assert_eq!(*short_arguments(&many), json!({ "omitted": format!("{size} bytes of arguments") }));
    let short = made("write_file", json!({"path": "a"}), "wrote it");
    assert_eq!(carried(&super::tests::past(&[short])[0], ResultShare::Line, &ResultCaps::default()).1, "wrote it");
}

fn any_call() -> impl Strategy<Value = Made> {
    let tool = prop::sample::select(vec!["read_file", "shell", "grep", "take_screenshot", "other"]);
    let args = prop::sample::select(vec![
        json!({}),
        json!({"path": "a.rs"}),
        json!({"path": "a.rs", "offset": 3}),
        json!({"command": "cargo test"}),
        json!({"command": "ls\n[x]"}),
        json!({"query": "\"]"}),
        json!({"content": "y".repeat(700)}),
        json!(null),
    ]);
    let text = prop_oneof![any::<String>(), "[ -~\n]{0,80}".prop_map(|text| text.repeat(40))];
    (tool, args, text, any::<bool>(), any::<bool>()).prop_map(|(tool, args, result, ok, is_pinned)| Made {
        tool,
        args,
        result,
        ok,
        is_pinned,
    })
}

proptest! {
    #[test]
    fn pruning_is_idempotent_monotone_and_keeps_what_is_pinned(
        calls in prop::collection::vec(any_call(), 0..12), from in 0usize..12, fewer in 0usize..12, cap in 16u64..200,
    ) {
        let calls = past(&calls);
        let shares = shares(&calls, from);
        let caps = ResultCaps { tokens: cap, ..ResultCaps::default() };
        let once: Vec<(Value, String)> = calls.iter().zip(&shares)
            .map(|(call, share)| { let (args, result) = carried(call, *share, &caps); (args.into_owned(), result) })
            .collect();
        for (n, (call, (args, result))) in calls.iter().zip(&once).enumerate() {
            prop_assert!(!call.is_pinned || shares[n] == ResultShare::Text);
            prop_assert!(result.len() <= call.result.len() || tokens::estimate(result) <= cap);
            let again = PastCall { args, result, ..*call };
            let (args_again, result_again) = carried(&again, shares[n], &caps);
            prop_assert_eq!((args_again.as_ref(), &result_again), (args, result));
        }
        // Whoever keeps fewer calls keeps no more of any of them.
        let less = super::shares(&calls, from + fewer);
        prop_assert!(less.iter().zip(&shares).all(|(less, more)| less <= more));
    }
}
