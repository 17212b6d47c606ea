//! Pictures that a conversation is carried on without: old ones of results, those that the model cannot see, and those that a
//! provider refused.

use protocol::ErrorCode;

use super::AgentLoop;
use crate::model::{Message, ModelError};

/// Most pictures of results in a request: beside them there is room for twelve that people sent.
const MAX_RESULT_PICTURES: usize = 8;
/// What a result says instead of its pictures.
const REFUSED: &str = "\n\n[Its pictures are not shown: the provider refused the request that had them.]";

impl AgentLoop {
    /// Leaves out the oldest pictures of results when there are more than a request may have. A model that does not see is shown
    /// none, if another one did: it reads where they lie.
    pub(super) fn leave_old_pictures(&mut self) {
        let most = if self.model.sees() { MAX_RESULT_PICTURES } else { 0 };
        if without_old(&mut self.request.messages, most) {
            self.count_again();
        }
    }

    /// Leaves out pictures if they may be why the provider refuses the request; `false`: it is not to be tried again.
    pub(super) fn leave_refused_pictures(&mut self, failure: &ModelError) -> bool {
        let is_left_out = self.model.sees()
            && may_be_for_pictures(failure, self.model.name())
            && without_refused(&mut self.request.messages);
        if is_left_out {
            self.count_again();
        }
        is_left_out
    }

    fn count_again(&mut self) {
        if let Some(layers) = &mut self.layers {
            layers.begin_again();
        }
    }
}

/// Whether a request may have failed for its pictures. Ollama says with a 500 that it cannot read one; that a model with this
/// word in its name has too much to do says nothing of them.
fn may_be_for_pictures(failure: &ModelError, model: &str) -> bool {
    match failure.code {
        ErrorCode::ProviderBadRequest => true,
        ErrorCode::ProviderUnavailable => {
            let said = failure.message.to_ascii_lowercase();
            said.replace(&model.to_ascii_lowercase(), "").contains("image")
        }
        _ => false,
    }
}

/// Whether pictures were left out: of more than `most` of results. The words of the results stay. Of older answers half as many
/// are left: a step at which a provider's cache of what stays serves the next calls.
fn without_old(messages: &mut [Message], most: usize) -> bool {
    let results = messages.iter().filter(|message| matches!(message, Message::Tool { .. }));
    let all: usize = results.map(|result| result.pictures().len()).sum();
    if all <= most {
        return false;
    }
    let answer = newest_answer(messages);
    let mut kept = 0;
    for (at, message) in messages.iter_mut().enumerate().rev() {
        if let Message::Tool { pictures, .. } = message {
            let room = if at >= answer { most } else { most / 2 };
            pictures.truncate(room.saturating_sub(kept));
            kept += pictures.len();
        }
    }
    true
}

/// Takes out the pictures that came since the model's newest answer, or all if there are none: a request with the older ones
/// was answered. Says in their place that they are not shown. `false`: there are none.
fn without_refused(messages: &mut [Message]) -> bool {
    let answer = newest_answer(messages);
    let from = if messages.iter().skip(answer).any(has_pictures) { answer } else { 0 };
    let mut is_left_out = false;
    for message in messages.iter_mut().skip(from).filter(|message| has_pictures(message)) {
        is_left_out = true;
        match message {
            Message::Tool { content, pictures, .. } => {
                pictures.clear();
                content.push_str(REFUSED);
            }
            Message::Pictures(pictures) => {
                let captions: Vec<String> = pictures.iter().map(|picture| picture.caption()).collect();
                *message = Message::User(captions.join("\n"));
            }
            Message::User(_) | Message::Assistant(_) => {}
        }
    }
    is_left_out
}

fn has_pictures(message: &Message) -> bool {
    !message.pictures().is_empty()
}

/// The place behind the model's newest answer.
fn newest_answer(messages: &[Message]) -> usize {
    messages.iter().rposition(|message| matches!(message, Message::Assistant(_))).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, testing::picture};

    fn answer() -> Message {
        Message::Assistant(AssistantMessage::default())
    }

    fn result(count: usize) -> Message {
        let pictures = (0..count).map(|_| picture("/a.png", None)).collect();
        let (call_id, tool, content) = ("c".to_owned(), "mcp__x__look".to_owned(), "Look.".to_owned());
        Message::Tool { call_id, tool, content, ok: true, pictures }
    }

    fn sent() -> Message {
        Message::Pictures(vec![picture("/b.png", None)])
    }

    fn counts(messages: &[Message]) -> Vec<usize> {
        messages.iter().map(|message| message.pictures().len()).collect()
    }

    #[test]
    fn a_request_has_the_newest_pictures_of_results() {
        let mut few = vec![sent(), answer(), result(4), answer(), result(4)];
        assert!(!without_old(&mut few, MAX_RESULT_PICTURES) && counts(&few) == [1, 0, 4, 0, 4]);
        // The newest answer's are all new to the model; of the older ones so many go that the next calls need no step.
        let mut more = vec![sent(), answer(), result(4), answer(), result(3), answer(), result(1), result(1)];
        assert!(without_old(&mut more, MAX_RESULT_PICTURES));
        assert_eq!(counts(&more), [1, 0, 0, 0, 2, 0, 1, 1], "what people sent stays");
        assert!(!without_old(&mut more, MAX_RESULT_PICTURES));
        let mut many = vec![answer(), result(2), answer()];
        many.extend((0..9).map(|_| result(4)));
        assert!(without_old(&mut many, MAX_RESULT_PICTURES));
        assert_eq!(counts(&many), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4]);
        let Message::Tool { content, .. } = &many[1] else { panic!("a result") };
        assert_eq!(content, "Look.");
    }

    #[test]
    fn a_model_that_does_not_see_is_shown_none() {
        let mut messages = vec![sent(), answer(), result(2), answer(), result(1)];
        assert!(without_old(&mut messages, 0));
        assert_eq!(counts(&messages), [1, 0, 0, 0, 0]);
        assert!(!without_old(&mut messages, 0));
    }

    #[test]
    fn a_busy_model_with_the_word_in_its_name_has_not_refused_them() {
        let failed = |code, message: &str| ModelError {
            code,
            message: message.to_owned(),
            retryable: true,
            wait: None,
            suggestion: None,
            details: None,
            fits: None,
        };
        let is_for =
            |message: &str| may_be_for_pictures(&failed(ErrorCode::ProviderUnavailable, message), "gemini-Flash-Image");
        assert!(is_for("ollama: failed to process the image") && !is_for("g: gemini-flash-image is overloaded"));
        assert!(!is_for("g: the model is overloaded"));
        assert!(may_be_for_pictures(&failed(ErrorCode::ProviderBadRequest, "g: no"), "m"));
        assert!(!may_be_for_pictures(&failed(ErrorCode::ProviderAuth, "g: image"), "m"));
    }

    #[test]
    fn what_a_provider_refused_is_said_in_words_the_newest_first() {
        let mut messages = vec![sent(), answer(), result(1), answer(), result(2)];
        assert!(without_refused(&mut messages));
        assert_eq!(counts(&messages), [1, 0, 1, 0, 0]);
        let said = |message: &Message| matches!(message, Message::Tool { content, .. } if content.ends_with(REFUSED));
        assert!(said(&messages[4]) && !said(&messages[2]));
        assert!(without_refused(&mut messages));
        assert_eq!(counts(&messages), [0; 5]);
        assert_eq!(messages[0], Message::User("/b.png (not shown):".to_owned()));
        assert!(said(&messages[2]) && !without_refused(&mut messages), "it is not tried for ever");
    }
}
