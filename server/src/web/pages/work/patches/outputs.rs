//! What calls put out while they work, shared by all who watch: each piece becomes lines once.
//!
//! A viewer who has everything before a run gets its new lines and the one that is being written; any other gets the whole
//! end of the output, which depends on nothing that it has.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::body::Bytes;
use protocol::{AgentStreamEvent, EventBody};

use super::{cursor, escape, log};
use crate::{domain::committed::Committed, web::view::call::OutputWindow};

/// The outputs of a task's calls that work.
#[derive(Debug, Default)]
pub struct SharedOutputs(Mutex<Option<FollowedOutputs>>);

/// Outputs as of an event.
#[derive(Debug)]
struct FollowedOutputs {
    attempt: u32,
    seq: u64,
    /// The event as of which they were read: who has not seen that cannot jump to the newest state.
    since: u64,
    /// By call.
    windows: BTreeMap<String, OutputWindow>,
}

impl SharedOutputs {
    /// The outputs as they were read with all events up to `seq`, unless newer ones are here.
    pub fn read(&self, (attempt, seq): (u32, u64), windows: BTreeMap<String, OutputWindow>) {
        let mut here = self.followed();
        if here.as_ref().is_none_or(|here| (here.attempt, here.seq) <= (attempt, seq)) {
            *here = Some(FollowedOutputs { attempt, seq, since: seq, windows });
        }
    }

    /// What a run of nothing but output looks like to a viewer who has the events up to `after`, and which event that viewer
    /// has then; `None` when the parts have to be read.
    pub(super) fn tell(&self, run: &Committed, after: u64) -> Option<(Bytes, u64)> {
        let mut here = self.followed();
        let here = here.as_mut().filter(|here| here.attempt == run.attempt && run.from <= here.seq + 1)?;
        if here.seq < run.to {
            here.push(run);
        }
        if after + 1 == run.from
            && let Some(frame) = run.html.get()
        {
            return Some((frame.clone(), run.to));
        }
        (after >= here.since).then(|| (here.frame(run, &here.whole()), here.seq))
    }

    fn followed(&self) -> MutexGuard<'_, Option<FollowedOutputs>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowedOutputs {
    /// Adds what is new in a run.
    fn push(&mut self, run: &Committed) {
        let is_next = self.seq + 1 == run.from;
        let mut before = BTreeMap::new();
        for item in run.items.iter().filter(|item| item.seq > self.seq) {
            let report = item.report();
            let Some(EventBody::Progress { event }) = report.body else { continue };
            if let AgentStreamEvent::ToolOutput { call_id, content, before: place } = event.event
                && let Some(window) = self.windows.get_mut(&call_id)
            {
                before.entry(call_id).or_insert_with(|| (window.is_empty(), window.complete().1, window.gaps()));
                window.push(&content, place);
            }
        }
        self.seq = run.to;
        if is_next {
            let mut html = String::new();
            for (call, (was_empty, lines, gaps)) in &before {
                let window = &self.windows[call];
                let (shown, complete) = window.complete();
                let new = usize::try_from(complete.saturating_sub(*lines)).unwrap_or(usize::MAX);
                // After a gap nothing of what was there is left.
                let is_whole = *was_empty || window.gaps() > *gaps || new >= shown;
                write_output(&mut html, call, window, if is_whole { None } else { Some(new) });
            }
            let _ = run.html.set(self.frame(run, &html));
        }
    }

    /// All of them, whatever a viewer has.
    fn whole(&self) -> String {
        let mut html = String::new();
        for (call, window) in self.windows.iter().filter(|(_, window)| !window.is_empty()) {
            write_output(&mut html, call, window, None);
        }
        html
    }

    fn frame(&self, run: &Committed, html: &str) -> Bytes {
        log(&cursor(run.task.as_str(), run.attempt, self.seq), html)
    }
}

/// The last `new` complete lines and the one that is being written; `None`: all that a page shows.
fn write_output(html: &mut String, call: &str, window: &OutputWindow, new: Option<usize>) {
    let (keep, extent) = (window.complete().0, window.extent().unwrap_or_default());
    let whole = if new.is_none() { " data-whole" } else { "" };
    let lines = window.growing(new.unwrap_or(usize::MAX));
    // Writing to a String cannot fail.
    let _ = write!(
        html,
        r#"<samp data-output="{}" data-keep="{keep}" data-says="{}"{whole}>{lines}</samp>"#,
        escape(call),
        escape(&extent)
    );
}

#[cfg(test)]
mod tests {
    use protocol::TaskId;
    use serde_json::json;

    use super::*;
    use crate::domain::committed::Item;

    fn run(first: u64, contents: &[&str]) -> Committed {
        let items = contents.iter().zip(first..).map(|(content, seq)| {
            let event = json!({"agentId": "a", "type": "tool-output", "callId": "\"><b>", "content": content});
            let whole = json!({"seq": seq, "type": "task:progress", "event": event});
            Item { seq, json: whole.to_string().into() }
        });
        Committed::new(TaskId::new(1), 1, first, items.collect())
    }

    fn text(told: Option<(Bytes, u64)>) -> String {
        told.map_or_else(|| "read".to_owned(), |(bytes, _)| String::from_utf8(bytes.to_vec()).expect("text"))
    }

    fn windows() -> BTreeMap<String, OutputWindow> {
        BTreeMap::from([("\"><b>".to_owned(), OutputWindow::default())])
    }

    #[test]
    fn lines_are_made_once_for_all_and_name_their_call_safely() {
        let shared = SharedOutputs::default();
        let one = run(1, &["a</samp>\n", "\u{1b}[31mre"]);
        assert_eq!(text(shared.tell(&one, 0)), "read", "nobody has read what is before it");
        shared.read((1, 0), windows());
        let frame = text(shared.tell(&one, 0));
        assert!(
            frame.contains(r#"<samp data-output="&quot;&gt;&lt;b&gt;" data-keep="1" data-says="" data-whole>"#),
            "{frame}"
        );
        assert!(
            frame.contains("<span>a&lt;/samp&gt;") && frame.contains(r#"<span class="ansi-red">re</span></span>"#),
            "{frame}"
        );
        assert_eq!(text(shared.tell(&one, 0)), frame, "for all");
        let two = run(3, &["d\nb"]);
        let frame = text(shared.tell(&two, 2));
        assert!(frame.contains(r#" data-keep="2" data-says="">"#) && !frame.contains("a&lt;"), "{frame}");
        assert!(frame.contains(r#"<span><span class="ansi-red">red</span>"#), "{frame}");
        // One who is behind gets everything; so does one who has a part of a run.
        let (frame, seq) = shared.tell(&one, 1).expect("all of it");
        assert!(seq == 3 && text(Some((frame, seq))).contains("data-whole><span>a&lt;"));
    }

    #[test]
    fn who_has_not_seen_what_was_read_reads_it() {
        let shared = SharedOutputs::default();
        shared.read((1, 5), windows());
        assert_eq!(text(shared.tell(&run(3, &["a", "b", "c", "d"]), 3)), "read");
        assert_eq!(text(shared.tell(&run(9, &["a"]), 8)), "read", "events between are not known");
        shared.read((1, 2), BTreeMap::new());
        assert!(text(shared.tell(&run(7, &["e\n"]), 6)).contains("<span>d"), "an older state changes nothing");
        assert_eq!(text(shared.tell(&Committed { attempt: 2, ..run(8, &["e"]) }, 7)), "read");
    }
}
