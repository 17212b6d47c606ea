//! Text between Slack and agents: what people write there as plain text, and Markdown as Slack shows it, in pieces that fit.

/// Longest text of one message that is updated, with its escapes, characters as bytes: longer ones Slack refuses.
pub const MAX_POST_BYTES: usize = 3_800;
/// Longest text of one message that is streamed, bytes.
pub const MAX_STREAM_BYTES: usize = 11_000;
/// Longest line that opens a block of code, and longest row of marks in it, bytes: it is repeated where the block is cut.
const MAX_FENCE_LINE_BYTES: usize = 60;
const MAX_FENCE_BYTES: usize = 10;
/// What calls people, as Slack writes it and as people do.
const CALLS: [&str; 8] = ["<@", "<!channel", "<!here", "<!everyone", "<!subteam", "@channel", "@here", "@everyone"];
/// Stands within such a word, so that it calls nobody: no space that anybody sees.
const NOBODY: char = '\u{200b}';

/// What somebody wrote, without the mention of the bot, with Slack's escapes undone and links as addresses.
pub fn plain(text: &str, bot: &str) -> String {
    let text = text.replace(&format!("<@{bot}>"), " ");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(start) = rest.find('<') {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let Some(end) = from.find('>') else {
            rest = from;
            break;
        };
        out.push_str(&link(&from[1..end]));
        rest = &from[end + 1..];
    }
    out.push_str(rest);
    out.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").trim().to_owned()
}

/// What stood between `<` and `>`.
fn link(inner: &str) -> String {
    let (target, label) = inner.split_once('|').map_or((inner, None), |(target, label)| (target, Some(label)));
    match target.chars().next() {
        Some('@' | '#' | '!') => format!("{}{}", &target[..1], label.unwrap_or(&target[1..])),
        _ => match label {
            Some(label) if label != target && !target.ends_with(label) => format!("{label} ({target})"),
            _ => target.to_owned(),
        },
    }
}

/// Markdown in Slack's own marks. Code stays as it is.
pub fn mrkdwn(markdown: &str) -> String {
    let (mut out, mut code) = (Vec::new(), None);
    for line in markdown.split('\n') {
        match (code, fence(line)) {
            (Some(open), _) if closes(line, open) => {
                code = None;
                out.push("```".to_owned());
            }
            // Slack knows one row of marks only.
            (Some(_), _) => out.push(escaped(line).replace("```", "'''")),
            (None, Some(open)) => {
                code = Some(open);
                out.push("```".to_owned());
            }
            (None, None) => out.push(line_of(line)),
        }
    }
    if code.is_some() {
        out.push("```".to_owned());
    }
    out.join("\n")
}

/// The block of code that a text leaves open: the line that opens it, and the one that ends it.
pub fn open_code(text: &str) -> Option<(String, String)> {
    let mut open: Option<(&str, &str)> = None;
    for line in text.split('\n') {
        open = match open {
            Some((_, marks)) if closes(line, marks) => None,
            None => fence(line).map(|marks| (line.trim(), marks)),
            known => known,
        };
    }
    open.map(|(line, marks)| (protocol::text::head(line, MAX_FENCE_LINE_BYTES).to_owned(), marks.to_owned()))
}

/// The marks with which a line opens a block of code, if it does.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let mark = ['`', '~'].into_iter().find(|mark| line.starts_with(*mark))?;
    let (marks, info) = line.split_at(line.len() - line.trim_start_matches(mark).len());
    // With more of them behind it is code within the line.
    let opens = (3..=MAX_FENCE_BYTES).contains(&marks.len()) && (mark == '~' || !info.contains('`'));
    opens.then_some(marks)
}

fn closes(line: &str, marks: &str) -> bool {
    let line = line.trim();
    line.starts_with(marks) && line.chars().all(|c| marks.starts_with(c))
}

