//! Text written by a model, a machine or a person, as safe HTML.
//!
//! Two layers of defence: comrak escapes HTML in the source, and ammonia then keeps only what a fixed list allows.
//! Nothing is loaded from elsewhere: an image becomes a link that a reader may follow.

mod cache;
mod closing;
mod footnotes;
mod growing;
mod highlight;
mod pieces;
mod rewrite;
mod suggestion;

pub use footnotes::linked;
pub use growing::{GrowingText, Growth};
pub use suggestion::answer;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock, Once},
    thread,
};

use ammonia::{Builder, UrlRelative};
use comrak::{Arena, Options, nodes::NodeValue, options::Plugins};
use protocol::text;

/// Longest source that is rendered, bytes; the rest is in the transcript.
const MAX_SOURCE_BYTES: usize = 200_000;
/// Deepest nesting of quotes and lists that is kept; deeper ones cost time that grows with their square.
const MAX_NESTING: usize = 32;

/// Whose text it is: a person's line breaks are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAuthor {
    Person,
    Agent,
}

/// `source` as HTML, from the cache when the same text was rendered lately.
pub fn render(source: &str, by: TextAuthor) -> Arc<str> {
    cache::get_or(source, by, || convert(source, by))
}

/// The images that `source` names, in order: their descriptions and addresses.
pub fn images(source: &str, most: usize) -> Vec<(String, String)> {
    let cut = text::head(source, MAX_SOURCE_BYTES);
    if too_deep(cut) {
        return Vec::new();
    }
    let arena = Arena::new();
    let root = comrak::parse_document(&arena, cut, &Options::default());
    let found = root.descendants().filter_map(|node| match &node.data().value {
        NodeValue::Image(link) => Some((rewrite::words(node), link.url.clone())),
        _ => None,
    });
    found.take(most).collect()
}

/// `source` as code of this kind, a line each, with colours.
pub fn lines(source: &str, kind: &str) -> Vec<String> {
    let longest = source.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    let kind: String = kind.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let html = render(&format!("{fence}{kind}\n{source}\n{fence}\n"), TextAuthor::Agent);
    let inside = html.split_once("<code>").and_then(|(_, rest)| rest.rsplit_once("</code>")).map(|(inside, _)| inside);
    let mut open = String::new();
    let mut lines: Vec<String> = Vec::new();
    for line in inside.unwrap_or_default().split('\n') {
        let begun = open.clone();
        // Colours do not nest: the last tag says whether one goes on.
        if let Some(at) = line.rfind('<') {
            open = if line[at..].starts_with("<span") {
                line[at..].split_inclusive('>').next().unwrap_or_default().to_owned()
            } else {
                String::new()
            };
        }
        let end = if open.is_empty() { "" } else { "</span>" };
        lines.push(format!("{begun}{line}{end}"));
    }
    // What the fence adds at the end.
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Reads the grammars and the allow-list in the background, once: called with every page, because whoever opens one will
/// soon see a text. They take many MiB, which a Board that nobody looks at does without.
pub fn warm() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let blocks = ["rust", "js", "python", "sh", "json"].map(|lang| format!("```{lang}\nlet a = 1; # b\n```\n"));
        // Without that thread the first text takes longer.
        drop(
            thread::Builder::new().name("grammars".into()).spawn(move || convert(&blocks.concat(), TextAuthor::Agent)),
        );
    });
}

fn convert(source: &str, by: TextAuthor) -> String {
    let cut = text::head(source, MAX_SOURCE_BYTES);
    let mut html = if too_deep(cut) { plain(cut) } else { sanitise(&to_html(cut, by, true)) };
    if cut.len() < source.len() {
        html.push_str(
            "<p class=\"meta\">Truncated: a page shows the first 200 kB of a text. The transcript has all of it.</p>",
        );
    }
    html
}

/// A block that still grows: code has no colours yet.
fn convert_open(source: &str) -> String {
    let cut = text::head(source, MAX_SOURCE_BYTES);
    if too_deep(cut) { plain(cut) } else { sanitise(&to_html(cut, TextAuthor::Agent, false)) }
}

/// Text without Markdown, when it is nested too deeply to be rendered.
fn plain(source: &str) -> String {
    format!("<pre tabindex=\"0\"><code>{}</code></pre>", ammonia::clean_text(source))
}

