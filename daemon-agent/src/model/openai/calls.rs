//! Assembles tool calls from fragments, using whatever the provider gives to tell them apart.
//!
//! The id decides first: a new id is a new call, even under an old index (some providers send all calls under index 0).
//! Then the index, then the name: without id and index, a name after complete arguments starts the next call. Local servers
//! also give several calls one id: those are told apart by index, name and arguments, and get ids of their own from the loop.

use serde_json::Value;

use super::super::{ToolCall, decode::arguments};

/// Calls of one answer that are told apart: far more than are carried out. What comes behind them is not read.
const MAX_CALLS: usize = 1_024;

/// Calls in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    calls: Vec<PartialCall>,
    /// Number of the chunk that is being read.
    chunk: usize,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    index: Option<u64>,
    name: String,
    raw: RawArguments,
    /// The last chunk that said something of it.
    chunk: usize,
    /// Data that a provider attaches to the call and expects back.
    extra: Option<Value>,
}

/// Arguments as they arrive. Whether they are complete is asked at every fragment: their brackets are counted, and they are
/// parsed once, where the outermost one closes.
#[derive(Debug, Default)]
struct RawArguments {
    text: String,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The outermost value has ended.
    has_ended: bool,
    /// Something stands behind its end.
    is_followed: bool,
    is_object: bool,
}

impl RawArguments {
    fn push(&mut self, piece: &str) {
        let had_ended = self.has_ended;
        piece.bytes().for_each(|byte| self.pass(byte));
        self.text.push_str(piece);
        self.is_object = match had_ended || !self.has_ended {
            true => self.is_object && !self.is_followed,
            false => !self.is_followed && arguments(&self.text).is_ok(),
        };
    }

    fn pass(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.in_string => self.is_escaped = true,
            b'"' if self.in_string => (self.in_string, self.has_ended) = (false, self.depth == 0),
            _ if self.in_string => {}
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ if self.has_ended => self.is_followed = true,
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.has_ended = self.depth == 0;
            }
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        // Some servers say so that there are none.
        self.is_object || (self.text.len() <= 16 && self.text.trim() == "null")
    }
}

impl PartialCall {
    fn is_complete(&self) -> bool {
        self.raw.is_complete()
    }

    /// Whether a complete call is said once more, as some gateways do at the end of a stream.
    fn is_repeated_by(&self, name: &str, raw: &str) -> bool {
        name == self.name && raw == self.raw.text && self.is_complete()
    }

    /// Whether an entry with the id of this call, in this chunk, is another call. Providers may repeat id and name in every
    /// fragment.
    fn is_followed_by(&self, index: Option<u64>, (name, raw): (&str, &str), chunk: usize) -> bool {
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        let is_elsewhere = index.is_some() && self.index.is_some() && index != self.index;
        let is_whole = !raw.trim().is_empty() && self.is_complete();
        name != self.name || is_elsewhere || (is_whole && (raw != self.raw.text || chunk == self.chunk))
    }
}

impl CallAssembler {
    /// Adds the entries of one `delta.tool_calls`.
    pub fn add(&mut self, entries: &[Value]) {
        self.chunk += 1;
        entries.iter().for_each(|entry| self.add_entry(entry));
    }

