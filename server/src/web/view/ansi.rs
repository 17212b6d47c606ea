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
    let (mut html, mut pen, mut rest) = (String::with_capacity(text.len() * 2), Pen::default(), text);
    loop {
        let end = rest.find('\u{1b}').unwrap_or(rest.len());
        write(&mut html, pen, &rest[..end]);
        rest = &rest[end..];
        let Some(after) = rest.strip_prefix('\u{1b}') else { return html };
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

fn write(html: &mut String, pen: Pen, text: &str) {
    if text.is_empty() {
        return;
    }
    // A carriage return is dropped: the text that it would overwrite is shown too.
    let shown: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let shown = super::escape(&shown);
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
