//! Artifacts of a message as cards; those that follow each other form a gallery. A call that did nothing but hand over an
//! artifact has no row beside its card.

use std::collections::HashSet;

use protocol::{ArtifactId, text::head};
use serde_json::Value;

use super::{CallOutcome, EntryContent, PARTS_PER_GROUP, TimelineBuilder, TimelineEntry, escaped};
use crate::domain::{ArtifactKind, artifact::file_name, name};

/// The tool whose calls hand over artifacts.
const HANDING_TOOL: &str = "add_artifact";
/// Longest title of a card, characters.
const MAX_TITLE_CHARS: usize = 200;
/// Longest media type or reference that is examined, bytes.
const MAX_EXAMINED_BYTES: usize = 1024;
/// HTML of a card without its title, bytes at most.
const CARD_FRAME_BYTES: usize = 1_500;
/// HTML of a gallery without its cards, bytes at most.
const GALLERY_FRAME_BYTES: usize = 200;

/// Artifacts with nothing between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gallery {
    pub cards: Vec<ArtifactCard>,
}

/// An artifact as its message knows it. What changes, such as where its bytes are, is fetched when the card comes into
/// view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactCard {
    /// The place of its part in the message.
    pub at: usize,
    /// Its page, when it has one.
    pub id: Option<ArtifactId>,
    pub title: String,
    /// What people call such a thing: `table`.
    pub noun: &'static str,
    /// An icon of the sprite.
    pub icon: &'static str,
    /// Bytes, if they are known.
    pub size: Option<u64>,
}

impl ArtifactCard {
    /// From the artifact of a part, which is as a viber sent it.
    fn of(artifact: &Value, at: usize) -> Self {
        let text = |field: &str| {
            let value = artifact.get(field).and_then(Value::as_str).unwrap_or("");
            head(value, MAX_EXAMINED_BYTES)
        };
        let clean = |field| name::clean(text(field), MAX_TITLE_CHARS);
        let reference = text("ref");
        let is_link = reference.contains("://");
        let file =
            file_name(if is_link { "" } else { reference }).or_else(|| file_name(text("id"))).unwrap_or_default();
        // Nothing is shown by this: it only says what to expect of a file that nobody looked into yet.
        let sniffed = if text("sniffed").is_empty() { text("type") } else { text("sniffed") };
        let kind = ArtifactKind::of(sniffed, text("type"), &file);
        Self {
            at,
            id: text("artifactId").parse().ok(),
            title: clean("title").or_else(|| clean("id")).unwrap_or_else(|| "Artifact".to_owned()),
            noun: if is_link { "address" } else { kind.noun() },
            icon: icon(kind, is_link),
            size: artifact.get("size").and_then(Value::as_u64),
        }
    }

    fn weight(&self) -> usize {
        CARD_FRAME_BYTES + escaped(&self.title)
    }
}

/// The icon of what an artifact is.
pub fn icon(kind: ArtifactKind, is_link: bool) -> &'static str {
    match kind {
        _ if is_link => "external",
        ArtifactKind::Image(_) | ArtifactKind::Page("image/svg+xml") => "artifact",
        _ => "file",
    }
}

impl Gallery {
    /// How many bytes of HTML it takes at most.
    pub(super) fn weight(&self) -> usize {
        GALLERY_FRAME_BYTES + self.cards.iter().map(ArtifactCard::weight).sum::<usize>()
    }

    /// Keeps the newest cards that fit into `room` bytes, with `some` at least one; `false` when none fits.
    pub(super) fn keep(&mut self, room: usize, some: bool) -> bool {
        let mut left = room.saturating_sub(GALLERY_FRAME_BYTES);
        let fits = |card: &&ArtifactCard| {
            let rest = left.checked_sub(card.weight());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let fitting = self.cards.iter().rev().take_while(fits).count().max(usize::from(some));
        self.cards.drain(..self.cards.len().saturating_sub(fitting));
        fitting > 0
    }
}

/// Which calls handed over which artifacts.
#[derive(Default)]
pub(super) struct DeliveredArtifacts {
    /// Ids of calls whose artifact has a card.
    calls: HashSet<String>,
    shown: HashSet<ArtifactId>,
}

impl DeliveredArtifacts {
    /// Removes the rows of calls that succeeded and whose artifact has a card; galleries that meet become one.
    pub(super) fn forget_rows(&self, entries: &mut Vec<TimelineEntry>) {
        if self.calls.is_empty() {
            return;
        }
        for entry in entries.iter_mut() {
            if let EntryContent::Calls(group) = &mut entry.body {
                group.calls.retain(|call| call.outcome != CallOutcome::Done || !self.calls.contains(&call.id));
            }
            entry.index = entry.first_place();
        }
        entries.retain(|entry| !matches!(&entry.body, EntryContent::Calls(group) if group.calls.is_empty()));
        entries.dedup_by(|next, before| match (&mut before.body, &mut next.body) {
            (EntryContent::Artifacts(one), EntryContent::Artifacts(other))
                if before.index / PARTS_PER_GROUP == next.index / PARTS_PER_GROUP =>
            {
                one.cards.append(&mut other.cards);
                true
            }
            _ => false,
        });
    }
}

impl TimelineBuilder<'_> {
    /// An artifact: it joins the gallery before it. By place, as calls join their group.
    pub(super) fn artifact(&mut self, artifact: &Value) {
        let card = ArtifactCard::of(artifact, self.at);
        if card.id.as_ref().is_some_and(|id| !self.delivered.shown.insert(id.clone())) {
            return;
        }
        self.note_handing_call();
        let group = self.at / PARTS_PER_GROUP;
        match self.entries.last_mut() {
            Some(TimelineEntry { index, body: EntryContent::Artifacts(gallery) })
                if *index / PARTS_PER_GROUP == group =>
            {
                gallery.cards.push(card);
            }
            _ => self.push(EntryContent::Artifacts(Gallery { cards: vec![card] })),
        }
    }

