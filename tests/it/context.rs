//! What fills a window and what the next request carries: told by the API, shown beside the conversation, sent to the viber.

mod afresh;
mod automatic;
pub mod compact;
mod kill;
mod large_turns;
mod long_session;
mod notes;
mod overflow;
mod pins;
mod retried;
mod standing;
mod to_here;

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    board::HOME,
    browser::Scripts,
    fake_daemon::{accepted, completed, progress, started, text},
};
use protocol::{EventBody, TurnPart};
use serde_json::{Value, json};

/// The event that reports this.
pub fn context(fields: &Value) -> EventBody {
    let mut event = json!({ "type": "context" });
    event.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    progress(&event)
}

/// A report of 146,800 tokens in a window of 200,000.
pub fn measured() -> Value {
    json!({
        "window": 200_000, "windowSource": "provider", "windowAt": "2026-06-19T13:58:04.000Z", "reserve": 16_000,
        "used": 146_800, "source": "measured", "step": 3,
        "layers": [
            { "layer": "system", "tokens": 4_100 }, { "layer": "tools", "tokens": 9_800 }, { "layer": "skills", "tokens": 4_200 },
            { "layer": "personalization", "tokens": 2_400, "items": [{ "name": "SOUL.md", "tokens": 2_400 }] },
            { "layer": "history", "tokens": 48_600 }, { "layer": "results", "tokens": 51_300, "source": "estimated" },
            { "layer": "files", "tokens": 26_400, "items": [{ "name": "e2e/vouchers.json", "tokens": 8_000,
                "truncated": { "kept": 8_000, "of": 22_600 } }] },
            { "layer": "reserve", "tokens": 16_000 }, { "layer": "free", "tokens": 37_200 }],
    })
}

/// The event of a model call that took some tokens and some money.
pub fn spent() -> EventBody {
    progress(
        &json!({ "type": "usage", "inputTokens": 146_800, "outputTokens": 2_100, "costUsd": 1.84, "source": "measured",
            "modelCalls": 1, "toolCalls": 2 }),
    )
}

pub fn call(id: &str, tool: &str, args: &Value, result: &Value) -> Vec<EventBody> {
    let asked = json!({ "type": "tool-call", "callId": id, "tool": tool, "args": args });
    let answered =
        json!({ "type": "tool-result", "callId": id, "tool": tool, "result": result, "ok": true, "durationMs": 1 });
    vec![progress(&asked), progress(&answered)]
}

async fn told(fixture: &Fixture<FakeDaemon>) -> Value {
    fixture.operator.get(&format!("/api/v1/sessions/{}/context", fixture.session())).await.expect(200).json()
}

/// Tokens of a part as they are estimated.
fn estimated(part: &TurnPart) -> u64 {
    match part {
        TurnPart::Text { text } | TurnPart::Notice { text } => 4 + protocol::tokens::estimate(text),
        TurnPart::ToolCall { tool, args, result, .. } => {
            4 + [tool, &args.to_string(), result].iter().map(|text| protocol::tokens::estimate(text)).sum::<u64>()
        }
    }
}

fn layer<'a>(context: &'a Value, name: &str) -> &'a Value {
    let layers = context["layers"].as_array().expect("layers");
    layers.iter().find(|layer| layer["layer"] == name).unwrap_or(&Value::Null)
}

