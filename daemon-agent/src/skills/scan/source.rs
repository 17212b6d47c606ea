//! Where a skill comes from, as far as its place and its files say.

use std::path::Path;

use protocol::SkillSource;
use serde::Deserialize;

use super::{SkillPlace, read_up_to};
use crate::skills::bundle;

/// Largest record of where a bundle was fetched, bytes.
const MAX_ORIGIN_BYTES: u64 = 16 * 1024;

pub fn source_word(place: &SkillPlace) -> &'static str {
    if matches!(place, SkillPlace::Space(_)) { "space" } else { "local" }
}

/// Where a bundle was fetched, if a record says so; what it claims is shown, and decides nothing.
pub fn source_of(place: &SkillPlace, folder: &Path, is_single: bool) -> SkillSource {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Origin {
        slug: Option<String>,
        installed_version: Option<String>,
    }
    let usual = SkillSource { kind: source_word(place).to_owned(), ..SkillSource::default() };
    if is_single {
        return usual;
    }
    let record = bundle::open_beneath(folder, ".clawhub/origin.json").ok();
    let bytes = record.and_then(|(file, _)| read_up_to(file, MAX_ORIGIN_BYTES).ok().flatten());
    let origin = bytes.and_then(|bytes| serde_json::from_slice::<Origin>(&bytes).ok());
    let short = |text: String| protocol::text::head(&text, 80).to_owned();
    match origin {
        Some(Origin { slug: Some(slug), installed_version }) => SkillSource {
            kind: if usual.kind == "space" { usual.kind } else { "clawhub".to_owned() },
            reference: Some(short(slug)),
            version: installed_version.map(short),
        },
        _ => usual,
    }
}
