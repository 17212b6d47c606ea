//! Terminal output as HTML: ANSI colours become classes, and all other control sequences are removed.

/// Classes by the codes 30 to 37.
const COLOURS: [&str; 8] =
    ["ansi-black", "ansi-red", "ansi-green", "ansi-yellow", "ansi-blue", "ansi-magenta", "ansi-cyan", "ansi-white"];

/// What the next characters look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pen {
    colour: Option<&'static str>,
    bold: bool,
    dim: bool,
    underlined: bool,
}

impl Pen {
    fn obey(&mut self, codes: &str) {
        let mut codes = codes.split([';', ':']).map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                4 => self.underlined = true,
                22 => (self.bold, self.dim) = (false, false),
                24 => self.underlined = false,
                30..=37 => self.colour = Some(COLOURS[usize::from(code - 30)]),
                90..=97 => self.colour = Some(COLOURS[usize::from(code - 90)]),
                39 => self.colour = None,
                // A colour of a larger palette: its parts are no codes.
                38 | 48 => match codes.next() {
                    Some(5) => drop(codes.next()),
                    Some(2) => drop(codes.nth(2)),
                    _ => {}
                },
                _ => {}
            }
        }
    }

    fn classes(self) -> String {
        let words = [
            self.colour,
            self.bold.then_some("ansi-bold"),
            self.dim.then_some("ansi-dim"),
            self.underlined.then_some("ansi-underlined"),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// A text with sequences as HTML.
pub fn html(text: &str) -> String {
    let mut html = String::with_capacity(text.len() * 2);
    each_run(text, |pen, text| write(&mut html, pen, &shown(text)));
    html
}

/// A text without its sequences.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    each_run(text, |_, text| plain.push_str(&shown(text)));
    plain
}

/// A line as HTML: at most `max_text` bytes of its text and `max_html` of HTML; where colours would take more than that, it
/// has none. With it come how many bytes of its text are in there, and how many are not.
pub fn line(line: &str, max_text: usize, max_html: usize) -> (String, usize, usize) {
    let (mut runs, mut text, mut whole): (Vec<(Pen, String)>, usize, usize) = (Vec::new(), 0, 0);
    each_run(line, |pen, piece| {
        let words = shown(piece);
        whole += words.len();
        let fits = protocol::text::head(&words, max_text - text);
        // Nothing comes after what did not fit.
        if whole - words.len() == text && !fits.is_empty() {
            text += fits.len();
            runs.push((pen, fits.to_owned()));
        }
    });
    let mut html = String::new();
    runs.iter().for_each(|(pen, text)| write(&mut html, *pen, text));
    if html.len() > max_html {
        let plain: String = runs.iter().map(|(_, text)| text.as_str()).collect();
        let fits = super::truncate::truncate_escaped(&plain, max_html);
        (html, text) = (super::escape(&fits), fits.len());
    }
    (html, text, whole - text)
}

/// Calls `take` with each piece of text and what it looks like.
fn each_run(text: &str, mut take: impl FnMut(Pen, &str)) {
    let (mut pen, mut rest) = (Pen::default(), text);
    loop {
        let end = rest.find('\u{1b}').unwrap_or(rest.len());
        if end > 0 {
            take(pen, &rest[..end]);
        }
        rest = &rest[end..];
        let Some(after) = rest.strip_prefix('\u{1b}') else { return };
        rest = match after.chars().next() {
            Some('[') => {
                let codes = &after[1..];
                let last = codes.find(|c: char| ('@'..='~').contains(&c)).unwrap_or(codes.len());
                if codes[last..].starts_with('m') {
                    pen.obey(&codes[..last]);
                }
                codes.get(last + 1..).unwrap_or("")
            }
            // Titles, links, the clipboard: up to their end, or to the end of the line.
            Some(']' | 'P' | '_' | '^' | 'X') => {
                let end = after.find(['\u{7}', '\n', '\u{1b}']).unwrap_or(after.len());
                let rest = &after[end..];
                rest.strip_prefix('\u{7}').or_else(|| rest.strip_prefix("\u{1b}\\")).unwrap_or(rest)
            }
            Some(other) => &after[other.len_utf8()..],
            None => "",
        };
    }
}

/// What of a text is shown. A carriage return is dropped: the text that it would overwrite is shown too.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn write(html: &mut String, pen: Pen, text: &str) {
    if text.is_empty() {
        return;
    }
    let shown = super::escape(text);
    match pen.classes() {
        classes if classes.is_empty() => html.push_str(&shown),
        classes => html.push_str(&format!("<span class=\"{classes}\">{shown}</span>")),
    }
}

#[cfg(test)]
mod tests {
    use super::html;

    #[test]
    fn colours_stay_and_orders_go() {
        assert_eq!(html("a\u{1b}[31;1mred\u{1b}[0m b"), "a<span class=\"ansi-red ansi-bold\">red</span> b");
        assert_eq!(html("\u{1b}[38;5;31mx\u{1b}[2J\u{1b}[Hy"), "xy");
        assert_eq!(html("\u{1b}]52;c;ZXZpbA==\u{7}x\u{1b}]8;;javascript:y\u{1b}\\z"), "xz");
        assert_eq!(html("\u{1b}[31m<b>"), "<span class=\"ansi-red\">&lt;b&gt;</span>");
        assert_eq!((html("\u{1b}"), html("\u{1b}["), html("x\u{1b}[3")), (String::new(), String::new(), "x".into()));
    }
}
