//! Which revision of the protocol a request speaks. From 2026-07-28 on each request says it and what its client can do, in
//! its metadata and again in its headers; before that a client agrees on one with `initialize` and names it in a header.
//!
//! Source: the specification at modelcontextprotocol.io, "Streamable HTTP" and "Versioning" of 2026-07-28, "Lifecycle"
//! and "Transports" of 2025-11-25.

use axum::http::{HeaderMap, StatusCode};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};

use super::message::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcFault, RpcRequest};

/// The revision without a handshake.
const STATELESS: &str = "2026-07-28";
/// Those with one, the newest first. They differ in nothing that the Board uses.
const WITH_HANDSHAKE: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// All of them, the newest first.
pub const SUPPORTED: [&str; 3] = [STATELESS, WITH_HANDSHAKE[0], WITH_HANDSHAKE[1]];

const VERSION_HEADER: &str = "mcp-protocol-version";
const METHOD_HEADER: &str = "mcp-method";
const NAME_HEADER: &str = "mcp-name";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// How a request is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolRevision {
    Stateless,
    Handshake,
}

impl ProtocolRevision {
    /// The revision that a request names. Whoever names none is refused with those that the Board speaks.
    pub fn of(headers: &HeaderMap, request: &RpcRequest) -> Result<Self, RpcFault> {
        let said = match request.meta(VERSION_KEY) {
            None if request.method == "initialize" => return Ok(Self::Handshake),
            None => None,
            Some(Value::String(version)) => Some(version.as_str()),
            Some(_) => return Err(RpcFault::invalid_params(format!("{VERSION_KEY} is a text"))),
        };
        let Some(named) = one(headers, VERSION_HEADER)? else {
            return Err(RpcFault::header_mismatch(format!(
                "the header MCP-Protocol-Version is missing; this server speaks {}",
                SUPPORTED.join(", ")
            )));
        };
        if said.is_some_and(|said| said != named) {
            return Err(RpcFault::header_mismatch(format!("MCP-Protocol-Version is not what {VERSION_KEY} says")));
        }
        if WITH_HANDSHAKE.contains(&named) {
            return Ok(Self::Handshake);
        }
        if named != STATELESS {
            return Err(RpcFault::unsupported_version(named, &SUPPORTED));
        }
        if said.is_none() {
            return Err(RpcFault::invalid_params(format!("params._meta has no {VERSION_KEY}")));
        }
        if !request.meta(CAPABILITIES_KEY).is_some_and(Value::is_object) {
            return Err(RpcFault::invalid_params(format!("params._meta has no {CAPABILITIES_KEY}")));
        }
        check_mirrored(headers, request)?;
        Ok(Self::Stateless)
    }

    /// Refuses a notification that names a revision which the Board does not speak; it need not name one.
    pub fn check_named(headers: &HeaderMap) -> Result<(), RpcFault> {
        match one(headers, VERSION_HEADER)? {
            Some(named) if !SUPPORTED.contains(&named) => Err(RpcFault::unsupported_version(named, &SUPPORTED)),
            _ => Ok(()),
        }
    }

    /// The revision that `initialize` agrees on: what the client names if it has a handshake, else the newest that has.
    pub fn agreed(params: &Map<String, Value>) -> Result<&'static str, RpcFault> {
        let asked = params.get("protocolVersion").and_then(Value::as_str);
        let asked = asked.ok_or_else(|| RpcFault::invalid_params("protocolVersion is missing"))?;
        let known = WITH_HANDSHAKE.into_iter().find(|known| *known == asked);
        Ok(known.unwrap_or(WITH_HANDSHAKE[0]))
    }

    /// A result with what this revision wants of each.
    pub fn complete(self, mut result: Value) -> Value {
        if self == Self::Stateless {
            result["resultType"] = json!("complete");
            result["_meta"] = json!({ SERVER_KEY: server_info() });
        }
        result
    }

    /// A result that a client may keep for its own token, with what this revision wants of these.
    pub fn cacheable(self, mut result: Value, ttl_ms: u64) -> Value {
        if self == Self::Stateless {
            result["ttlMs"] = json!(ttl_ms);
            // What there is depends on the token's role.
            result["cacheScope"] = json!("private");
        }
        result
    }

    /// The status of an answer that is a fault.
    pub fn status(self, fault: &RpcFault) -> StatusCode {
        match (self, fault.code) {
            (Self::Stateless, METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
            (Self::Stateless, INVALID_PARAMS) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        }
    }
}

/// The Board as a program.
pub fn server_info() -> Value {
    json!({ "name": "viber-board", "title": "Viber Board", "version": env!("CARGO_PKG_VERSION") })
}

