//! `daemon-agent key`: which providers have a key, whether it works, and its end; the key itself is never shown.

use board_tests::{Llm, Viber, programs::run};
use serde_json::Value;

const KEY: &str = "sk-canary-4711";

#[tokio::test]
async fn a_key_is_listed_tested_and_removed_and_never_shown() {
    let viber = Viber::fresh("keys");
    let llm = Llm::start([]).await;
    viber.write("config.yaml", &format!("providers:\n  lab: {{ api: openai, baseUrl: {}/v1 }}\n", llm.url));
    let set = run(viber.command(&["key", "set", "lab"]), &format!("{KEY}\n")).await;
    let listed = viber.cli(&["key", "list"]).await;
    let lab = listed.out.lines().find(|line| line.starts_with("lab ")).expect("the provider").to_owned();
    assert!(lab.contains("secrets/lab"), "{lab}");
    let tested = viber.cli(&["key", "test", "lab", "--json"]).await;
    let answer: Value = serde_json::from_str(&tested.out).expect("JSON");
    let removed = viber.cli(&["key", "remove", "lab"]).await;
    let again = viber.cli(&["key", "remove", "lab"]).await;
    let left = viber.cli(&["key", "list", "--json"]).await;
    assert_eq!((set.code(), listed.code(), removed.code(), again.code()), (0, 0, 0, 1), "{removed:?} {again:?}");
    assert!(!viber.home().join("secrets/lab").exists());
    let line = left.out.lines().find(|line| line.contains("\"lab\"")).expect("a line").to_owned();
    assert!(line.contains("\"hasKey\":false"), "{line}");
    let set_again = run(viber.command(&["key", "set", "lab", "--json"]), &format!("{KEY}\n")).await;
    let file = viber.home().join("secrets/lab");
    let saved: Value = serde_json::from_str(&set_again.out).expect("JSON");
    assert_eq!(saved, serde_json::json!({ "provider": "lab", "file": file }));
    let removed_again = viber.cli(&["key", "remove", "lab", "--json"]).await;
    let gone: Value = serde_json::from_str(&removed_again.out).expect("JSON");
    assert_eq!(gone, serde_json::json!({ "provider": "lab", "file": file, "hasKey": false }));
    for said in [&set, &listed, &tested, &removed, &left, &set_again, &removed_again] {
        assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "the key was printed: {said:?}");
    }
    // The scripted model answers its list of models or refuses it; either way the words and the exit code agree.
    assert_eq!(answer["works"] == true, tested.code() == 0, "{tested:?}");
}

#[tokio::test]
async fn a_key_that_a_provider_refuses_is_told_with_the_reason() {
    let viber = Viber::fresh("refused");
    viber.write("config.yaml", "providers:\n  gone: { api: openai, baseUrl: http://127.0.0.1:1/v1, apiKey: x }\n");
    let said = viber.cli(&["key", "test", "gone"]).await;
    assert!(said.code() == 1 && said.err.contains("no: ") && said.err.contains("127.0.0.1:1"), "{said:?}");
    let none = viber.cli(&["key", "test", "anthropic"]).await;
    assert!(none.code() == 1 && none.err.contains("key"), "{none:?}");
    for bad in ["../state/credential", "demo", "nobody"] {
        let said = viber.cli(&["key", "remove", bad]).await;
        assert!(said.code() == 2 && said.err.contains("no provider is called"), "{said:?}");
    }
}
