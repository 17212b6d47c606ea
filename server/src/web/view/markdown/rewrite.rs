//! What the Board makes of a parsed text before it is HTML.

use comrak::{
    Arena,
    nodes::{Node, NodeCode, NodeCodeBlock, NodeMath, NodeValue},
};

/// Longer numbers in such brackets are no footnotes.
pub(super) const MAX_FOOTNOTE_DIGITS: usize = 3;
/// What the name of a footnote begins with where the note stands.
pub(super) const NOTE_TAG: &str = "<sup class=\"note\">";

/// Adapts a text to the page. What becomes of a part does not depend on what stands far from it: a text is rendered in
/// pieces while it is written.
pub(super) fn rewrite<'a>(arena: &'a Arena<'a>, root: Node<'a>) {
    for node in root.descendants() {
        adapt(arena, node);
    }
    for node in root.descendants().collect::<Vec<_>>() {
        show_formula(node);
        raise_footnote(arena, node);
    }
}

/// The text below a node.
pub(super) fn words<'a>(node: Node<'a>) -> String {
    let text = node.descendants().filter_map(|below| match &below.data().value {
        NodeValue::Text(text) => Some(text.to_string()),
        _ => None,
    });
    text.collect()
}

/// Adapts a node to the page: headings go below the page's own levels, an image becomes a link that says so, and a
/// fence of artifacts becomes their names, because they are shown elsewhere.
fn adapt<'a>(arena: &'a Arena<'a>, node: Node<'a>) {
    if let Some(names) = artifact_names(node) {
        node.data_mut().value = NodeValue::Paragraph;
        node.append(arena.alloc(NodeValue::Text(names.into()).into()));
        return;
    }
    let image = match &mut node.data_mut().value {
        NodeValue::Heading(heading) => {
            heading.level = (heading.level + 2).min(6);
            None
        }
        NodeValue::Image(link) => Some((**link).clone()),
        _ => None,
    };
    if let Some(link) = image {
        node.data_mut().value = NodeValue::Link(Box::new(link));
        node.prepend(arena.alloc(NodeValue::Text("Image: ".into()).into()));
    }
}

/// The artifacts that a fence names, as a sentence; `None` for any other fence and for one that cannot be parsed.
fn artifact_names<'a>(node: Node<'a>) -> Option<String> {
    let data = node.data();
    let NodeValue::CodeBlock(block) = &data.value else { return None };
    if !block.info.contains("artifact_deltas") {
        return None;
    }
    let named: Vec<serde_json::Value> = serde_json::from_str(&block.literal).ok()?;
    let titles = named.iter().map(|one| one["title"].as_str().or_else(|| one["id"].as_str()));
    Some(format!("Artifacts: {}.", titles.collect::<Option<Vec<_>>>()?.join(", ")))
}

/// Shows a formula as code. What only looks like one, as prices and variables of a shell do, stays as it was written.
fn show_formula(node: Node<'_>) {
    let NodeValue::Math(NodeMath { display_math, literal, .. }) = node.data().value.clone() else { return };
    let touches = |beside: Option<Node<'_>>, edge: fn(&str) -> Option<char>| {
        let data = beside.map(|beside| beside.data());
        matches!(data.as_ref().map(|data| &data.value), Some(NodeValue::Text(text))
            if edge(text).is_some_and(char::is_alphanumeric))
    };
    let in_a_word = touches(node.previous_sibling(), |text| text.chars().next_back())
        || touches(node.next_sibling(), |text| text.chars().next());
    let is_words = literal.contains(char::is_whitespace) && !literal.contains(|c| "\\^_={}+-*/<>()|".contains(c));
    let is_alone = node.previous_sibling().is_none() && node.next_sibling().is_none();
    if !display_math && (in_a_word || is_words) {
        node.data_mut().value = NodeValue::Text(format!("${literal}$").into());
    } else if let Some(paragraph) =
        node.parent().filter(|parent| display_math && is_alone && matches!(parent.data().value, NodeValue::Paragraph))
    {
        node.detach();
        let literal = format!("{}\n", literal.trim_matches(['\n', '\r']));
        let block = NodeCodeBlock { fenced: true, literal, ..NodeCodeBlock::default() };
        paragraph.data_mut().value = NodeValue::CodeBlock(Box::new(block));
    } else {
        let literal = literal.split_whitespace().collect::<Vec<_>>().join(" ");
        node.data_mut().value = NodeValue::Code(NodeCode { num_backticks: 1, literal });
    }
}

/// Raises the names of footnotes, where they are referred to and where they stand. A number is raised without its
/// footnote too, which another piece of the text may have.
fn raise_footnote<'a>(arena: &'a Arena<'a>, node: Node<'a>) {
    let raised = |name: &str| {
        let mark: Node<'a> = arena.alloc(NodeValue::Superscript.into());
        mark.append(arena.alloc(NodeValue::Text(name.to_owned().into()).into()));
        mark
    };
    let value = node.data().value.clone();
    match value {
        NodeValue::FootnoteReference(reference) => {
            node.insert_before(raised(&reference.name));
            node.detach();
        }
        NodeValue::FootnoteDefinition(note) => {
            let first = node.first_child().filter(|first| matches!(first.data().value, NodeValue::Paragraph));
            let paragraph = first.unwrap_or_else(|| arena.alloc(NodeValue::Paragraph.into()));
            if first.is_none() {
                node.prepend(paragraph);
            }
            paragraph.prepend(arena.alloc(NodeValue::Text(" ".into()).into()));
            let name = format!("{NOTE_TAG}{}</sup>", ammonia::clean_text(&note.name));
            paragraph.prepend(arena.alloc(NodeValue::Raw(name).into()));
            while let Some(block) = node.first_child() {
                node.insert_before(block);
            }
            node.detach();
        }
        NodeValue::Text(text) => {
            let mut rest: &str = &text;
            while let Some((words, number, after)) = numbered_mark(rest) {
                node.insert_before(arena.alloc(NodeValue::Text(words.to_owned().into()).into()));
                node.insert_before(raised(number));
                rest = after;
            }
            if rest.len() < text.len() {
                node.data_mut().value = NodeValue::Text(rest.to_owned().into());
            }
        }
        _ => {}
    }
}

/// The first mark of a footnote with a number: what is before it, the number, and what follows.
fn numbered_mark(text: &str) -> Option<(&str, &str, &str)> {
    text.match_indices("[^").find_map(|(at, mark)| {
        let inside = &text[at + mark.len()..];
        let digits = inside.bytes().take_while(u8::is_ascii_digit).count();
        let after = inside[digits..].strip_prefix(']')?;
        (1..=MAX_FOOTNOTE_DIGITS).contains(&digits).then(|| (&text[..at], &inside[..digits], after))
    })
}
