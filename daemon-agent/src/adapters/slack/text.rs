//! Text between Slack and agents: what people write there as plain text, and Markdown as Slack shows it, in pieces that fit.

/// Longest text of one message that is updated, characters as bytes: longer ones Slack cuts.
pub const MAX_POST_BYTES: usize = 3_800;
/// Longest text of one message that is streamed, bytes.
pub const MAX_STREAM_BYTES: usize = 11_000;

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
    let mut out = Vec::new();
    let mut in_code = false;
    for line in markdown.split('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            in_code = !in_code;
            out.push("```".to_owned());
        } else if in_code {
            out.push(escaped(line));
        } else {
            out.push(line_of(line));
        }
    }
    out.join("\n")
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
            let marked = escaped(piece).replace("**", "*").replace("__", "*").replace("~~", "~");
            out.push_str(&links(&marked));
        }
    }
    out
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
            out.push_str(&rest[..open - usize::from(image)]);
            out.push_str(&format!("<{target}|{}>", label.replace('|', "¦")));
        } else {
            out.push_str(&rest[..=close]);
        }
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    out
}

/// What Slack would take for marks of its own: mentions and links that nobody meant.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where to cut a text that is longer than `max` bytes: behind a paragraph, else a line, else a word; with whether that is
/// inside a block of code, which the next piece has to open again.
pub fn cut(text: &str, max: usize) -> (usize, bool) {
    let most = text.floor_char_boundary(max);
    let head = &text[..most];
    let least = most / 2;
    let found = ["\n\n", "\n", " "]
        .into_iter()
        .find_map(|end| head.rfind(end).filter(|at| *at >= least).map(|at| at + end.len()));
    let at = found.unwrap_or(most).max(1);
    let fences = text[..at].split('\n').filter(|line| line.trim_start().starts_with("```")).count();
    (at, fences % 2 == 1)
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
    }

    #[test]
    fn a_long_text_is_cut_where_it_reads_well() {
        let text = format!("{}\n\n{}", "a ".repeat(40), "b ".repeat(40));
        let (at, in_code) = cut(&text, 100);
        assert_eq!((&text[at..=at], in_code), ("b", false));
        let code = format!("```\n{}", "line\n".repeat(50));
        assert!(cut(&code, 100).1);
        assert_eq!(cut(&"ä".repeat(100), 11).0, 10);
    }
}
