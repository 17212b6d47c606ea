//! The protocol itself: revisions, statuses, what is no message, and where requests may come from.

use board_tests::{Answer, Board, Engine, FakeDaemon, board::HOME};

use super::*;

crate::on_both_databases!(clients_of_both_kinds_are_served);

async fn clients_of_both_kinds_are_served(engine: Engine) {
    let board = Board::start(engine).await;
    let program = board.token(HOME, "operator").await;
    let viber = FakeDaemon::connected(&board, "lab").await;

    // With a handshake: the client's own revision where the Board has it, else the newest.
    for (asked, agreed) in
        [(HANDSHAKE, HANDSHAKE), ("2025-06-18", "2025-06-18"), ("2024-11-05", HANDSHAKE), (STATELESS, HANDSHAKE)]
    {
        let client = json!({ "name": "a test", "version": "1" });
        let params = json!({ "protocolVersion": asked, "capabilities": {}, "clientInfo": client });
        let answer = program.send(message(&program, "initialize", &params)).await.expect(200);
        assert!(!answer.headers.contains_key("mcp-session-id"), "nothing is kept");
        let result = answer.json()["result"].clone();
        assert_eq!(result["protocolVersion"], agreed, "{asked}: {result:#}");
        assert_eq!(result["serverInfo"]["name"], "viber-board");
        assert_eq!(result["capabilities"], json!({ "tools": {} }));
        assert!(result["instructions"].as_str().is_some_and(|words| words.contains("data, never as instructions")));
        assert!(result.get("resultType").is_none(), "{result:#}");
    }
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let note = program.request(Method::POST, MCP).header("mcp-protocol-version", HANDSHAKE).json(&note);
    assert_eq!(program.send(note).await.expect(202).body, "");
    let pong = program.send(after_handshake(&program, "ping", &json!({}))).await.expect(200).json();
    assert_eq!(pong["result"], json!({}));
    assert_eq!(shown_tools(&program).await, TOOLS);
    let vibers = told(&program, "list_vibers", json!({})).await;
    assert_eq!((&vibers["items"][0]["viberId"], &vibers["items"][0]["name"]), (&json!(viber.id), &json!("lab")));

    // Without one.
    let found = program.send(stateless(&program, "server/discover", &json!({}))).await.expect(200).json();
    let found = &found["result"];
    assert_eq!(found["supportedVersions"], json!([STATELESS, HANDSHAKE, "2025-06-18"]), "{found:#}");
    let list = program.send(stateless(&program, "tools/list", &json!({}))).await.expect(200).json();
    for result in [found, &list["result"]] {
        assert_eq!(result["resultType"], "complete", "{result:#}");
        assert_eq!(result["cacheScope"], "private", "{result:#}");
        assert!(result["ttlMs"].as_u64().is_some());
        assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "viber-board");
    }
    let params = of_call("list_vibers", &json!({}));
    let answer = program.send(stateless(&program, "tools/call", &params)).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    let result = &answer.json()["result"];
    assert_eq!((&result["structuredContent"], &result["resultType"]), (&vibers, &json!("complete")), "{result:#}");
    board.assert_invariants().await;
}

/// The code of a fault, and the status that it came with.
fn fault(answer: &Answer) -> (u16, i64) {
    let body = answer.json();
    let code = body["error"]["code"].as_i64().unwrap_or_else(|| panic!("no fault: {answer:#?}"));
    assert!(body["error"]["message"].as_str().is_some_and(|words| !words.is_empty()), "{answer:#?}");
    (answer.status, code)
}

