//! What a person should look at before they approve a skill. Hints, found line by line in bounded time; no verdict.

mod encoded;
mod rules;
mod uses;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::{encoded::EncodedLines, rules::RULES, uses::Uses};
use super::{
    bundle::{BundledFile, SkillBundle},
    invisible::{self, marked},
    permissions::SkillPermissions,
    text::{self, TextLine},
};

/// Most findings of a skill.
const MAX_FINDINGS: usize = 200;
/// Most findings of one kind in one file; the last one says how many more there are.
const MAX_PER_FILE: usize = 20;
/// Longest text of a finding, characters.
const MAX_TEXT_CHARS: usize = 200;
/// Bytes of a long line that are shown before what was found.
const BYTES_BEFORE: usize = 40;

crate::words! {
    /// What a finding is about, the most serious first.
    FindingKind {
        /// Something is downloaded and run.
        PipeToShell = "pipe_to_shell",
        /// Characters that do not show.
        Invisible = "invisible",
        /// Orders to keep something from people, or to disobey them.
        Hiding = "hiding",
        /// Content that only a program can read, or that is run after it was decoded.
        Encoded = "encoded",
        /// Keys, passwords and where they lie.
        Secrets = "secrets",
        /// Writing what agents, shells or schedulers obey.
        AgentFiles = "agent_files",
        /// More rights than the command has.
        Privilege = "privilege",
        /// A file that is no text.
        Binary = "binary",
        /// Anything that goes over the network.
        Network = "network",
    }
}

impl FindingKind {
    /// What it is about, in words.
    pub fn label(self) -> &'static str {
        match self {
            Self::PipeToShell => "Downloads something and runs it",
            Self::Invisible => "Has characters that do not show",
            Self::Hiding => "Asks to hide something from people, or to ignore instructions",
            Self::Encoded => "Has encoded content, or runs what it decodes",
            Self::Secrets => "Reads keys or passwords",
            Self::AgentFiles => "Writes files that agents, shells or schedulers obey",
            Self::Privilege => "Asks for more rights",
            Self::Binary => "Is not text",
            Self::Network => "Uses the network",
        }
    }
}

/// One line that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFinding {
    pub path: String,
    /// From 1; 0 if it is the file as a whole.
    pub line: u32,
    pub kind: FindingKind,
    /// The line, or the part of it that matters, with invisible characters marked; at most 200 characters.
    pub text: String,
}

/// What all files of a skill show.
#[derive(Clone, Debug, Default)]
pub(super) struct LookedThrough {
    pub permissions: SkillPermissions,
    pub findings: Vec<SkillFinding>,
    /// Lines with findings for which there was no room.
    pub omitted_findings: u64,
}

/// Looks through every file. Takes time in proportion to their size.
pub(super) fn look_through(bundle: &SkillBundle) -> LookedThrough {
    let mut found = Collected::default();
    let mut uses = Uses::of(&bundle.declared);
    for file in &bundle.files {
        let is_main = file.path == bundle.main;
        let text = text::read(&file.path, &file.bytes, is_main && bundle.declared.is_script_throughout);
        uses.begin(file, text.as_ref(), is_main);
        match text {
            None => found.take(&file.path, 0, FindingKind::Binary, || binary(file)),
            Some(text) => {
                let mut encoded = EncodedLines::default();
                text.lines().for_each(|line| look_at(&file.path, &line, (&mut encoded, &mut uses), &mut found));
            }
        }
    }
    let is_online = found.has(FindingKind::Network) || found.has(FindingKind::PipeToShell);
    let (findings, omitted_findings) = found.finish();
    LookedThrough { permissions: uses.permissions(is_online), findings, omitted_findings }
}

