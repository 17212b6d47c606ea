//! Turns a response's bytes into an answer: framing, then the decoder for the provider's format.

mod framing;

use protocol::{ErrorCode, Usage, UsageSource, tokens::estimate};
use serde_json::Value;

use super::{
    Answer, AssistantMessage, Delta, FinishReason, ModelError, anthropic,
    decode::Decoder,
    failure::{CallContext, plain},
    ollama, openai,
};
use crate::config::ProviderApi;
use framing::{Framer, Framing, StreamFrame};

/// Reads one response.
pub(super) struct ResponseReader {
    origin: CallContext,
    framer: Framer,
    decoder: Box<dyn Decoder>,
    /// Set if the body turned out to be one JSON document instead of events.
    whole: Option<Vec<u8>>,
    begun: bool,
    said_something: bool,
    over: bool,
    /// Bytes so far.
    read: usize,
}

/// Largest response, bytes: a model that never stops is stopped here.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

impl ResponseReader {
    pub fn new(api: ProviderApi, origin: CallContext) -> Self {
        let (framing, decoder): (_, Box<dyn Decoder>) = match api {
            ProviderApi::Anthropic => (Framing::Sse, Box::<anthropic::AnthropicDecoder>::default()),
            ProviderApi::Ollama => (Framing::Lines, Box::<ollama::OllamaDecoder>::default()),
            ProviderApi::OpenAi | ProviderApi::Demo => (Framing::Sse, Box::<openai::OpenAiDecoder>::default()),
        };
        let framer = Framer::new(framing);
        Self {
            origin,
            framer,
            decoder,
            whole: None,
            begun: framing == Framing::Lines,
            said_something: false,
            over: false,
            read: 0,
        }
    }

    /// Takes bytes as they arrive, split anywhere.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, ModelError> {
        self.read += bytes.len();
        if self.read > MAX_RESPONSE_BYTES {
            let message =
                format!("{}: the answer is larger than {} MiB", self.origin.provider, MAX_RESPONSE_BYTES / 1024 / 1024);
            return Err(plain(ErrorCode::ProviderUnavailable, message));
        }
        if !self.begun {
            // Events never start with a brace: a server that ignores `stream` answers with a single document.
            if let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                self.begun = true;
                self.whole = matches!(first, b'{' | b'[').then(Vec::new);
            }
        }
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(bytes);
            return Ok(vec![]);
        }
        let frames =
            self.framer.feed(bytes).map_err(|_| self.origin.unavailable("an event of the stream is too large"))?;
        let mut out = Vec::new();
        for frame in frames {
            self.take(frame, false, &mut out)?;
        }
        Ok(out)
    }

    /// Whether anything has arrived yet.
    pub fn begun(&self) -> bool {
        self.read > 0
    }

    /// Whether the end was announced: only usage can follow a finish reason.
    pub fn finished(&self) -> bool {
        self.over || self.decoder.finish().is_some()
    }

    /// Whether nothing at all can follow.
    pub fn over(&self) -> bool {
        self.over
    }

    /// The stream has ended: returns the last deltas and the answer.
    pub fn end(mut self) -> Result<(Vec<Delta>, Answer), ModelError> {
        let mut out = Vec::new();
        match self.whole.take() {
            Some(whole) => {
                let data = String::from_utf8_lossy(&whole).into_owned();
                self.take(StreamFrame { data, ..StreamFrame::default() }, true, &mut out)?;
            }
            None => {
                for frame in self.framer.end() {
                    self.take(frame, true, &mut out)?;
                }
            }
        }
        let finish = self.decoder.finish();
        let (message, usage) = self.decoder.message();
        let silent = message.text.is_empty() && message.calls.is_empty() && message.reasoning.is_empty();
        let finish = match finish {
            Some(finish) => finish,
            None if silent && !self.said_something => return Err(self.origin.empty()),
            // `[DONE]` without a reason: the server meant to end here.
            None if self.over && !silent => FinishReason::Stop,
            None => return Err(self.origin.unavailable("the answer ended in the middle, without a finish reason")),
        };
        // What was counted may be what is left of it.
        let read = usage.as_ref().map_or(0, |usage| usage.input_tokens).max(self.origin.estimate);
        if silent && !self.said_something && finish != FinishReason::ContentFilter && read >= self.origin.window {
            let numbers = Some((read, self.origin.window));
            return Err(self.origin.overflow("the model answered with nothing", numbers));
        }
        let usage = usage.unwrap_or_else(|| estimated(&self.origin, &message));
        Ok((out, Answer { message, finish, usage }))
    }

    fn take(&mut self, frame: StreamFrame, last: bool, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = frame.data.trim();
        if data == "[DONE]" {
            self.over = true;
            return Ok(());
        }
        if self.over {
            return Ok(());
        }
        let complete = self.decoder.finish().is_some();
        let failed = frame.event == "error" || frame.status.is_some_and(|status| status >= 400);
        let event = match serde_json::from_str::<Value>(data) {
            Ok(event) if failed || is_error(&event) => Err(self.origin.classify(frame.status, None, data)),
            Ok(event) => Ok(event),
            Err(_) if failed => Err(self.origin.classify(frame.status, None, data)),
            // A fragment at the very end, or a gateway's keep-alive that is not an event.
            Err(_) if last || !data.starts_with('{') => return Ok(()),
            Err(_) => Err(self.origin.unavailable("an event of the stream is not JSON")),
        };
        // An error after a finish reason does not invalidate the answer.
        let event = match event {
            Ok(event) => event,
            Err(_) if complete => return Ok(()),
            Err(failure) => return Err(failure),
        };
        self.over = event.get("type").is_some_and(|kind| kind == "message_stop")
            || (event.get("done") == Some(&Value::Bool(true)) && event.get("choices").is_none());
        let before = out.len();
        self.decoder.take(event, &self.origin, out)?;
        self.said_something |= out.len() > before;
        Ok(())
    }
}

fn estimated(origin: &CallContext, message: &AssistantMessage) -> Usage {
    let calls = message.calls.iter().map(|call| match &call.args {
        Ok(args) => estimate(&args.to_string()),
        Err(raw) => estimate(raw),
    });
    let output_tokens = estimate(&message.text) + calls.sum::<u64>();
    Usage { input_tokens: origin.estimate, output_tokens, source: UsageSource::Estimated, ..Usage::default() }
}

/// Whether an event is an error, in any of the forms that gateways and providers use.
fn is_error(event: &Value) -> bool {
    let there =
        |place: &str| event.pointer(place).is_some_and(|found| !found.is_null() && found != "" && found != false);
    let no_answer = event.get("choices").is_none()
        && event.get("type").is_none()
        && event.get("message").is_some_and(Value::is_string);
    there("/error")
        || there("/error_message")
        || there("/error_type")
        || there("/choices/0/error")
        || event.get("type").is_some_and(|kind| kind == "error")
        || event.get("object").is_some_and(|object| object == "error")
        || event.pointer("/choices/0/finish_reason").is_some_and(|reason| reason == "error")
        || (no_answer && there("/code"))
}

#[cfg(test)]
mod tests;