    /// An artifact is reported while the call works that hands it over: the oldest one that has no card yet.
    fn note_handing_call(&mut self) {
        let groups = self.entries.iter().filter_map(|entry| match &entry.body {
            EntryContent::Calls(group) => Some(&group.calls),
            _ => None,
        });
        let works = |call: &&super::Call| call.tool == HANDING_TOOL && call.outcome == CallOutcome::Working;
        let handing = groups.flatten().filter(works).find(|call| !self.delivered.calls.contains(&call.id));
        if let Some(id) = handing.map(|call| call.id.clone()) {
            self.delivered.calls.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{domain::Part, web::markdown::TextAuthor};

    const IDS: [&str; 3] = [
        "art_00000000000070008000000000000001",
        "art_00000000000070008000000000000002",
        "art_00000000000070008000000000000003",
    ];

    fn call(id: &str, tool: &str) -> Part {
        Part::ToolCall { call_id: id.into(), tool: tool.into(), args: json!({}), at: None }
    }

    fn result(id: &str, ok: bool) -> Part {
        Part::ToolResult { call_id: id.into(), tool: String::new(), result: json!("x"), ok, duration_ms: 1 }
    }

    fn artifact(n: usize, title: &str) -> Part {
        let artifact = json!({"id": title, "artifactId": IDS[n], "type": "text/csv", "sniffed": "text/plain",
            "ref": format!("artifacts/x/{title}"), "size": 12});
        Part::Artifact { artifact }
    }

    fn entries(parts: &[Part]) -> Vec<TimelineEntry> {
        let mut builder = TimelineBuilder::new(TextAuthor::Agent, 0);
        parts.iter().for_each(|part| builder.part(part));
        builder.finish(true)
    }

    fn shape(entries: &[TimelineEntry]) -> Vec<(usize, usize, usize)> {
        let shape = |entry: &TimelineEntry| match &entry.body {
            EntryContent::Calls(group) => (entry.index, group.calls.len(), 0),
            EntryContent::Artifacts(gallery) => (entry.index, 0, gallery.cards.len()),
            other => panic!("{other:?}"),
        };
        entries.iter().map(shape).collect()
    }

    #[test]
    fn what_a_call_handed_over_is_shown_once() {
        let parts = [
            call("a", "shell"),
            result("a", true),
            call("b", HANDING_TOOL),
            artifact(0, "one.csv"),
            result("b", true),
            call("c", HANDING_TOOL),
            artifact(1, "two.csv"),
            result("c", true),
        ];
        let found = entries(&parts);
        assert_eq!(shape(&found), [(0, 1, 0), (3, 0, 2)]);
        let EntryContent::Artifacts(gallery) = &found[1].body else { panic!("{found:?}") };
        let card = &gallery.cards[0];
        assert_eq!((card.title.as_str(), card.noun, card.size), ("one.csv", "table", Some(12)));
    }

    #[test]
    fn a_call_that_failed_or_works_keeps_its_row() {
        let failed = [call("a", HANDING_TOOL), result("a", false)];
        assert_eq!(shape(&entries(&failed)), [(0, 1, 0)]);
        let works = [call("a", HANDING_TOOL), artifact(0, "one.csv")];
        assert_eq!(shape(&entries(&works)), [(0, 1, 0), (1, 0, 1)]);
    }

    #[test]
    fn the_same_artifact_has_one_card_and_a_new_version_another() {
        let parts = [artifact(0, "one.csv"), artifact(0, "one.csv"), artifact(1, "one.csv")];
        assert_eq!(shape(&entries(&parts)), [(0, 0, 2)]);
    }

    #[test]
    fn a_gallery_is_cut_to_what_fits() {
        let mut found = entries(&[artifact(0, "a"), artifact(1, "b"), artifact(2, "c")]);
        assert_eq!(super::super::fit(&mut found, 2 * (CARD_FRAME_BYTES + 1) + GALLERY_FRAME_BYTES), Some(1));
        assert_eq!(shape(&found), [(1, 0, 2)]);
        super::super::skip(&mut found, 2);
        assert_eq!(shape(&found), [(2, 0, 1)]);
    }

    #[test]
    fn what_a_viber_sends_is_cleaned() {
        let odd = Part::Artifact {
            artifact: json!({"id": 7, "title": "\u{202e}gnp.exe\n", "artifactId": "../x", "size": -1}),
        };
        let found = entries(&[odd]);
        let EntryContent::Artifacts(gallery) = &found[0].body else { panic!("{found:?}") };
        let card = &gallery.cards[0];
        assert_eq!((card.title.as_str(), card.id.is_none(), card.noun, card.size), ("gnp.exe", true, "file", None));
    }
}