fn look_at(
    path: &str,
    line: &TextLine<'_>,
    (encoded, uses): (&mut EncodedLines, &mut Uses<'_>),
    found: &mut Collected,
) {
    // The first of each kind, as a piece of the line and a place in it.
    let mut hits: BTreeMap<FindingKind, (&str, usize)> = BTreeMap::new();
    if let Some(at) = invisible::first(line.text, line.number == 1) {
        hits.insert(FindingKind::Invisible, (line.text, at));
    }
    if let Some(at) = encoded.look(line.text) {
        hits.insert(FindingKind::Encoded, (line.text, at));
    }
    for piece in line.pieces() {
        for (kind, at) in RULES.find(piece, line) {
            hits.entry(kind).or_insert((piece, at));
        }
        if let Some(at) = uses.look(piece, line) {
            hits.entry(FindingKind::Secrets).or_insert((piece, at));
        }
    }
    for (kind, (piece, at)) in hits {
        found.take(path, line.number, kind, || excerpt(piece, at));
    }
}

/// The line around `at`, with what does not show marked.
fn excerpt(line: &str, at: usize) -> String {
    let start = if line.len() <= MAX_TEXT_CHARS { 0 } else { at.saturating_sub(BYTES_BEFORE) };
    let start = line.floor_char_boundary(start);
    let part: String = line.get(start..).unwrap_or(line).chars().take(MAX_TEXT_CHARS).collect();
    let cut = if start > 0 { "…" } else { "" };
    let shown = format!("{cut}{}", marked(part.trim()));
    if shown.chars().count() <= MAX_TEXT_CHARS {
        return shown;
    }
    shown.chars().take(MAX_TEXT_CHARS - 1).chain(['…']).collect()
}

fn binary(file: &BundledFile) -> String {
    format!("{}, {} bytes", protocol::sniff::sniff(&file.bytes), file.bytes.len())
}

/// The findings of one kind in one file.
#[derive(Default)]
struct FileFindings {
    lines: Vec<(u32, String)>,
    /// The first line that is left out, and how many there are.
    first_left_out: u32,
    left_out: usize,
}

/// Findings by kind, the most serious first, then by file.
#[derive(Default)]
struct Collected(BTreeMap<(FindingKind, String), FileFindings>);

impl Collected {
    fn take(&mut self, path: &str, line: u32, kind: FindingKind, text: impl FnOnce() -> String) {
        let found = self.0.entry((kind, path.to_owned())).or_default();
        if found.lines.len() + 1 < MAX_PER_FILE {
            found.lines.push((line, text()));
        } else {
            found.first_left_out = if found.left_out == 0 { line } else { found.first_left_out };
            found.left_out += 1;
        }
    }

    fn has(&self, kind: FindingKind) -> bool {
        self.0.keys().any(|(found, _)| *found == kind)
    }

    /// As many as are shown, by path and line, and how many lines are left out. When there is no room for all, every kind of
    /// every file keeps its first lines, as long as there is room for these.
    fn finish(self) -> (Vec<SkillFinding>, u64) {
        let total: usize = self.0.values().map(|found| found.lines.len() + usize::from(found.left_out > 0)).sum();
        let share =
            if total <= MAX_FINDINGS { MAX_PER_FILE } else { (MAX_FINDINGS / self.0.len()).clamp(2, MAX_PER_FILE) };
        // Each with the number of lines that it stands for.
        let mut all: Vec<(SkillFinding, usize)> = Vec::new();
        for ((kind, path), found) in self.0 {
            let total = found.lines.len() + found.left_out;
            let kept = if found.left_out == 0 && total <= share { total } else { share - 1 };
            let finding = |line: u32, text: String| SkillFinding { path: path.clone(), line, kind, text };
            let rest = found.lines.get(kept).map_or(found.first_left_out, |(line, _)| *line);
            all.extend(found.lines.into_iter().take(kept).map(|(line, text)| (finding(line, text), 1)));
            if kept < total {
                let more = total - kept;
                all.push((finding(rest, format!("and {more} more lines of this file")), more));
            }
        }
        // More kinds in more files than are shown: the most serious ones stay.
        let omitted: usize = all.iter().skip(MAX_FINDINGS).map(|(_, lines)| lines).sum();
        let mut shown: Vec<SkillFinding> = all.into_iter().take(MAX_FINDINGS).map(|(finding, _)| finding).collect();
        shown.sort_by(|a, b| (&a.path, a.line, a.kind).cmp(&(&b.path, b.line, b.kind)));
        (shown, omitted as u64)
    }
}