/// `text`, which stands behind `before`, with nobody called in it. In pieces it comes out as it would at once.
pub fn quiet(before: &str, text: &str) -> String {
    let mut all = protocol::text::tail(before, 2 * CALLS.map(str::len).into_iter().max().unwrap_or(0)).to_owned();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        all.push(c);
        if CALLS.iter().any(|call| ends_calling(&all, call)) {
            out.push(NOBODY);
        }
        out.push(c);
    }
    out
}

/// Whether a text ends with this call. The end of an address, such as `me@here`, is none.
fn ends_calling(text: &str, call: &str) -> bool {
    let Some(at) = text.len().checked_sub(call.len()) else { return false };
    let is_call = text.get(at..).is_some_and(|end| end.eq_ignore_ascii_case(call));
    is_call && !(call.starts_with('@') && text[..at].ends_with(char::is_alphanumeric))
}

fn line_of(line: &str) -> String {
    let indent = &line[..line.len() - line.trim_start().len()];
    let text = line.trim_start();
    let heading = text.trim_start_matches('#');
    let level = text.len() - heading.len();
    if (1..=6).contains(&level) && heading.starts_with(' ') {
        let heading = inline(heading.trim().trim_end_matches('#').trim()).replace('*', "");
        return format!("*{heading}*");
    }
    let item = ["- [ ] ", "- [x] ", "- [X] ", "- ", "* ", "+ "].into_iter().find_map(|mark| {
        let sign = match mark {
            "- [ ] " => "☐",
            "- [x] " | "- [X] " => "☑",
            _ => "•",
        };
        Some((sign, text.strip_prefix(mark)?))
    });
    match item {
        Some((sign, rest)) => format!("{indent}{sign} {}", inline(rest)),
        None => match text.strip_prefix('>') {
            Some(quote) => format!("> {}", inline(quote.trim_start())),
            None => format!("{indent}{}", inline(text)),
        },
    }
}

/// Bold, struck and linked words of one line.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (n, piece) in text.split('`').enumerate() {
        if n > 0 {
            out.push('`');
        }
        // Every other piece is code.
        if n % 2 == 1 {
            out.push_str(&escaped(piece));
        } else {
            out.push_str(&links(&escaped(piece)));
        }
    }
    out
}

