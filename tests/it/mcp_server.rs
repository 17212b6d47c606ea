//! The Board as an MCP server: clients of both kinds of revisions, what the tools do, who may use them, what is hostile.

mod authority;
mod hostile;
mod needs;
mod page;
mod tools;
mod waiting;
mod wire;

use board_tests::{Answer, Person};
use reqwest::{Method, RequestBuilder, header};
use serde_json::{Value, json};

const MCP: &str = "/mcp";
/// The newest revision with a handshake, and the one without.
const HANDSHAKE: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";
/// Every tool, as it is listed.
const TOOLS: [&str; 10] = [
    "list_vibers",
    "submit_task",
    "get_task",
    "send_message",
    "stop_task",
    "list_artifacts",
    "read_artifact",
    "search",
    "list_playbooks",
    "run_playbook",
];

/// A message as a client sends it; what it says of itself is still missing.
fn message(person: &Person, method: &str, params: &Value) -> RequestBuilder {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    person.request(Method::POST, MCP).header(header::ACCEPT, "application/json, text/event-stream").json(&body)
}

/// The request of a client that shook hands before.
fn after_handshake(person: &Person, method: &str, params: &Value) -> RequestBuilder {
    message(person, method, params).header("mcp-protocol-version", HANDSHAKE)
}

/// The same of a client that says everything with each request.
fn stateless(person: &Person, method: &str, params: &Value) -> RequestBuilder {
    let mut params = params.clone();
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(STATELESS);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let request = message(person, method, &params).header("mcp-protocol-version", STATELESS);
    let request = request.header("mcp-method", method);
    match params["name"].as_str() {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

/// The parameters of a call.
fn of_call(tool: &str, arguments: &Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// What an answer says: a body of its own, or the last message of a stream.
fn only_message(answer: &Answer) -> Value {
    match answer.body.lines().rev().find_map(|line| line.strip_prefix("data: ")) {
        Some(message) => serde_json::from_str(message).expect("a message"),
        None => answer.json(),
    }
}

/// The result of a call, which may be a refusal.
async fn call(person: &Person, tool: &str, arguments: &Value) -> Value {
    let request = after_handshake(person, "tools/call", &of_call(tool, arguments));
    let answer = only_message(&person.send(request).await.expect(200));
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer:#}");
    let result = answer["result"].clone();
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer:#}"));
    let read: Value = serde_json::from_str(text).expect("the text is JSON");
    assert_eq!(read, result["structuredContent"], "both say the same");
    result
}

/// What a call answers that is no refusal.
async fn told(person: &Person, tool: &str, arguments: Value) -> Value {
    let result = call(person, tool, &arguments).await;
    assert_eq!(result["isError"], false, "{tool} {arguments}: {result:#}");
    result["structuredContent"].clone()
}

/// The code of a refusal, which says what to do.
async fn refused(person: &Person, tool: &str, arguments: Value) -> String {
    let result = call(person, tool, &arguments).await;
    assert_eq!(result["isError"], true, "{tool} {arguments}: {result:#}");
    let error = &result["structuredContent"]["error"];
    for field in ["message", "whatToDo"] {
        assert!(error[field].as_str().is_some_and(|words| !words.is_empty()), "{tool} {arguments}: {error:#}");
    }
    error["code"].as_str().expect("a code").to_owned()
}

/// The names of the tools that somebody is shown.
async fn shown_tools(person: &Person) -> Vec<String> {
    let request = after_handshake(person, "tools/list", &json!({}));
    let list = person.send(request).await.expect(200).json();
    let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list: {list:#}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}
