//! What a browser would have to unpack and draw for a picture, found out before it is asked to: pictures of a few bytes
//! can take gigabytes of memory or hours of drawing.

use std::collections::HashMap;

use roxmltree::{Document, Node, NodeId, ParsingOptions};

/// Bytes of a picture that are read to find its size.
pub const PICTURE_HEAD_BYTES: u64 = 64 * 1024;
/// Largest picture that a card shows: unpacked it takes 100 MB.
const MAX_PIXELS: usize = 25_000_000;
/// Largest SVG that a card shows, bytes.
pub const MAX_SVG_BYTES: u64 = 256 * 1024;
/// Elements that an SVG may have, and may draw in the end.
const MAX_SVG_NODES: u32 = 20_000;
const MAX_DRAWN_ELEMENTS: u64 = 50_000;
/// How deep elements may lie in each other, references included.
const MAX_SVG_DEPTH: usize = 100;

/// Width and height in pixels by its first bytes; `None` when they are unknown, or too many to show unasked.
pub fn dimensions(head: &[u8]) -> Option<(usize, usize)> {
    let size = imagesize::blob_size(head).ok()?;
    let is_fit = size.width > 0 && size.height > 0 && size.width.checked_mul(size.height)? <= MAX_PIXELS;
    is_fit.then_some((size.width, size.height))
}

/// Whether drawing an SVG is cheap: it declares no entities, computes no filters, embeds no documents, and what its
/// references repeat stays bounded.
pub fn is_cheap_svg(text: &str) -> bool {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MAX_SVG_NODES, ..ParsingOptions::default() };
    let Ok(document) = Document::parse_with_options(text, options) else { return false };
    let mut drawing = Drawing { ids: HashMap::new(), known: HashMap::new() };
    for node in document.descendants().filter(Node::is_element) {
        let name = node.tag_name().name();
        let refers = |text: &str| text.to_ascii_lowercase().contains("url") || text.contains(['\\', '@']);
        let texts = || node.descendants().filter(Node::is_text).filter_map(|text| text.text());
        let is_hidden = |value: &str| value.contains('\\') || value.contains('#') && value.contains('%');
        if matches!(name, "filter" | "foreignObject" | "image" | "feImage" | "set")
            || name.starts_with("animate")
            || name == "style" && texts().any(refers)
            || node.attributes().any(|attribute| is_hidden(attribute.value()))
        {
            return false;
        }
        if let Some(id) = node.attribute("id") {
            drawing.ids.insert(id, node);
        }
    }
    document.root_element().tag_name().name() == "svg"
        && drawing.cost(document.root_element(), 0).is_some_and(|cost| cost <= MAX_DRAWN_ELEMENTS)
}

struct Drawing<'a> {
    ids: HashMap<&'a str, Node<'a, 'a>>,
    /// What elements cost that were looked at; `None` while one is being looked at.
    known: HashMap<NodeId, Option<u64>>,
}

impl<'a> Drawing<'a> {
    /// How many elements are drawn for one, with all that it refers to; `None` when it refers to itself or lies too deep.
    fn cost(&mut self, node: Node<'a, 'a>, depth: usize) -> Option<u64> {
        if depth > MAX_SVG_DEPTH {
            return None;
        }
        if let Some(known) = self.known.get(&node.id()) {
            return *known;
        }
        self.known.insert(node.id(), None);
        let mut cost: u64 = 1;
        for child in node.children().filter(Node::is_element) {
            cost = cost.saturating_add(self.cost(child, depth + 1)?);
        }
        for attribute in node.attributes() {
            let value = attribute.value();
            let named = (attribute.name() == "href").then(|| value.trim().strip_prefix('#')).flatten();
            let lower = value.to_ascii_lowercase();
            let urls = lower.match_indices("url(").filter_map(|(at, start)| {
                let url = value[at + start.len()..].split(')').next().unwrap_or("");
                url.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).strip_prefix('#')
            });
            for id in named.into_iter().chain(urls) {
                if let Some(target) = self.ids.get(id).copied() {
                    cost = cost.saturating_add(self.cost(target, depth + 1)?);
                }
            }
        }
        self.known.insert(node.id(), Some(cost));
        Some(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(inside: &str) -> String {
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\">{inside}</svg>")
    }

    #[test]
    fn a_chart_is_cheap() {
        let glyphs = "<defs><path id=\"g\" d=\"M0 0\"/><linearGradient id=\"l\"><stop/></linearGradient></defs>";
        let uses = "<use xlink:href=\"#g\" x=\"1\"/>".repeat(500);
        assert!(is_cheap_svg(&svg(&format!("{glyphs}{uses}<rect fill=\"url(#l)\"/>"))));
    }

    #[test]
    fn what_repeats_itself_is_not() {
        // Ten levels of ten each: ten thousand million squares.
        let mut levels = String::from("<g id=\"a0\"><rect/></g>");
        for n in 1..=10 {
            let uses = format!("<use href=\"#a{}\"/>", n - 1).repeat(10);
            levels.push_str(&format!("<g id=\"a{n}\">{uses}</g>"));
        }
        assert!(!is_cheap_svg(&svg(&levels)));
        let mut patterns = String::from("<pattern id=\"p0\"><rect/></pattern>");
        for n in 1..=12 {
            let rects = format!("<rect fill=\"url(#p{})\"/>", n - 1).repeat(8);
            patterns.push_str(&format!("<pattern id=\"p{n}\">{rects}</pattern>"));
        }
        assert!(!is_cheap_svg(&svg(&patterns)));
        assert!(!is_cheap_svg(&svg("<g id=\"a\"><use href=\"#a\"/></g>")), "itself");
        assert!(!is_cheap_svg(&svg(&("<g>".repeat(5_000) + &"</g>".repeat(5_000)))), "too deep");
        assert!(!is_cheap_svg(&svg("<filter id=\"f\"/>")), "filters");
        assert!(!is_cheap_svg(&svg(&patterns.replace("url(#", "URL( #"))), "written otherwise");
        for style in ["url(#p)", "URL(#p)", "\\75rl(#p)"] {
            assert!(!is_cheap_svg(&svg(&format!("<style><!-- --> rect {{ fill: {style} }}</style>"))), "{style}");
            assert!(is_cheap_svg(&svg("<style>*{stroke-linejoin: round}</style>")), "a chart's own");
        }
        assert!(!is_cheap_svg(&svg("<rect fill=\"\\75rl(#p)\"/>")) && !is_cheap_svg(&svg("<use href=\"#%61\"/>")));
        assert!(!is_cheap_svg(&svg("<use><set attributeName=\"href\" to=\"#a\"/></use>")), "what changes later");
        assert!(!is_cheap_svg("<!DOCTYPE svg [<!ENTITY a \"b\">]><svg xmlns=\"http://www.w3.org/2000/svg\">&a;</svg>"));
        assert!(!is_cheap_svg("<html/>") && !is_cheap_svg("no markup"));
    }

    #[test]
    fn a_picture_says_how_large_it_is() {
        let png = |width: u32, height: u32| {
            let mut head = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
            head.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
            head.extend(*b"\x08\x06\0\0\0");
            head
        };
        assert_eq!(dimensions(&png(640, 480)), Some((640, 480)));
        assert_eq!(dimensions(&png(100_000, 100_000)), None);
        assert_eq!((dimensions(&png(0, 1)), dimensions(b"GIF89a"), dimensions(b"")), (None, None, None));
    }
}
