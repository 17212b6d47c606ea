//! Which results prove that work was checked: runs of tests, builds and linters, and pictures of what was made.

use serde_json::Value;

use super::PastCall;
use crate::rules;

/// Programs that do nothing but check.
const CHECKERS: &[&str] = &[
    "clippy-driver",
    "ctest",
    "eslint",
    "flake8",
    "golangci-lint",
    "hadolint",
    "jest",
    "mocha",
    "mypy",
    "nextest",
    "phpunit",
    "pylint",
    "pyright",
    "pytest",
    "rspec",
    "rubocop",
    "ruff",
    "shellcheck",
    "stylelint",
    "swiftlint",
    "tox",
    "tsc",
    "vitest",
];
/// Programs that check when one of these words follows.
const RUNNERS: &[&str] = &[
    "bazel", "bun", "bundle", "cargo", "cmake", "composer", "deno", "dotnet", "go", "gradle", "gradlew", "just",
    "make", "mix", "mvn", "mvnw", "ninja", "npm", "npx", "nx", "pnpm", "poetry", "python", "python3", "rake", "rustc",
    "sbt", "swift", "task", "turbo", "uv", "yarn",
];
const CHECKS: &[&str] = &[
    "build",
    "check",
    "clippy",
    "compile",
    "ctest",
    "doctest",
    "eslint",
    "fmt",
    "jest",
    "lint",
    "mypy",
    "nextest",
    "package",
    "pytest",
    "ruff",
    "spec",
    "test",
    "tests",
    "tsc",
    "type-check",
    "typecheck",
    "unittest",
    "verify",
    "vet",
    "vitest",
];
/// Words of a command that are looked at.
const MAX_WORDS: usize = 8;

/// Whether the result of a call is such a proof, good or bad.
pub(super) fn is_check(call: &PastCall<'_>) -> bool {
    let text = |name: &str| call.args.get(name).and_then(Value::as_str);
    match call.tool {
        "shell" => text("command").is_some_and(checks),
        "add_artifact" => text("type").is_some_and(|kind| kind.starts_with("image/")),
        other => other.contains("screenshot"),
    }
}

fn checks(command: &str) -> bool {
    rules::programs_of(command).iter().any(|words| {
        let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_ascii_lowercase();
        let Some(program) = words.first().map(|word| name(word)) else { return false };
        let is_check = |word: &String| {
            // `test:unit`, `test_all` and `lint-fix` begin with what they do.
            let word = name(word);
            CHECKS.contains(&word.as_str()) || CHECKS.contains(&word.split([':', '-', '_']).next().unwrap_or_default())
        };
        CHECKERS.contains(&program.as_str())
            || (RUNNERS.contains(&program.as_str()) && words.iter().skip(1).take(MAX_WORDS).any(is_check))
    })
}