/// Bold and struck words. Addresses stay as they are.
fn marked(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.contains("://") {
        true => word.to_owned(),
        false => word.replace("**", "*").replace("__", "*").replace("~~", "~"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `[label](address)` as `<address|label>`.
fn links(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(middle) = rest.find("](") {
        let Some(open) = rest[..middle].rfind('[') else { break };
        let Some(close) = rest[middle..].find(')').map(|at| middle + at) else { break };
        let (label, target) = (&rest[open + 1..middle], &rest[middle + 2..close]);
        let is_link = ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme));
        if is_link && !target.contains(['|', ' ']) {
            let image = rest[..open].ends_with('!');
            out.push_str(&marked(&rest[..open - usize::from(image)]));
            out.push_str(&format!("<{target}|{}>", marked(label).replace('|', "¦")));
        } else {
            out.push_str(&marked(&rest[..=close]));
        }
        rest = &rest[close + 1..];
    }
    out.push_str(&marked(rest));
    out
}

/// `text` without what Slack would take for marks of its own: mentions and links that nobody meant.
pub fn escaped(text: &str) -> String {
    quiet("", &text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// Where to cut a text that is longer than `max` bytes: behind a paragraph, else a line, else a word.
pub fn cut(text: &str, max: usize) -> usize {
    let most = text.floor_char_boundary(max);
    let head = &text[..most];
    let least = most / 2;
    let found = ["\n\n", "\n", " "]
        .into_iter()
        .find_map(|end| head.rfind(end).filter(|at| *at >= least).map(|at| at + end.len()));
    found.unwrap_or(most).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_plain() {
        assert_eq!(
            plain("<@UBOT> look at <https://a.example/x|a.example/x> &amp; go", "UBOT"),
            "look at https://a.example/x & go"
        );
        assert_eq!(plain("<@U1|mia> in <#C1|dev> says 1 &lt; 2", "UBOT"), "@mia in #dev says 1 < 2");
        assert_eq!(plain("a < b", "UBOT"), "a < b");
        assert_eq!(plain("<https://a.example|the page>", "UBOT"), "the page (https://a.example)");
    }

    #[test]
    fn markdown_is_shown_with_slacks_marks() {
        let markdown = "# Title\n\n**bold** and `**code**` and ~~old~~\n- one\n  * two\n- [x] done\n> said\n[docs](https://a.example/x)\n```rust\nlet a = b < c;\n```";
        let expected = "*Title*\n\n*bold* and `**code**` and ~old~\n• one\n  • two\n☑ done\n> said\n<https://a.example/x|docs>\n```\nlet a = b &lt; c;\n```";
        assert_eq!(mrkdwn(markdown), expected);
    }

    #[test]
    fn an_answer_mentions_and_links_nobody_by_itself() {
        assert_eq!(mrkdwn("<!channel> <@U1>"), "&lt;!channel&gt; &lt;@U1&gt;");
        assert_eq!(mrkdwn("[x](javascript:alert(1))"), "[x](javascript:alert(1))");
        assert_eq!(mrkdwn("[a __b__](https://a.example/__init__.py)"), "<https://a.example/__init__.py|a *b*>");
        assert_eq!(mrkdwn("see https://a.example/__init__.py"), "see https://a.example/__init__.py");
        assert_eq!(mrkdwn("```echo hi```"), "```echo hi```", "code within a line stays");
        assert_eq!(mrkdwn("````\n```\na\n````\nb"), "```\n'''\na\n```\nb");
        assert_eq!(mrkdwn("```\na"), "```\na\n```", "what is open is closed");
    }

    #[test]
    fn a_long_text_is_cut_where_it_reads_well() {
        let text = format!("{}\n\n{}", "a ".repeat(40), "b ".repeat(40));
        let at = cut(&text, 100);
        assert_eq!(&text[at..=at], "b");
        assert_eq!(cut(&"ä".repeat(100), 11), 10);
    }

    #[test]
    fn a_block_of_code_that_is_open_is_known_by_its_first_line() {
        let open = |text: &str| open_code(text).map(|(line, end)| format!("{line} … {end}"));
        assert_eq!(open("a\n```rust\nlet a = 1;").as_deref(), Some("```rust … ```"));
        assert_eq!(open("````md\n```\ncode").as_deref(), Some("````md … ````"), "three marks do not end four");
        assert_eq!(open("~~~\n```").as_deref(), Some("~~~ … ~~~"));
        for closed in ["a\n```rust\nlet a = 1;\n```", "```echo hi```", "a ``` b", "", "```\na\n`````"] {
            assert_eq!(open(closed), None, "{closed}");
        }
        let endless = format!("```{}\ncode", "x".repeat(9_000));
        assert!(open(&endless).is_some_and(|open| open.len() < 100));
    }

    #[test]
    fn nobody_is_called_however_an_answer_is_cut() {
        let text = "<!channel> <@U1> @here, @everyone <!subteam^S1> @Channel";
        let whole = quiet("", text);
        assert_eq!(whole.replace(NOBODY, ""), text);
        for call in CALLS {
            assert!(!whole.to_ascii_lowercase().contains(call), "{call} in {whole}");
        }
        for (at, _) in text.char_indices() {
            let (before, behind) = text.split_at(at);
            assert_eq!(format!("{}{}", quiet("", before), quiet(before, behind)), whole, "cut at {at}");
        }
        for same in ["me@here.example", "<!-- a comment -->", "<!DOCTYPE html>", "#include <a>", "1 < 2 @home"] {
            assert_eq!(quiet("", same), same);
        }
        assert!(!escaped("@channel").contains("@channel"));
    }
}
