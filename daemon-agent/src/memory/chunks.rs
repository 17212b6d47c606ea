//! Splits a file's text into passages: a section of a memory file, an entry of a daily log, or what was said about a
//! goal.

use std::{collections::HashMap, ops::Range};

use jiff::{
    civil::{Date, Time},
    tz::TimeZone,
};
use protocol::{Instant, plan::fences, text};
use serde_json::Value;

/// Longest passage, bytes; a longer one is split.
const MAX_PASSAGE_BYTES: usize = 4 * 1024;
/// Most passages of one file that are indexed.
const MAX_PASSAGES: usize = 10_000;

/// A piece of a file that is found as a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    pub title: String,
    pub body: String,
    pub at: Option<Instant>,
    /// The task that it is about.
    pub task: Option<String>,
}

/// The sections of a Markdown file, by headings of any level.
pub fn curated(markdown: &str, modified: Option<Instant>) -> Vec<Passage> {
    passages(sections(markdown, 6), 6, |_| modified)
}

/// The entries of the log of `date`: a second-level heading begins an entry and contains its time.
pub fn daily(markdown: &str, date: Date, zone: &TimeZone) -> Vec<Passage> {
    passages(entries(markdown), 2, |title| {
        let time = title.get(..5).and_then(|clock| Time::strptime("%H:%M", clock).ok()).unwrap_or(Time::midnight());
        let at = zone.to_ambiguous_zoned(date.to_datetime(time)).compatible().ok()?;
        Some(Instant(at.timestamp().as_millisecond()))
    })
}

/// What people and the agent said in a session, goal by goal, without tool output.
pub fn session(log: &str) -> Vec<Passage> {
    let (mut all, mut open) = (Vec::new(), None::<Passage>);
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let Some(said) = line["text"].as_str() else { continue };
        let at = || serde_json::from_value::<Instant>(line["at"].clone()).ok();
        let task = || line["taskId"].as_str().map(str::to_owned);
        match line["type"].as_str() {
            Some("goal") => {
                all.extend(open.replace(Passage {
                    title: text::title(said),
                    body: said.to_owned(),
                    at: at(),
                    task: task(),
                }));
            }
            Some("text") => {
                let passage = open.get_or_insert_with(|| Passage {
                    title: String::new(),
                    body: String::new(),
                    at: at(),
                    task: task(),
                });
                if !passage.body.is_empty() {
                    passage.body.push_str("\n\n");
                }
                passage.body.push_str(said);
            }
            _ => {}
        }
    }
    all.extend(open);
    all.into_iter().flat_map(pieces).take(MAX_PASSAGES).collect()
}

/// The entries of a daily log. Of a task that ended more than once the last one counts.
pub fn entries(markdown: &str) -> Vec<&str> {
    let all = sections(markdown, 2);
    let newest: HashMap<&str, usize> =
        all.iter().enumerate().filter_map(|(n, entry)| Some((task_of(entry)?, n))).collect();
    let is_newest = |(n, entry): &(usize, &str)| task_of(entry).is_none_or(|task| newest.get(task) == Some(n));
    all.into_iter().enumerate().filter(is_newest).map(|(_, entry)| entry).collect()
}

/// The task that an entry of a daily log is about, by its mark.
fn task_of(entry: &str) -> Option<&str> {
    let mark = entry.lines().nth(1)?.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    mark.split(' ').next().filter(|task| task.starts_with("task_"))
}

/// The sections of a Markdown text, in full: each heading up to `level` outside of code begins one.
pub fn sections(markdown: &str, level: usize) -> Vec<&str> {
    let lines: Vec<&str> = markdown.split_inclusive('\n').collect();
    let code: Vec<Range<usize>> = fences(&lines);
    let (mut found, mut from, mut at) = (Vec::new(), 0, 0);
    for (n, line) in lines.iter().enumerate() {
        let begins =
            heading(line).is_some_and(|(depth, _)| depth <= level) && !code.iter().any(|code| code.contains(&n));
        if begins && at > from {
            found.push(&markdown[from..at]);
            from = at;
        }
        at += line.len();
    }
    found.extend((from < markdown.len()).then(|| &markdown[from..]));
    found
}

/// A section without the comments that only programs read, and without the links of an entry, which only people follow:
/// they say nothing, and would make entries alike.
pub fn shown(section: &str) -> String {
    let is_comment = |line: &str| line.starts_with("<!--") && line.trim_end().ends_with("-->");
    let is_link = |line: &str| {
        let links = line.strip_prefix("Links: ").map(|links| links.strip_prefix('[').unwrap_or(links));
        links.is_some_and(|links| links.starts_with("session ses_") && links.contains(", task task_"))
    };
    let kept = section.lines().filter(|line| !is_comment(line) && !is_link(line));
    kept.collect::<Vec<_>>().join("\n")
}

/// The beginning of `text` that fits into `most` bytes, ending at a paragraph, a line, or at worst a character.
pub fn head_of_paragraphs(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let head = text::head(text, most);
    let end = head.rfind("\n\n").or_else(|| head.rfind('\n')).filter(|end| *end > 0);
    head[..end.unwrap_or(head.len())].trim_end()
}

