//! JSON-RPC 2.0, as the protocol uses it: one message a request, and no batches.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

use crate::{error::Error, web::api::json};

/// What of a caller's own words a fault repeats, bytes.
pub const MAX_ECHOED_BYTES: usize = 100;
/// Codes of JSON-RPC.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
/// Codes of the protocol itself.
const HEADER_MISMATCH: i32 = -32020;
const UNSUPPORTED_VERSION: i32 = -32022;

/// A message of a client.
#[derive(Debug)]
pub enum RpcMessage {
    Request(RpcRequest),
    Notification,
}

/// A request, which is answered under its id.
#[derive(Debug)]
pub struct RpcRequest {
    /// A text or a whole number.
    pub id: Value,
    pub method: String,
    pub params: Map<String, Value>,
}

impl RpcRequest {
    /// A field of the request's metadata.
    pub fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta").and_then(|meta| meta.get(key))
    }

    /// Under which token its client wants to hear of progress.
    pub fn progress_token(&self) -> Result<Option<Value>, RpcFault> {
        match self.meta("progressToken") {
            None | Some(Value::Null) => Ok(None),
            Some(token) if is_id(token) => Ok(Some(token.clone())),
            Some(_) => Err(RpcFault::invalid_params("progressToken is a text or a whole number")),
        }
    }
}

/// Why a message has no result.
#[derive(Debug)]
pub struct RpcFault {
    pub code: i32,
    message: String,
    data: Option<Value>,
    /// What the message calls itself, if it is no request but could be read so far.
    id: Option<Value>,
}

impl RpcFault {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, id: None }
    }

    /// The message is no request and no notification.
    fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(INVALID_REQUEST, message)
    }

    /// A parameter is missing or wrong.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    /// The Board has no such method.
    pub fn unknown_method(method: &str) -> Self {
        let method = protocol::text::head(method, MAX_ECHOED_BYTES);
        Self::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))
    }

    /// A header is missing, or says something else than the body.
    pub fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(HEADER_MISMATCH, message)
    }

    /// A revision that the Board does not speak.
    pub fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        let requested = protocol::text::head(requested, MAX_ECHOED_BYTES);
        let data = json!({ "supported": supported, "requested": requested });
        Self { data: Some(data), ..Self::new(UNSUPPORTED_VERSION, "Unsupported protocol version") }
    }

    /// The answer that says so, under the request's id; without one where none could be read.
    pub fn answer(self, id: Option<&Value>, status: StatusCode) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = self.data {
            error["data"] = data;
        }
        let mut body = json!({ "jsonrpc": "2.0", "error": error });
        if let Some(id) = id.cloned().or(self.id) {
            body["id"] = id;
        }
        (status, Json(body)).into_response()
    }
}

/// Reads a body. Duplicate keys and U+0000 are refused, as everywhere in the API.
pub fn read(bytes: &[u8]) -> Result<RpcMessage, RpcFault> {
    let message: Value = json::parse(bytes).map_err(|error| match error {
        Error::Malformed(message) => RpcFault::new(PARSE_ERROR, message),
        other => RpcFault::invalid_request(other.to_string()),
    })?;
    let mut fields = match message {
        Value::Object(fields) => fields,
        Value::Array(_) => return Err(RpcFault::invalid_request("a batch is not taken: send one message a request")),
        _ => return Err(RpcFault::invalid_request("a message is an object")),
    };
    let id = fields.remove("id");
    // A response's id is one of the Board's own, which asks nothing.
    let is_response = ["result", "error"].iter().any(|field| fields.contains_key(*field));
    let named = id.clone().filter(|id| is_id(id) && !is_response);
    let refused = |message: &str| RpcFault { id: named.clone(), ..RpcFault::invalid_request(message) };
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(refused("jsonrpc is \"2.0\""));
    }
    let Some(Value::String(method)) = fields.remove("method") else {
        return Err(refused("method is missing; the Board asks nothing and takes no responses"));
    };
    let Some(id) = id else { return Ok(RpcMessage::Notification) };
    if !is_id(&id) {
        return Err(refused("id is a text or a whole number"));
    }
    match fields.remove("params") {
        None => Ok(RpcMessage::Request(RpcRequest { id, method, params: Map::new() })),
        Some(Value::Object(params)) => Ok(RpcMessage::Request(RpcRequest { id, method, params })),
        Some(_) => Err(refused("params is an object")),
    }
}

fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}

/// The answer to a request.
pub fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> (i32, String) {
        match read(body.as_bytes()) {
            Err(fault) => (fault.code, fault.message),
            Ok(message) => panic!("{body} is {message:?}"),
        }
    }

    #[test]
    fn one_message_is_read_and_nothing_else() {
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"progressToken":"p"}}}"#;
        let request = read(body.as_bytes());
        let Ok(RpcMessage::Request(request)) = request else { panic!("{request:?}") };
        assert_eq!((&request.id, request.method.as_str()), (&json!(7), "tools/list"));
        assert_eq!(request.progress_token().expect("a token"), Some(json!("p")));
        let note = read(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert!(matches!(note, Ok(RpcMessage::Notification)), "{note:?}");
        assert_eq!(refused("{").0, PARSE_ERROR);
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":1}}"#, "x".repeat(10));
        for (body, word) in [
            ("[]", "batch"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "batch"),
            ("7", "object"),
            (r#"{"id":1,"method":"ping"}"#, "jsonrpc"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "no responses"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "id is"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "id is"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "params"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, "id"),
            (r#"{"jsonrpc":"2.0","id":"a\u0000","method":"ping"}"#, "U+0000"),
            (long.as_str(), "method"),
        ] {
            let (code, message) = refused(body);
            assert!(code == INVALID_REQUEST && message.contains(word), "{body}: {code} {message}");
        }
        for (body, id) in [
            (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}"#, json!("a")),
            (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, json!(7)),
            (r#"{"jsonrpc":"2.0","id":7}"#, json!(7)),
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":[7],"method":"ping"}"#, Value::Null),
        ] {
            assert_eq!(read(body.as_bytes()).expect_err("a refusal").id.unwrap_or_default(), id, "{body}");
        }
    }
}
