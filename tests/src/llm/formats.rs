//! How a scripted answer looks on the wire of each provider.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{Piece, Step};

/// Tokens that an answer claims to have cost when it does not say it.
const INPUT_TOKENS: u64 = 120;
const OUTPUT_TOKENS: u64 = 30;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Format {
    /// By the path that is asked; others are look-ups.
    pub(super) fn of(path: &str) -> Option<Self> {
        match path {
            _ if path.ends_with("/chat/completions") => Some(Self::OpenAi),
            _ if path.ends_with("/messages") => Some(Self::Anthropic),
            "/api/chat" => Some(Self::Ollama),
            _ => None,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Anthropic => "text/event-stream",
            Self::Ollama => "application/x-ndjson",
        }
    }

    /// Everything that is sent, in order.
    pub(super) fn frames(self, pieces: Vec<Piece>) -> Vec<Step> {
        let calls = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
        let mut steps = Vec::new();
        let (mut index, mut input) = (0, INPUT_TOKENS);
        steps.extend(self.open().into_iter().map(Step::Send));
        for piece in pieces {
            match piece {
                Piece::Pause(time) => steps.push(Step::Pause(time)),
                Piece::Wait(gate) => steps.push(Step::Wait(gate)),
                Piece::Input(tokens) => input = tokens,
                Piece::Raw(text) => steps.push(Step::Send(text)),
                Piece::Cut => {
                    steps.push(Step::Cut);
                    return steps;
                }
                Piece::KeepAlive => steps.push(Step::Send(match self {
                    Self::OpenAi => ": OPENROUTER PROCESSING\n\n".into(),
                    Self::Anthropic => event("ping", &json!({"type": "ping"})),
                    Self::Ollama => "\n".into(),
                })),
                said => {
                    steps.extend(self.piece(said, index).into_iter().map(Step::Send));
                    index += 1;
                }
            }
        }
        steps.extend(self.close(calls, input).into_iter().map(Step::Send));
        steps
    }

    fn open(self) -> Vec<String> {
        match self {
            Self::OpenAi => vec![chunk(&json!({"role": "assistant", "content": ""}), None)],
            Self::Anthropic => vec![event(
                "message_start",
                &json!({"type": "message_start", "message": {
                    "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "scripted",
                    "stop_reason": null, "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1, "cache_read_input_tokens": 0},
                }}),
            )],
            Self::Ollama => Vec::new(),
        }
    }

    fn piece(self, piece: Piece, index: usize) -> Vec<String> {
        match (self, piece) {
            (Self::OpenAi, Piece::Text(text)) => vec![chunk(&json!({"content": text}), None)],
            (Self::OpenAi, Piece::Reasoning(text)) => vec![chunk(&json!({"reasoning_content": text}), None)],
            (Self::OpenAi, Piece::Call { id, name, args }) => {
                let args = args.to_string();
                let (head, tail) = halves(&args);
                let first = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": head}});
                let rest = json!({"index": index, "function": {"arguments": tail}});
                vec![chunk(&json!({"tool_calls": [first]}), None), chunk(&json!({"tool_calls": [rest]}), None)]
            }
            (Self::Anthropic, Piece::Text(text)) => {
                block(index, &json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": text})])
            }
            (Self::Anthropic, Piece::Reasoning(text)) => block(
                index,
                &json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[
                    json!({"type": "thinking_delta", "thinking": text}),
                    json!({"type": "signature_delta", "signature": "c2ln"}),
                ],
            ),
            (Self::Anthropic, Piece::Call { id, name, args }) => {
                let args = args.to_string();
                let (head, tail) = halves(&args);
                let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                let deltas = ["", head, tail].map(|part| json!({"type": "input_json_delta", "partial_json": part}));
                block(index, &start, &deltas)
            }
            (Self::Ollama, Piece::Text(text)) => vec![line(&json!({"role": "assistant", "content": text}))],
            (Self::Ollama, Piece::Reasoning(text)) => {
                vec![line(&json!({"role": "assistant", "content": "", "thinking": text}))]
            }
            (Self::Ollama, Piece::Call { name, args, .. }) => {
                let call = json!({"function": {"name": name, "arguments": args}});
                vec![line(&json!({"role": "assistant", "content": "", "tool_calls": [call]}))]
            }
            (_, other) => unreachable!("handled by the caller: {other:?}"),
        }
    }

    fn close(self, calls: bool, input: u64) -> Vec<String> {
        match self {
            Self::OpenAi => {
                let usage = json!({
                    "id": "c1", "object": "chat.completion.chunk", "model": "scripted", "choices": [],
                    "usage": {"prompt_tokens": input, "completion_tokens": OUTPUT_TOKENS, "total_tokens": input + OUTPUT_TOKENS},
                });
                let reason = if calls { "tool_calls" } else { "stop" };
                vec![chunk(&json!({}), Some(reason)), format!("data: {usage}\n\n"), "data: [DONE]\n\n".into()]
            }
            Self::Anthropic => {
                let reason = if calls { "tool_use" } else { "end_turn" };
                let delta = json!({
                    "type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
                    "usage": {"output_tokens": OUTPUT_TOKENS},
                });
                vec![event("message_delta", &delta), event("message_stop", &json!({"type": "message_stop"}))]
            }
            Self::Ollama => vec![format!(
                "{}\n",
                json!({
                    "model": "scripted", "message": {"role": "assistant", "content": ""}, "done": true,
                    "done_reason": "stop", "prompt_eval_count": input, "eval_count": OUTPUT_TOKENS,
                })
            )],
        }
    }
}

/// `GET`s and look-ups beside the answers: lists of models, and what Ollama tells about one.
pub(super) fn look_up(path: &str) -> Response {
    match path {
        "/v1/models" => {
            Json(json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]})).into_response()
        }
        "/api/tags" => Json(json!({"models": [{"name": "scripted", "model": "scripted"}]})).into_response(),
        "/api/version" => Json(json!({"version": "0.12.0"})).into_response(),
        "/api/show" => {
            let info = json!({"general.architecture": "qwen3", "qwen3.context_length": 32768});
            Json(json!({"capabilities": ["completion", "tools"], "model_info": info})).into_response()
        }
        _ => (StatusCode::NOT_FOUND, Json(json!({"error": "no such path"}))).into_response(),
    }
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let chunk = json!({
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    format!("data: {chunk}\n\n")
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn block(index: usize, start: &Value, deltas: &[Value]) -> Vec<String> {
    let start = json!({"type": "content_block_start", "index": index, "content_block": start});
    let mut frames = vec![event("content_block_start", &start)];
    for delta in deltas {
        let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
        frames.push(event("content_block_delta", &delta));
    }
    frames.push(event("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
    frames
}

fn line(message: &Value) -> String {
    format!("{}\n", json!({"model": "scripted", "message": message, "done": false}))
}

fn halves(text: &str) -> (&str, &str) {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle -= 1;
    }
    text.split_at(middle)
}
