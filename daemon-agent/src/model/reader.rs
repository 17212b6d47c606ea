//! From the bytes of a response to an answer: framing, then the decoder of the provider's format.

use protocol::{ErrorCode, Usage, UsageSource, tokens::estimate};
use serde_json::Value;

use super::{
    Answer, AssistantMessage, Delta, Failure, Finish, anthropic,
    decode::Decode,
    failure::{Origin, plain},
    framing::{Frame, Framer, Framing},
    ollama, openai,
};
use crate::config::Api;

/// Reads one response.
pub(super) struct Reader {
    origin: Origin,
    framer: Framer,
    decoder: Box<dyn Decode>,
    /// Set when the body turned out to be one JSON document instead of events.
    whole: Option<Vec<u8>>,
    begun: bool,
    said_something: bool,
    over: bool,
    /// Bytes so far.
    read: usize,
}

/// Largest response, bytes: a model that never stops is stopped here.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;

impl Reader {
    pub fn new(api: Api, origin: Origin) -> Self {
        let (framing, decoder): (_, Box<dyn Decode>) = match api {
            Api::Anthropic => (Framing::Sse, Box::<anthropic::Decoder>::default()),
            Api::Ollama => (Framing::Lines, Box::<ollama::Decoder>::default()),
            Api::OpenAi | Api::Demo => (Framing::Sse, Box::<openai::Decoder>::default()),
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

    /// Takes bytes as they come, split anywhere.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, Failure> {
        self.read += bytes.len();
        if self.read > MAX_RESPONSE {
            let message =
                format!("{}: the answer is larger than {} MiB", self.origin.provider, MAX_RESPONSE / 1024 / 1024);
            return Err(plain(ErrorCode::ProviderUnavailable, message));
        }
        if !self.begun {
            // Events never start with a brace: a server that ignores `stream` answers with one document.
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

    /// Whether anything has come yet.
    pub fn begun(&self) -> bool {
        self.read > 0
    }

    /// Whether the end was announced; nothing but usage can follow a finish reason.
    pub fn finished(&self) -> bool {
        self.over || self.decoder.finish().is_some()
    }

    /// Whether nothing at all can follow.
    pub fn over(&self) -> bool {
        self.over
    }

    /// The stream has ended: the last deltas and the answer.
    pub fn end(mut self) -> Result<(Vec<Delta>, Answer), Failure> {
        let mut out = Vec::new();
        match self.whole.take() {
            Some(whole) => {
                let data = String::from_utf8_lossy(&whole).into_owned();
                self.take(Frame { data, ..Frame::default() }, true, &mut out)?;
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
            None if self.over && !silent => Finish::Stop,
            None => return Err(self.origin.unavailable("the answer ended in the middle, without a finish reason")),
        };
        if silent && usage.is_none() && self.origin.estimate > self.origin.window {
            return Err(self.origin.empty());
        }
        let usage = usage.unwrap_or_else(|| estimated(&self.origin, &message));
        Ok((out, Answer { message, finish, usage }))
    }

    fn take(&mut self, frame: Frame, last: bool, out: &mut Vec<Delta>) -> Result<(), Failure> {
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
            // A fragment at the very end, or a gateway's keep-alive that is no event at all.
            Err(_) if last || !data.starts_with('{') => return Ok(()),
            Err(_) => Err(self.origin.unavailable("an event of the stream is not JSON")),
        };
        // What goes wrong after a finish reason takes nothing from the answer.
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

fn estimated(origin: &Origin, message: &AssistantMessage) -> Usage {
    let calls = message.calls.iter().map(|call| match &call.args {
        Ok(args) => args.to_string().len() as u64 / 4,
        Err(raw) => estimate(raw),
    });
    let output_tokens = estimate(&message.text) + calls.sum::<u64>();
    Usage { input_tokens: origin.estimate, output_tokens, source: UsageSource::Estimated, ..Usage::default() }
}

/// Whether an event is an error, in any of the shapes that gateways and providers use.
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