    fn add_entry(&mut self, delta: &Value) {
        let text = |place: &str| delta.pointer(place).and_then(Value::as_str).unwrap_or("");
        let (id, name) = (text("/id"), text("/function/name"));
        let index = delta.get("index").and_then(Value::as_u64);
        let (raw, is_object) = match delta.pointer("/function/arguments") {
            Some(Value::String(piece)) => (piece.clone(), false),
            Some(object @ Value::Object(_)) => (object.to_string(), true),
            _ => (String::new(), false),
        };
        let at = match self.find(id, index, (name, raw.as_str())) {
            Some(at) => at,
            None if self.calls.len() == MAX_CALLS => return,
            None => {
                self.calls.push(PartialCall { index, ..PartialCall::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        call.chunk = self.chunk;
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        let is_repeated = call.is_repeated_by(name, &raw);
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        if let Some(extra) = delta.get("extra_content").filter(|extra| !extra.is_null()) {
            call.extra = Some(extra.clone());
        }
        if is_object {
            call.raw = RawArguments::default();
        }
        if is_object || !is_repeated {
            call.raw.push(&raw);
        }
    }

    fn find(&self, id: &str, index: Option<u64>, (name, raw): (&str, &str)) -> Option<usize> {
        let calls = &self.calls;
        let last = calls.len().checked_sub(1);
        let by_index = || index.and_then(|index| calls.iter().rposition(|call| call.index == Some(index)));
        if !id.is_empty() {
            let of_id = |call: &PartialCall| call.id == id;
            let here = calls.iter().rposition(|call| of_id(call) && call.index == index);
            if let Some(same) = here.or_else(|| calls.iter().rposition(of_id)) {
                let is_there = |call: &PartialCall| index.is_none() || call.index.is_none() || call.index == index;
                let is_said_again = |call: &PartialCall| {
                    of_id(call) && is_there(call) && call.chunk != self.chunk && call.is_repeated_by(name, raw)
                };
                let before = calls[same].is_complete().then(|| calls.iter().position(is_said_again)).flatten();
                let goes_on = || !calls[same].is_followed_by(index, (name, raw), self.chunk);
                return before.or_else(|| goes_on().then_some(same));
            }
            let continued = by_index().or(last.filter(|_| index.is_none()));
            // An id that arrives late, or changes between chunks of the same call, which then does not repeat the name.
            return continued.filter(|at| (calls[*at].id.is_empty() && !calls[*at].is_complete()) || name.is_empty());
        }
        if index.is_some() {
            return by_index().filter(|at| name.is_empty() || !calls[*at].is_complete() || !calls[*at].id.is_empty());
        }
        last.filter(|at| name.is_empty() || (calls[*at].name == name && !calls[*at].is_complete()))
    }

    /// The calls with parsed arguments, and attached data by the call's position. Calls without a name are dropped,
    /// since nothing could answer them.
    pub fn complete(self) -> (Vec<ToolCall>, Vec<(usize, Value)>) {
        let named = self.calls.into_iter().filter(|call| !call.name.is_empty());
        let mut extras = Vec::new();
        let calls = named.enumerate().map(|(at, call)| {
            extras.extend(call.extra.map(|extra| (at, extra)));
            ToolCall { id: call.id, name: call.name, args: arguments(&call.raw.text) }
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
        deltas.iter().for_each(|delta| calls.add(std::slice::from_ref(delta)));
        shown(calls)
    }

    fn shown(calls: CallAssembler) -> Vec<(String, String, String)> {
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
    fn calls_that_share_an_id_are_told_apart() {
        let call = |index: Value, name: &str, args: &str| json!({"index": index, "id": "call_0", "function": {"name": name, "arguments": args}});
        let (one, two) = (of("call_0", "read", r#"{"p":1}"#), of("call_0", "read", r#"{"p":2}"#));
        for index in [json!(null), json!(0)] {
            let deltas = [call(index.clone(), "read", r#"{"p":1}"#), call(index.clone(), "read", r#"{"p":2}"#)];
            assert_eq!(calls(&deltas), [one.clone(), two.clone()], "index {index}");
            let deltas = [call(index.clone(), "read", r#"{"p":1}"#), call(index, "list", "")];
            assert_eq!(calls(&deltas), [one.clone(), of("call_0", "list", "{}")]);
        }
        let fragments = [
            call(json!(0), "read", r#"{"p":"#),
            call(json!(1), "read", ""),
            json!({"index": 1, "id": "call_0", "function": {"arguments": "{\"p\":2}"}}),
            json!({"index": 0, "function": {"arguments": "1}"}}),
        ];
        assert_eq!(calls(&fragments), [one.clone(), two]);
        // Two entries of one chunk are two calls, though they say the same; in another chunk the call is said once more.
        let same = call(json!(null), "read", r#"{"p":1}"#);
        assert_eq!(calls(&[same.clone(), same.clone()]), std::slice::from_ref(&one));
        let mut together = CallAssembler::default();
        together.add(&[same.clone(), same.clone()]);
        assert_eq!(shown(together), [one.clone(), one.clone()]);
        // So are all of them.
        let other = call(json!(null), "read", r#"{"p":2}"#);
        let mut again = CallAssembler::default();
        for chunk in [vec![same.clone()], vec![other.clone()], vec![same, other]] {
            again.add(&chunk);
        }
        assert_eq!(shown(again), [one.clone(), of("call_0", "read", r#"{"p":2}"#)]);
        let numbered = [0, 1].map(|index| call(json!(index), "read", r#"{"p":1}"#));
        assert_eq!(calls(&numbered), [one.clone(), one], "another index is another call");
    }

    #[test]
    fn long_arguments_in_small_pieces_are_read_once() {
        let args = json!({ "path": "/a", "content": "a \\ \"b\" [{} ]".repeat(32 * 1024) }).to_string();
        let began = std::time::Instant::now();
        let mut assembler = CallAssembler::default();
        for piece in args.as_bytes().chunks(4) {
            let piece = str::from_utf8(piece).expect("ASCII");
            assembler.add(&[json!({"index": 0, "id": "a", "function": {"name": "write", "arguments": piece}})]);
        }
        assert_eq!(shown(assembler), [of("a", "write", &args)]);
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    #[test]
    fn arguments_are_complete_where_their_outermost_bracket_closes() {
        let complete = |pieces: &[&str]| {
            let mut raw = RawArguments::default();
            pieces.iter().for_each(|piece| raw.push(piece));
            raw.is_complete()
        };
        for pieces in [
            &["{}"][..],
            &["{\"p\":", "\"}\"}"],
            &["{\"p\":\"\\", "\"\"}", " \n"],
            &[" null"],
            &["\"{\\\"p\\\"", ":1}\""],
        ] {
            assert!(complete(pieces), "{pieces:?}");
        }
        for pieces in [
            &[""][..],
            &["  "],
            &["{\"p\":", "{}"],
            &["{\"p\":\"}"],
            &["{}", "{}"],
            &["{}x", ""],
            &["}", "{}"],
            &["[1]"],
            &["{p}"],
            &["1"],
        ] {
            assert!(!complete(pieces), "{pieces:?}");
        }
    }

    #[test]
    fn an_answer_has_so_many_calls_at_most() {
        let deltas: Vec<Value> = (0..MAX_CALLS + 10)
            .map(|n| json!({"index": n, "id": format!("c{n}"), "function": {"name": "read", "arguments": "{}"}}))
            .collect();
        let all = calls(&deltas);
        assert_eq!((all.len(), all[MAX_CALLS - 1].0.as_str()), (MAX_CALLS, "c1023"));
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
