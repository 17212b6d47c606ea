//! The page *Connect a tool*: its lines work as they stand, the token is shown once, and all of it without a script.

use board_tests::{
    Board, Browser, Engine, FakeDaemon,
    board::HOME,
    browser::{Screen, Scripts},
    tasks::id,
};

use super::*;

crate::on_both_databases!(the_lines_have_the_token_once);

const PAGE: &str = "/t/home/settings/connect";

/// The token within a page.
fn token_in(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("id=\"token-secret\">")?;
    rest.split('<').next().map(str::to_owned)
}

async fn the_lines_have_the_token_once(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let viber = FakeDaemon::connected(&board, "lab").await;
    let before = owner.page(PAGE).await.expect(200).body;
    assert!(token_in(&before).is_none() && before.contains("Bearer vbt_…"), "{before}");

    let made = owner.post_form(PAGE, &[("name", "Ada's Claude"), ("role", "operator")]).await.expect(200);
    assert_eq!(made.header("cache-control"), "no-store");
    let token = token_in(&made.body).expect("a token");
    let address = format!("{}/mcp", board.url);
    for line in [
        format!(
            "claude mcp add --transport http --scope user viber-board {address} --header \
             &#34;Authorization: Bearer {token}&#34;"
        ),
        format!("export VIBER_BOARD_TOKEN={token}"),
        format!("codex mcp add viber-board --url {address} --bearer-token-env-var VIBER_BOARD_TOKEN"),
        format!("&#34;url&#34;: &#34;{address}&#34;"),
        format!("&#34;headers&#34;: {{ &#34;Authorization&#34;: &#34;Bearer {token}&#34; }}"),
    ] {
        assert!(made.body.contains(&line), "{line}: {}", made.body);
    }
    assert!(!made.body.contains("vbt_…"));
    // The files are what their clients read.
    for file in ["cursor", "any"] {
        let (_, rest) = made.body.split_once(&format!("id=\"{file}\"><code>")).expect("a file");
        let text = rest.split("</code>").next().expect("its end").replace("&#34;", "\"");
        let read: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let server = &read["mcpServers"]["viber-board"];
        assert_eq!(server["url"], address.as_str());
        assert_eq!(server["headers"]["Authorization"], format!("Bearer {token}"));
        assert_eq!(server.get("type").is_some(), file == "any");
    }
    // It works at once, as who made it said; nobody is shown it again.
    let program = Person::with_token(&board.url, &token);
    assert_eq!(shown_tools(&program).await, TOOLS);
    let task = told(&program, "submit_task", json!({ "goal": "From a tool", "viber": viber.id })).await;
    let again = owner.page(PAGE).await.expect(200).body;
    assert!(!again.contains(&token) && token_in(&again).is_none());
    let tokens = owner.get("/api/v1/tokens").await.expect(200).json();
    let listed = &tokens["items"][0];
    assert_eq!((&listed["name"], &listed["role"]), (&json!("Ada's Claude"), &json!("operator")), "{tokens:#}");
    let audit = owner.get("/api/v1/audit?limit=50").await.expect(200).json();
    let row = audit["items"].as_array().expect("rows").iter().find(|row| row["action"] == "task.submit");
    assert_eq!(row.expect("its row")["object"], task["taskId"], "what a tool does is in the audit, too");
    owner.delete(&format!("/api/v1/tokens/{}", id(listed, "id"))).await.expect(204);
    program.send(after_handshake(&program, "ping", &json!({}))).await.expect(401);

    // What cannot be made is said with what was typed, and more than a tool needs is not given.
    let nameless = owner.post_form(PAGE, &[("name", " "), ("role", "viewer")]).await.expect(422).body;
    assert!(token_in(&nameless).is_none() && nameless.contains("role=\"alert\""), "{nameless}");
    let high = owner.post_form(PAGE, &[("name", "high"), ("role", "owner")]).await.expect(422).body;
    assert!(high.contains("no role above operator") && high.contains("value=\"high\""), "{high}");
    for role in ["viewer", "operator"] {
        let member = board.operator(HOME, &format!("{role}@example.org"), role).await;
        let page = member.page(PAGE).await.expect(200).body;
        assert!(page.contains("claude mcp add") && !page.contains("<form class=\"stack-form"), "{page}");
        assert!(page.contains("Only admins and owners"), "{page}");
        member.post_form(PAGE, &[("name", "mine"), ("role", "viewer")]).await.expect(403);
    }
    board.assert_invariants().await;
}

/// A person makes a token in a browser.
async fn connected_by_hand(scripts: Scripts) {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let browser = Browser::open_on(Screen::Desk, scripts).await;
    browser.sign_in(&owner).await;
    browser.go(&format!("{}/t/{HOME}/settings", board.url)).await;
    browser.click("nav.filters a[href$='/settings/connect']").await;
    browser.sees("#connect-title", "Connect a tool").await;
    browser.fill("input[name=name]", "Codex on my laptop").await;
    browser.click(".stack-form button").await;
    browser.sees(".callout[role=status]", "shown only this once").await;
    let token = browser.text_of("#token-secret").await.trim().to_owned();
    assert!(browser.text_of("#claude code").await.contains(&format!("Bearer {token}")));
    let program = Person::with_token(&board.url, &token);
    assert_eq!(shown_tools(&program).await, TOOLS);
    assert_eq!(browser.count("[data-copy]:not([hidden])").await > 0, scripts == Scripts::On);
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    browser.go(&format!("{}{PAGE}", board.url)).await;
    browser.sees("#codex-token", "vbt_…").await;
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_connected_in_a_browser() {
    connected_by_hand(Scripts::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_is_connected_without_a_script() {
    connected_by_hand(Scripts::Off).await;
}