/// Whether a line opens more nested quotes and lists than are rendered.
fn too_deep(source: &str) -> bool {
    source.lines().any(|line| {
        let markers = line.chars().take_while(|c| matches!(c, '>' | ' ' | '\t' | '-' | '*' | '+'));
        markers.filter(|c| !c.is_whitespace()).count() > MAX_NESTING
            && line.contains(['>', '-', '*', '+'])
            && line.trim().chars().any(|c| !matches!(c, '-' | '*' | '+' | ' '))
    })
}

/// The Markdown that is understood.
fn options(by: TextAuthor) -> Options<'static> {
    let mut options = Options::default();
    options.extension.strikethrough = true;
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.tasklist = true;
    options.extension.math_dollars = true;
    options.extension.footnotes = true;
    options.parse.leave_footnote_definitions = true;
    options.render.escape = true;
    options.render.github_pre_lang = true;
    options.render.hardbreaks = by == TextAuthor::Person;
    options
}

fn to_html(source: &str, by: TextAuthor, colours: bool) -> String {
    let options = options(by);
    let arena = Arena::new();
    let root = comrak::parse_document(&arena, source, &options);
    rewrite::rewrite(&arena, root);
    let highlighter = highlight::Highlighter::new(colours);
    let mut plugins = Plugins::default();
    plugins.render.codefence_syntax_highlighter = Some(&highlighter);
    let mut html = String::with_capacity(source.len() * 2);
    match comrak::format_html_with_plugins(root, &options, &mut html, &plugins) {
        Ok(()) => labelled(&html),
        Err(_) => plain(source),
    }
}

/// Gives boxes of tasks their labels, and each table a box of its own to scroll in. comrak escapes what looks like a tag
/// in texts and attributes, so that these are its own.
fn labelled(html: &str) -> String {
    html.replace("<input type=\"checkbox\" checked", "<input type=\"checkbox\" aria-label=\"Done\" checked")
        .replace("<input type=\"checkbox\" disabled", "<input type=\"checkbox\" aria-label=\"To do\" disabled")
        .replace("<table>", "<div class=\"scroll-x\" tabindex=\"0\" role=\"region\" aria-label=\"Table\"><table>")
        .replace("</table>", "</table></div>")
}

/// The allow-list: everything else is dropped.
static SANITISER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let tags: HashSet<&str> = HashSet::from([
        "p",
        "br",
        "hr",
        "h3",
        "h4",
        "h5",
        "h6",
        "strong",
        "em",
        "del",
        "code",
        "pre",
        "span",
        "a",
        "ul",
        "ol",
        "li",
        "blockquote",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "input",
        "sup",
        "div",
    ]);
    let attributes: HashMap<&str, HashSet<&str>> = HashMap::from([
        ("a", HashSet::from(["href", "title"])),
        ("ol", HashSet::from(["start"])),
        ("th", HashSet::from(["align"])),
        ("td", HashSet::from(["align"])),
        ("pre", HashSet::from(["tabindex", "data-lang"])),
        ("input", HashSet::from(["type", "checked", "disabled"])),
        ("div", HashSet::from(["tabindex"])),
    ]);
    let values = HashMap::from([
        (
            "input",
            HashMap::from([("type", HashSet::from(["checkbox"])), ("aria-label", HashSet::from(["Done", "To do"]))]),
        ),
        ("div", HashMap::from([("role", HashSet::from(["region"])), ("aria-label", HashSet::from(["Table"]))])),
    ]);
    let classes = HashMap::from([
        ("span", highlight::CLASSES.iter().copied().collect()),
        ("div", HashSet::from(["scroll-x"])),
        ("sup", HashSet::from(["note"])),
    ]);
    let mut builder = Builder::empty();
    builder
        .tags(tags)
        .tag_attributes(attributes)
        .tag_attribute_values(values)
        .set_tag_attribute_values(HashMap::from([("input", HashMap::from([("disabled", "")]))]))
        .allowed_classes(classes)
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener nofollow ugc"))
        .strip_comments(true);
    builder
});

fn sanitise(html: &str) -> String {
    SANITISER.clean(html).to_string()
}

#[cfg(test)]
mod tests;