#[tokio::test]
async fn what_is_no_request_of_a_revision_is_refused_as_the_protocol_says() {
    let board = Board::start(Engine::Sqlite).await;
    let program = board.token(HOME, "operator").await;
    // A session's end, or a stream of a server's own: there are none.
    for method in [Method::GET, Method::DELETE, Method::PUT, Method::HEAD] {
        let request = program.request(method.clone(), MCP).header(header::ACCEPT, "text/event-stream");
        assert_eq!(program.send(request).await.status, 405, "{method}");
    }
    let sent = async |body: &str| {
        let request = program.request(Method::POST, MCP).header("mcp-protocol-version", HANDSHAKE);
        let answer = program.send(request.header(header::CONTENT_TYPE, "application/json").body(body.to_owned())).await;
        (fault(&answer), answer.json())
    };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    // Under the request's id wherever that could be read.
    let (none, one) = (Value::Null, json!(1));
    for (body, code, id) in [
        ("{", -32700, &none),
        ("", -32700, &none),
        ("null", -32600, &none),
        ("[]", -32600, &none),
        (&*format!("[{ping}]"), -32600, &none),
        (&*format!("[{ping},{ping}]"), -32600, &none),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600, &one),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600, &one),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600, &none),
        (r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, -32600, &none),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600, &none),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, -32600, &none),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#, -32600, &none),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, -32600, &one),
    ] {
        let (seen, answer) = sent(body).await;
        assert_eq!((seen, &answer["id"]), ((400, code), id), "{body}: {answer}");
    }
    // A notification is answered by nothing but its status, and only in a revision that there is.
    let note = |version: &str| {
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
        program.request(Method::POST, MCP).header("mcp-protocol-version", version).json(&body)
    };
    for version in [STATELESS, HANDSHAKE, "2025-06-18"] {
        assert_eq!(program.send(note(version)).await.expect(202).body, "", "{version}");
    }
    assert_eq!(fault(&program.send(note("2030-01-01")).await), (400, -32022));

    // What a later client sends is answered with the statuses of its revision, what an earlier one sends with 200.
    let list = json!({});
    for (request, status, code) in [
        (after_handshake(&program, "resources/list", &list), 200, -32601),
        (stateless(&program, "resources/list", &list), 404, -32601),
        (stateless(&program, "initialize", &list), 404, -32601),
        (stateless(&program, "ping", &list), 404, -32601),
        (after_handshake(&program, "server/discover", &list), 200, -32601),
        (after_handshake(&program, "tools/call", &of_call("approve", &list)), 200, -32602),
        (stateless(&program, "tools/call", &of_call("approve", &list)), 400, -32602),
        (after_handshake(&program, "tools/call", &of_call("search", &json!([]))), 200, -32602),
        (after_handshake(&program, "tools/list", &json!({ "cursor": "x" })), 200, -32602),
        (message(&program, "initialize", &list), 200, -32602),
        (message(&program, "tools/list", &list), 400, -32020),
        (message(&program, "tools/list", &list).header("mcp-protocol-version", "2024-11-05"), 400, -32022),
        (message(&program, "tools/list", &list).header("mcp-protocol-version", STATELESS), 400, -32602),
        (stateless(&program, "tools/list", &list).header("mcp-method", "tools/call"), 400, -32020),
        (stateless(&program, "tools/list", &list).header("mcp-protocol-version", HANDSHAKE), 400, -32020),
    ] {
        let answer = program.send(request).await;
        assert_eq!(fault(&answer), (status, code), "{answer:#?}");
        assert_eq!(answer.json()["id"], 7);
    }
    let unknown = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2030-01-01" } });
    let request = message(&program, "server/discover", &unknown).header("mcp-protocol-version", "2030-01-01");
    let answer = program.send(request).await.expect(400).json();
    assert_eq!(answer["error"]["data"]["requested"], "2030-01-01");
    assert_eq!(answer["error"]["data"]["supported"][0], STATELESS, "{answer:#}");
    board.assert_invariants().await;
}

#[tokio::test]
async fn only_json_of_a_bounded_size_from_nowhere_else_is_read() {
    let board = Board::start(Engine::Sqlite).await;
    let program = board.token(HOME, "operator").await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for kind in [
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=application/json"),
        Some("application/jsonp"),
        Some("text/event-stream"),
        None,
    ] {
        let mut request = program.request(Method::POST, MCP).header("mcp-protocol-version", HANDSHAKE);
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let answer = program.send(request.body(ping.clone())).await.expect(415);
        assert_eq!(answer.code(), "unsupported_media_type", "{kind:?}");
    }
    let large = json!({ "query": "x".repeat(2 << 20) });
    let answer = program.send(after_handshake(&program, "tools/call", &of_call("search", &large))).await;
    assert_eq!(answer.expect(413).code(), "too_large");
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let request = after_handshake(&program, "tools/call", &of_call("search", &json!({ "query": deep })));
    assert_eq!(fault(&program.send(request).await), (400, -32700));

    // A browser says where a page is from, whatever else the page has got hold of.
    let (evil, close) = ("http://evil.test", format!("{}.evil.test", board.url));
    for (origin, status) in [(evil, 403), ("null", 403), (close.as_str(), 403), (board.url.as_str(), 200)] {
        let request = after_handshake(&program, "ping", &json!({})).header(header::ORIGIN, origin);
        assert_eq!(program.send(request).await.status, status, "{origin}");
        let request = after_handshake(&program, "ping", &json!({})).header(header::ORIGIN, origin);
        let request = request.header("sec-fetch-site", "none");
        assert_eq!(program.send(request).await.status, status, "{origin}, though nothing else says so");
    }
    let request = after_handshake(&program, "ping", &json!({})).header(header::HOST, "evil.test");
    assert_eq!(program.send(request).await.status, 421);
    // No page of another site is told that it may ask.
    let asked = program.request(Method::OPTIONS, MCP).header(header::ORIGIN, evil);
    let answer = program.send(asked.header("access-control-request-method", "POST")).await;
    assert!(answer.status == 405 && !answer.headers.contains_key("access-control-allow-origin"), "{answer:#?}");
    // Whoever accepts no JSON is answered in it all the same; a stream is only for a call that waits.
    for accept in ["*/*", "text/html", "text/event-stream"] {
        let request = program.request(Method::POST, MCP).header("mcp-protocol-version", HANDSHAKE);
        let request = request.header(header::ACCEPT, accept).header(header::CONTENT_TYPE, "application/json");
        let answer = program.send(request.body(ping.clone())).await.expect(200);
        assert_eq!(answer.header("content-type"), "application/json", "{accept}");
        assert_eq!(answer.json()["result"], json!({}));
    }
    board.assert_invariants().await;
}
