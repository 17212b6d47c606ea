//! Assembles tool calls from fragments, using whatever the provider gives to tell them apart.
//!
//! The id decides first: a new id is a new call, even under an old index (some providers send all calls under index 0).
//! Then the index, then the name: without id and index, a name after complete arguments starts the next call.

use serde_json::Value;

use super::super::{ToolCall, decode::arguments};

/// Calls in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct CallAssembler(Vec<PartialCall>);

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    index: Option<u64>,
    name: String,
    raw: String,
    /// Data that a provider attaches to the call and expects back.
    extra: Option<Value>,
}

impl PartialCall {
    fn is_complete(&self) -> bool {
        !self.raw.trim().is_empty() && arguments(&self.raw).is_ok()
    }
}

impl CallAssembler {
    /// Adds one entry of `delta.tool_calls`.
    pub fn add(&mut self, delta: &Value) {
        let text = |place: &str| delta.pointer(place).and_then(Value::as_str).unwrap_or("");
        let (id, name) = (text("/id"), text("/function/name"));
        let index = delta.get("index").and_then(Value::as_u64);
        let at = self.find(id, index, name).unwrap_or_else(|| {
            self.0.push(PartialCall { index, ..PartialCall::default() });
            self.0.len() - 1
        });
        let call = &mut self.0[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        if let Some(extra) = delta.get("extra_content").filter(|extra| !extra.is_null()) {
            call.extra = Some(extra.clone());
        }
        match delta.pointer("/function/arguments") {
            Some(Value::String(piece)) => call.raw.push_str(piece),
            Some(object @ Value::Object(_)) => call.raw = object.to_string(),
            _ => {}
        }
    }

    fn find(&self, id: &str, index: Option<u64>, name: &str) -> Option<usize> {
        let last = self.0.len().checked_sub(1);
        let by_index = || index.and_then(|index| self.0.iter().rposition(|call| call.index == Some(index)));
        if !id.is_empty() {
            if let Some(same) = self.0.iter().position(|call| call.id == id) {
                return Some(same);
            }
            let continued = by_index().or(last.filter(|_| index.is_none()));
            // An id that arrives late, or changes between chunks of the same call, which then does not repeat the name.
            return continued.filter(|at| (self.0[*at].id.is_empty() && !self.0[*at].is_complete()) || name.is_empty());
        }
        if index.is_some() {
            return by_index().filter(|at| name.is_empty() || !self.0[*at].is_complete() || !self.0[*at].id.is_empty());
        }
        last.filter(|at| name.is_empty() || (self.0[*at].name == name && !self.0[*at].is_complete()))
    }

    /// The calls with parsed arguments, and attached data by the call's position. Calls without a name are dropped,
    /// since nothing could answer them.
    pub fn complete(self) -> (Vec<ToolCall>, Vec<(usize, Value)>) {
        let named = self.0.into_iter().filter(|call| !call.name.is_empty());
        let mut extras = Vec::new();
        let calls = named.enumerate().map(|(at, call)| {
            extras.extend(call.extra.map(|extra| (at, extra)));
            ToolCall { id: call.id, name: call.name, args: arguments(&call.raw) }
        });
        let calls = calls.collect();
        (calls, extras)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(deltas: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = CallAssembler::default();
        deltas.iter().for_each(|delta| calls.add(delta));
        let show = |args: Result<Value, String>| args.map_or_else(|raw| format!("bad {raw}"), |args| args.to_string());
        calls.complete().0.into_iter().map(|call| (call.id, call.name, show(call.args))).collect()
    }

    fn of(id: &str, name: &str, args: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), args.to_owned())
    }

    #[test]
    fn fragments_find_their_call_by_index() {
        let deltas = [
            json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": ""}}),
            json!({"index": 1, "id": "b", "function": {"name": "list"}}),
            json!({"index": 0, "function": {"arguments": "{\"p\":"}}),
            json!({"index": 0, "id": "", "function": {"name": "", "arguments": "1}"}}),
        ];
        assert_eq!(calls(&deltas), [of("a", "read", r#"{"p":1}"#), of("b", "list", "{}")]);
    }

    #[test]
    fn without_an_index_or_with_index_zero_a_new_id_is_a_new_call() {
        for index in [json!(null), json!(0)] {
            let deltas =
                ["a", "b"].map(|id| json!({"index": index, "id": id, "function": {"name": "read", "arguments": "{}"}}));
            assert_eq!(calls(&deltas), [of("a", "read", "{}"), of("b", "read", "{}")]);
        }
    }

    #[test]
    fn repeated_ids_and_names_stay_one_call() {
        let part = |args: &str| json!({"index": 0, "id": "a", "function": {"name": "read", "arguments": args}});
        assert_eq!(calls(&[part("{\"p"), part("\":1"), part("}")]), [of("a", "read", r#"{"p":1}"#)]);
    }

    #[test]
    fn without_ids_the_index_or_the_next_name_decides() {
        let indexed = [0, 1].map(|index| json!({"index": index, "function": {"name": "read", "arguments": "{}"}}));
        assert_eq!(calls(&indexed), [of("", "read", "{}"), of("", "read", "{}")]);
        let bare = [
            json!({"function": {"name": "read", "arguments": "{\"p\":1}"}}),
            json!({"function": {"name": "read", "arguments": "{\"p\":"}}),
            json!({"function": {"arguments": "2}"}}),
        ];
        assert_eq!(calls(&bare), [of("", "read", r#"{"p":1}"#), of("", "read", r#"{"p":2}"#)]);
    }

    #[test]
    fn an_object_is_taken_whole_and_a_cut_one_is_bad() {
        assert_eq!(
            calls(&[json!({"id": "a", "function": {"name": "read", "arguments": {"p": 1}}})]),
            [of("a", "read", r#"{"p":1}"#)]
        );
        assert_eq!(
            calls(&[json!({"id": "a", "function": {"name": "read", "arguments": "{\"p"}})]),
            [of("a", "read", "bad {\"p")]
        );
        assert_eq!(calls(&[json!({"id": "a", "function": {"name": "read", "arguments": "[1]"}})])[0].2, "bad [1]");
    }
}