fn passages(sections: Vec<&str>, level: usize, at: impl Fn(&str) -> Option<Instant>) -> Vec<Passage> {
    let of_section = |section: &str| {
        let (first, rest) = section.split_once('\n').unwrap_or((section, ""));
        let (depth, title, body) = match heading(first).filter(|(depth, _)| *depth <= level) {
            Some((depth, title)) => (depth, title, rest),
            None => (0, "", section),
        };
        let body = shown(body).trim().to_owned();
        // The heading of the whole file, or of a chapter, says nothing by itself.
        let says = !body.is_empty() || depth > 1;
        let task = task_of(section).filter(|_| depth > 1).map(str::to_owned);
        says.then(|| Passage { title: text::head(title, 300).to_owned(), body, at: at(title), task })
    };
    sections.into_iter().filter_map(of_section).flat_map(pieces).take(MAX_PASSAGES).collect()
}

fn pieces(whole: Passage) -> Vec<Passage> {
    let (mut found, mut rest) = (Vec::new(), whole.body.as_str());
    loop {
        let piece = head_of_paragraphs(rest, MAX_PASSAGE_BYTES);
        found.push(Passage { body: piece.trim().to_owned(), ..whole.clone() });
        rest = rest[piece.len()..].trim_start();
        if rest.is_empty() || piece.is_empty() {
            return found;
        }
    }
}

/// A heading's level and text.
fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let text = line.get(level..)?.strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| (level, text.trim().trim_end_matches('#').trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_passage_and_code_is_none() {
        let text =
            "preface\n\n# Memory\n\n## Build\nuse `make`\n```\n# no heading\n```\n### Faster\nsccache\n## Empty\n";
        let found = curated(text, None);
        let titles: Vec<_> = found.iter().map(|one| (one.title.as_str(), one.body.as_str())).collect();
        assert_eq!(
            titles,
            [("", "preface"), ("Build", "use `make`\n```\n# no heading\n```"), ("Faster", "sccache"), ("Empty", "")]
        );
    }

    #[test]
    fn an_entry_has_its_time_and_no_marks_of_programs() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let text = "# 2026-03-01\n\n## 14:05 Fix it\n<!-- task_1 1 -->\n\nDone.\n\n### Inside\nstays\n\n## later\nx\n";
        let found = daily(text, jiff::civil::date(2026, 3, 1), &zone);
        assert_eq!((found.len(), found[0].title.as_str()), (2, "14:05 Fix it"));
        assert_eq!(found[0].body, "Done.\n\n### Inside\nstays");
        assert_eq!(found[0].at.map(|at| at.to_string()).as_deref(), Some("2026-03-01T12:05:00.000Z"));
        assert_eq!(found[1].at.map(|at| at.to_string()).as_deref(), Some("2026-02-28T22:00:00.000Z"));
    }

    #[test]
    fn a_task_has_one_entry_and_its_links_say_nothing() {
        let entry = |clock: &str, task: &str, attempt: u32, outcome: &str| {
            format!(
                "## {clock} Fix it\n<!-- {task} {attempt} -->\n\n{outcome}\n\nLinks: [session ses_1](https://b/s/ses_1), task {task}, agent dev\n\n"
            )
        };
        let log = [
            "# 2026-03-01\n\n".to_owned(),
            entry("10:00", "task_1", 1, "Error (x): no."),
            entry("10:05", "task_2", 1, "Completed: other."),
            "## 10:06 Noted\n\nLinks: those that people write stay.\n\n".to_owned(),
            entry("10:09", "task_1", 2, "Completed: done."),
        ];
        let found = daily(&log.concat(), jiff::civil::date(2026, 3, 1), &TimeZone::UTC);
        let told: Vec<_> = found.iter().map(|one| (one.task.as_deref(), one.body.as_str())).collect();
        assert_eq!(
            told,
            [
                (Some("task_2"), "Completed: other."),
                (None, "Links: those that people write stay."),
                (Some("task_1"), "Completed: done.")
            ]
        );
        assert_eq!(shown("Links: session ses_1, task task_1 (attempt 2), agent dev"), "", "as older versions wrote it");
    }

    #[test]
    fn a_session_is_what_people_and_the_agent_said() {
        let log = concat!(
            r#"{"at":"2026-03-01T12:00:00.000Z","seq":1,"type":"goal","text":"Find it\nplease"}"#,
            "\nnot json\n",
            r#"{"type":"tool-result","result":"secret output"}"#,
            "\n",
            r#"{"type":"reasoning","text":"hm"}"#,
            "\n",
            r#"{"type":"text","text":"Found."}"#,
            "\n",
            r#"{"at":"2026-03-02T12:00:00.000Z","type":"goal","text":"Next"}"#,
        );
        let found = session(log);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].title.as_str(), found[0].body.as_str()), ("Find it", "Find it\nplease\n\nFound."));
        assert_eq!(found[0].at.map(|at| at.to_string()).as_deref(), Some("2026-03-01T12:00:00.000Z"));
        assert_eq!(found[1].title, "Next");
    }

    #[test]
    fn what_is_long_is_cut_at_paragraphs_and_nothing_is_lost() {
        let text = (0..400).map(|n| format!("paragraph {n} äöü\n\n")).collect::<String>();
        let found = curated(&text, None);
        assert!(
            found.len() > 1
                && found.iter().all(|one| one.body.len() <= MAX_PASSAGE_BYTES && one.body.starts_with("para"))
        );
        let all = found.iter().map(|one| one.body.as_str()).collect::<Vec<_>>().join("\n\n");
        assert_eq!(all, text.trim());
        assert_eq!(curated(&"ä".repeat(10_000), None).iter().map(|one| one.body.len()).sum::<usize>(), 20_000);
        assert_eq!(head_of_paragraphs("one\n\ntwo three", 10), "one");
        assert_eq!(head_of_paragraphs("äää", 3), "ä");
    }
}
