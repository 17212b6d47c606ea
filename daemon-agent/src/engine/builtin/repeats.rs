//! Notices when an agent makes the same call again and again though it fails.

use serde_json::Value;

use crate::model::ToolCall;

/// Failures in a row from which on the model is told.
const TOLD_FROM: u32 = 3;

/// The last call that failed, and how often in a row it did.
#[derive(Debug, Default)]
pub(super) struct FailedCalls {
    last: Option<(String, Value)>,
    times: u32,
}

impl FailedCalls {
    /// Counts a call; `text` is what the model reads of its result. Returns that with a remark if the call only repeats a
    /// failure.
    pub fn remark(&mut self, call: &ToolCall, ok: bool, text: String) -> String {
        if ok {
            *self = Self::default();
            return text;
        }
        let failed = (call.name.clone(), call.object());
        self.times = if self.last.as_ref() == Some(&failed) { self.times + 1 } else { 1 };
        self.last = Some(failed);
        if self.times < TOLD_FROM {
            return text;
        }
        let times = self.times;
        format!(
            "{text}\n\n[This call has failed {times} times in a row with the same arguments. Find out why, try another way, or \
             say in your answer what is in the way.]"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_same_call_that_fails_again_and_again_is_remarked() {
        let call = |name: &str, path: &str| ToolCall {
            id: "c".to_owned(),
            name: name.to_owned(),
            args: Ok(json!({ "path": path })),
        };
        let mut failed = FailedCalls::default();
        let mut told = |name: &str, path: &str, ok| failed.remark(&call(name, path), ok, "no".to_owned()) != "no";
        let read = |told: &mut dyn FnMut(&str, &str, bool) -> bool| [(); 3].map(|()| told("read_file", "a", false));
        assert_eq!(read(&mut told), [false, false, true]);
        assert!(told("read_file", "a", false), "also the fourth time");
        assert!(!told("read_file", "b", false) && !told("list_files", "b", false));
        assert_eq!(read(&mut told), [false, false, true]);
        assert!(!told("read_file", "a", true));
        assert_eq!(read(&mut told), [false, false, true]);
    }
}