async fn the_newest_request_is_told_in_numbers(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.begin("Find the cause").await;
    let before = told(&fixture).await;
    assert_eq!(
        (&before["source"], &before["at"], &before["windowSource"]),
        (&json!("estimated"), &Value::Null, &json!("assumed"))
    );
    assert_eq!(before["window"], json!(32_768));

    fixture.tell(vec![context(&json!({ "window": 32_768, "layers": [{ "layer": "goal", "tokens": 7 }] }))]).await;
    let old = told(&fixture).await;
    assert_eq!((&old["used"], &layer(&old, "history")["tokens"]), (&json!(7), &json!(7)), "{old:#}");

    fixture.tell(vec![context(&measured()), spent()]).await;
    let now = told(&fixture).await;
    for (field, value) in [
        ("window", json!(200_000)),
        ("windowSource", json!("provider")),
        ("windowAt", json!("2026-06-19T13:58:04.000Z")),
        ("reserve", json!(16_000)),
        ("used", json!(146_800)),
        ("free", json!(37_200)),
        ("source", json!("measured")),
        ("step", json!(3)),
        ("taskId", task["id"].clone()),
        // 20,500 are fixed: 70 % of what is left beside the answer.
        ("threshold", json!(20_500 + (200_000 - 16_000 - 20_500) * 7 / 10)),
        ("hint", json!(true)),
    ] {
        assert_eq!(now[field], value, "{field} of {now:#}");
    }
    assert_eq!(layer(&now, "results")["source"], "estimated");
    assert_eq!(layer(&now, "files")["items"][0]["truncated"], json!({ "kept": 8_000, "of": 22_600 }));
    let frees = now["whatIf"].as_array().expect("comparisons").iter().find(|other| other["action"] == "drop files");
    assert_eq!(frees.expect("files")["frees"], json!(26_400));
    let took = json!({ "taskId": task["id"], "inputTokens": 146_800, "outputTokens": 2_100, "costUsd": 1.84, "source": "measured" });
    assert_eq!(now["tasks"], json!([took]));
    let stranger = fixture.board.operator("elsewhere", "eve@example.org", "owner").await;
    let path = format!("/api/v1/sessions/{}/context", fixture.session());
    stranger.get(&path).await.expect(404);
    fixture.board.assert_invariants().await;
}

async fn the_next_request_carries_results_as_the_model_read_them(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.begin("Run the tests").await;
    let ran = json!({ "output": "3 passed\n", "exitCode": 0 });
    let long = json!("a line of the file\n".repeat(3_000));
    let mut events = call("c1", "shell", &json!({ "command": "cargo test" }), &ran);
    events.extend(call("c2", "read_file", &json!({ "path": "a.rs" }), &long));
    events.extend([text("They pass."), completed("They pass.")]);
    fixture.tell(events).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;

    let now = told(&fixture).await;
    let history = now["history"].as_array().expect("a history");
    assert_eq!(history.len(), 2, "{now:#}");
    assert_eq!((&history[0]["role"], &history[0]["share"]), (&json!("assistant"), &json!("pruned")));
    assert_eq!((&history[1]["role"], &history[1]["share"]), (&json!("user"), &json!("verbatim")));

    let session = fixture.session().to_owned();
    fixture.submit_with("And now?", json!({ "sessionId": session })).await;
    let next = fixture.viber.submitted().await;
    assert_eq!(next.messages.len(), 2);
    let TurnPart::ToolCall { result, .. } = &next.messages[1].parts[0] else { panic!("{:?}", next.messages[1]) };
    assert_eq!(result, "3 passed\n[exit code 0]");
    let TurnPart::ToolCall { result, .. } = &next.messages[1].parts[1] else { panic!("{:?}", next.messages[1]) };
    assert!(result.contains("tokens omitted]") && result.starts_with("a line"), "{}", result.len());
    let sent: u64 = next.messages.iter().flat_map(|turn| &turn.parts).map(estimated).sum();
    assert_eq!(now["next"]["history"], json!(sent), "what is shown is what is sent");
    fixture.board.assert_invariants().await;
}

/// The provider counts more than is estimated: what is shown is what is sent, and less is sent.
async fn estimates_are_as_the_provider_counts(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.begin("Question 0?").await;
    let said = "it rains. ".repeat(800);
    fixture.tell(vec![text(&said), completed(&said)]).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    let session = fixture.session().to_owned();
    let next = async |goal: &str, fixture: &mut Fixture<FakeDaemon>| {
        fixture.submit_with(goal, json!({ "sessionId": session })).await;
        fixture.viber.submitted().await
    };
    for (n, (model, percent, factor)) in [
        ("demo/tour", json!(100), 100),
        ("demo/tour", json!(160), 160),
        ("demo/tour", json!(9_000), 200),
        ("another/model", json!(160), 100),
        ("demo/tour", Value::Null, 100),
    ]
    .into_iter()
    .enumerate()
    {
        let submit = next(&format!("Report {n}"), &mut fixture).await;
        let report = json!({ "window": 32_768, "used": 9_000, "source": "measured", "step": 1, "model": model,
            "estimatePercent": percent, "layers": [{ "layer": "system", "tokens": 3_000 }] });
        let events = vec![accepted(), started(), context(&report), text(&said), completed(&said)];
        fixture.viber.report(&submit.task_id, 1, 1, events).await;
        fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
        let now = told(&fixture).await;
        let submit = next(&format!("Compare {n}"), &mut fixture).await;
        let sent: u64 = submit.messages.iter().flat_map(|turn| &turn.parts).map(estimated).sum();
        assert_eq!(now["next"]["history"], json!(sent * factor / 100), "report {n}: what is shown is what is sent");
        assert_eq!(now["next"]["tokens"], json!(3_000 + sent * factor / 100));
        // 70 % of what the window leaves.
        assert!(sent * factor / 100 <= (32_768 - 8_175 - 3_000) * 7 / 10, "report {n}: {sent}");
        let events = vec![accepted(), started(), text("Good."), completed("Good.")];
        fixture.viber.report(&submit.task_id, 1, 1, events).await;
        fixture.operator.task_in(submit.task_id.as_str(), "completed").await;
    }
    fixture.board.assert_invariants().await;
}