/// What headers repeat of a body must be what the body says: something between might have believed them.
fn check_mirrored(headers: &HeaderMap, request: &RpcRequest) -> Result<(), RpcFault> {
    if one(headers, METHOD_HEADER)? != Some(request.method.as_str()) {
        return Err(RpcFault::header_mismatch("Mcp-Method is missing, or not the method of the body"));
    }
    if request.method != "tools/call" {
        return Ok(());
    }
    let name = request.params.get("name").and_then(Value::as_str);
    let named = one(headers, NAME_HEADER)?.and_then(decoded);
    if name.is_none() || named.as_deref() != name {
        return Err(RpcFault::header_mismatch("Mcp-Name is missing, or not the name of the body"));
    }
    Ok(())
}

/// The text of a header that occurs once at most.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, RpcFault> {
    let mut all = headers.get_all(name).iter();
    let first = all.next();
    if all.next().is_some() {
        return Err(RpcFault::header_mismatch(format!("{name} occurs more than once")));
    }
    let text = first.map(|value| value.to_str().map(str::trim)).transpose();
    text.map_err(|_| RpcFault::header_mismatch(format!("{name} is no ASCII text")))
}

/// A name as a header carries it: plain, or in base64 between two marks.
fn decoded(text: &str) -> Option<String> {
    let Some(packed) = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(text.to_owned());
    };
    String::from_utf8(BASE64_STANDARD.decode(packed).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    fn of(pairs: &[(&'static str, &'static str)], method: &str, params: Value) -> Result<ProtocolRevision, i32> {
        let Value::Object(params) = params else { panic!("an object") };
        let request = RpcRequest { id: json!(1), method: method.to_owned(), params };
        ProtocolRevision::of(&headers(pairs), &request).map_err(|fault| fault.code)
    }

    fn meta(version: &str) -> Value {
        json!({ "_meta": { VERSION_KEY: version, CAPABILITIES_KEY: {} }, "name": "search" })
    }

    const NEW: (&str, &str) = (VERSION_HEADER, STATELESS);
    const CALL: (&str, &str) = (METHOD_HEADER, "tools/call");

    #[test]
    fn a_request_says_its_revision_in_its_body_and_its_headers() {
        let search = (NAME_HEADER, "search");
        assert_eq!(of(&[NEW, CALL, search], "tools/call", meta(STATELESS)), Ok(ProtocolRevision::Stateless));
        let packed = (NAME_HEADER, "=?base64?c2VhcmNo?=");
        assert_eq!(of(&[NEW, CALL, packed], "tools/call", meta(STATELESS)), Ok(ProtocolRevision::Stateless));
        let list = (METHOD_HEADER, "tools/list");
        assert_eq!(of(&[NEW, list], "tools/list", meta(STATELESS)), Ok(ProtocolRevision::Stateless));
        for (pairs, code) in [
            (vec![CALL, search], -32020),
            (vec![NEW, search], -32020),
            (vec![NEW, CALL], -32020),
            (vec![NEW, list, search], -32020),
            (vec![NEW, CALL, (NAME_HEADER, "stop_task")], -32020),
            (vec![NEW, CALL, (NAME_HEADER, "=?base64?!?=")], -32020),
            (vec![NEW, NEW, CALL, search], -32020),
            (vec![(VERSION_HEADER, "2025-11-25"), CALL, search], -32020),
        ] {
            assert_eq!(of(&pairs, "tools/call", meta(STATELESS)), Err(code), "{pairs:?}");
        }
        let plain = [NEW, CALL, search];
        assert_eq!(of(&plain, "tools/call", json!({ "name": "search" })), Err(INVALID_PARAMS));
        let silent = json!({ "_meta": { VERSION_KEY: STATELESS }, "name": "search" });
        assert_eq!(of(&plain, "tools/call", silent), Err(INVALID_PARAMS));
        let future = [(VERSION_HEADER, "2030-01-01"), CALL, search];
        assert_eq!(of(&future, "tools/call", meta("2030-01-01")), Err(-32022));
    }

    #[test]
    fn earlier_ones_shake_hands() {
        assert_eq!(of(&[], "initialize", json!({ "protocolVersion": "2025-06-18" })), Ok(ProtocolRevision::Handshake));
        for version in WITH_HANDSHAKE {
            assert_eq!(of(&[(VERSION_HEADER, version)], "tools/list", json!({})), Ok(ProtocolRevision::Handshake));
        }
        assert_eq!(of(&[], "tools/list", json!({})), Err(-32020));
        assert_eq!(of(&[(VERSION_HEADER, "2025-03-26")], "tools/list", json!({})), Err(-32022));
        for (asked, agreed) in [
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2024-11-05", "2025-11-25"),
            (STATELESS, "2025-11-25"),
        ] {
            let params = Map::from_iter([("protocolVersion".to_owned(), json!(asked))]);
            assert_eq!(ProtocolRevision::agreed(&params).expect("one"), agreed, "{asked}");
        }
        assert!(ProtocolRevision::agreed(&Map::new()).is_err());
    }
}