async fn a_hostile_report_is_shown_bounded_and_inert(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("go").await;
    let items: Vec<Value> = (0..500)
        .map(|n| json!({ "name": format!("<img src=x onerror=pwn({n})>{}", "y".repeat(20)), "tokens": u64::MAX }))
        .collect();
    let layers = json!([
        { "layer": "<script>pwn()</script>", "tokens": u64::MAX }, { "layer": "files", "tokens": u64::MAX, "items": items },
        { "layer": "history", "tokens": -5 }]);
    let fields = json!({ "window": u64::MAX, "used": u64::MAX, "reserve": u64::MAX, "source": "<b>", "step": "x", "layers": layers });
    fixture.tell(vec![context(&fields)]).await;
    let now = told(&fixture).await;
    assert_eq!(layer(&now, "files")["items"].as_array().map(Vec::len), Some(50));
    assert_eq!(layer(&now, "files")["moreItems"]["count"], json!(450));
    assert_eq!(layer(&now, "system")["items"][0]["name"], "<script>pwn()</script>");
    let page = format!("/t/{HOME}/sessions/{}?pane=context", fixture.session());
    let html = fixture.owner().page(&page).await.expect(200).body;
    assert!(html.contains("data-tab=\"context\"") && html.contains("&#60;img src=x"), "the tab is there");
    assert!(!html.contains("<img src=x") && !html.contains("<script>pwn"), "it is text");
    assert!(html.len() < 300_000, "{}", html.len());
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    the_newest_request_is_told_in_numbers,
    the_next_request_carries_results_as_the_model_read_them,
    estimates_are_as_the_provider_counts,
    a_hostile_report_is_shown_bounded_and_inert,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gauge_and_the_tab_follow_the_agent() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Find the cause").await;
    let page = format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session());
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{page}?pane=context")).await;
    browser.find("body[data-live=on]").await;
    browser.sees("#pane", "estimated for the next request").await;
    assert!(browser.has("span#gauge[hidden]").await, "nothing was reported");

    fixture.tell(vec![context(&measured())]).await;
    browser.sees("#gauge", "73 %").await;
    browser.sees("#pane", "measured by the provider, call 3").await;
    browser.sees("#pane .gauge", "147k of 200k tokens").await;
    browser.sees("#pane", "kept 8.0k of 22.6k").await;
    browser.sees("#context-hint", "Past 70 %").await;
    browser.sees("#tabs .only-wide a[href$='pane=context'] .count", "73 %").await;
    assert_eq!(browser.count("#pane svg.stack rect").await, 8, "a piece for each layer that is there");

    let less = json!({ "window": 200_000, "used": 20_000, "source": "measured", "step": 4, "layers": [{ "layer": "history", "tokens": 20_000 }] });
    fixture.tell(vec![context(&less)]).await;
    browser.sees("#gauge", "10 %").await;
    // It leads to the tab, and the conversation stays where it is.
    browser.click("#tabs .only-wide a[href$='pane=plan']").await;
    browser.find("#tabs[data-tab=plan]").await;
    browser.run("window.same = true", Value::Null).await;
    browser.click("a#gauge").await;
    browser.find("#pane [data-tab=context]").await;
    assert_eq!(browser.run("return window.same", Value::Null).await, json!(true));
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tab_reads_without_scripts() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Find the cause").await;
    fixture.tell(vec![context(&measured()), spent(), text("Found."), completed("Found.")]).await;
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/{HOME}/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.click("a#gauge").await;
    for words in [
        "147k of 200k tokens",
        "from the provider",
        "Kept for the answer",
        "The next request",
        "Question 1",
        "Find the cause",
        "147k in, 2.1k out, $1.84",
    ] {
        browser.sees("#pane", words).await;
    }
}
