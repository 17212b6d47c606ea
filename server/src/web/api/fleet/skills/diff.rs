//! What differs between two versions of a skill.

use std::time::Duration;

use axum::{Json, extract::State};
use protocol::SkillId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    actions::skills,
    domain::skills::{PermissionChanges, SkillBundle, SkillDiff, SkillFileChange, SkillFileChangeKind},
    error::{Error, Result},
    state::Board,
    web::{
        AsViewer, Rejection,
        api::{Answers, query::StrictQuery},
        extract::Id,
    },
};

/// How long the texts of two versions are compared before the rest counts as changed.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes of the differences of all files: whoever reads the answer slowly keeps it in memory.
const MAX_DIFF_BYTES: usize = 2 * 1024 * 1024;

/// The version that another one is compared with.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    from: SkillId,
}

/// What differs between two versions.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillDifference {
    /// What is declared or found in one of them only.
    permissions: PermissionChanges,
    files: Vec<FileDifference>,
}

/// One file of two versions.
#[derive(Debug, Serialize, ToSchema)]
pub struct FileDifference {
    #[serde(flatten)]
    file: SkillFileChange,
    /// A unified diff, where both are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// Whether there is a diff for which this answer has no room: read both files.
    omitted: bool,
}

/// Compares this version with the one named by `from`.
#[utoipa::path(get, path = "/api/v1/skills/{id}/diff", operation_id = "skills.diff", tag = "skills", params(("id" = SkillId, Path), DiffQuery),
    responses((status = 200, body = SkillDifference), Answers))]
pub async fn diff(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SkillId>,
    StrictQuery(query): StrictQuery<DiffQuery>,
) -> Result<Json<SkillDifference>, Rejection> {
    let team = &caller.team.id;
    let (old, before) = skills::with_contents(&board, team, &query.from).await?;
    let (new, now) = skills::with_contents(&board, team, &id).await?;
    let _turn = skills::turn(team).await?;
    let (old, new) = (skills::bundle(&board, team, &old).await?, skills::bundle(&board, team, &new).await?);
    let work = tokio::task::spawn_blocking(move || {
        let SkillDiff { permissions, files } =
            SkillDiff::between((&old, &before.permissions), (&new, &now.permissions));
        SkillDifference { permissions, files: compared((&old, &new), files, DIFF_TIMEOUT) }
    });
    Ok(Json(work.await.map_err(|error| Error::Internal(error.to_string()))?))
}

/// The differences of all files, found within about `timeout` however many there are.
fn compared(
    bundles: (&SkillBundle, &SkillBundle),
    files: Vec<SkillFileChange>,
    timeout: Duration,
) -> Vec<FileDifference> {
    let differs = |file: &&SkillFileChange| file.text && file.change != SkillFileChangeKind::Same;
    let count = files.iter().filter(differs).count().max(1);
    let each = timeout / u32::try_from(count).unwrap_or(u32::MAX);
    let mut room = MAX_DIFF_BYTES;
    let compare = |file: SkillFileChange| {
        if !differs(&&file) {
            return FileDifference { file, diff: None, omitted: false };
        }
        let diff = Some(unified(bundles, &file.path, each)).filter(|diff| diff.len() <= room);
        room -= diff.as_ref().map_or(0, String::len);
        FileDifference { omitted: diff.is_none(), file, diff }
    };
    files.into_iter().map(compare).collect()
}

/// The difference of a file's texts.
fn unified((old, new): (&SkillBundle, &SkillBundle), path: &str, timeout: Duration) -> String {
    let texts = [old, new].map(|bundle| bundle.text(path).unwrap_or_default());
    let diff = similar::TextDiff::configure().timeout(timeout).diff_lines(texts[0], texts[1]);
    diff.unified_diff().header(path, path).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::domain::skills::SkillFileMode;

    const MAIN: &str = "---\nname: notes\ndescription: Keeps notes\n---\nBody\n";

    /// A skill with so many files, whose texts `text` makes.
    fn bundle(count: usize, text: impl Fn(usize) -> String) -> SkillBundle {
        let main = ("SKILL.md".to_owned(), SkillFileMode::Plain, MAIN.as_bytes().to_vec());
        let others = (0..count).map(|n| (format!("{n:03}.txt"), SkillFileMode::Plain, text(n).into_bytes()));
        SkillBundle::from_files(others.chain([main])).expect("a skill")
    }

    fn difference(old: &SkillBundle, new: &SkillBundle, timeout: Duration) -> Vec<FileDifference> {
        let none = Default::default();
        compared((old, new), SkillDiff::between((old, &none), (new, &none)).files, timeout)
    }

    /// Lines of a few kinds, in an order that seems to have none: finding the least difference of two takes long.
    fn scattered(seed: usize) -> String {
        let next = |last: &usize| Some(last.wrapping_mul(1_103_515_245).wrapping_add(12_345) & 0x7fff_ffff);
        std::iter::successors(Some(seed), next).take(20_000).map(|n| format!("{}\n", (n >> 16) & 7)).collect()
    }

    #[test]
    fn however_many_files_differ_they_are_compared_within_one_time_limit() {
        let (old, new) = (bundle(40, scattered), bundle(40, |n| scattered(n + 1_000)));
        let begun = Instant::now();
        let files = difference(&old, &new, DIFF_TIMEOUT);
        // Each by itself would take its second.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let told = files.iter().filter(|file| file.diff.as_deref().is_some_and(|diff| diff.starts_with("--- ")));
        assert!(told.count() > 10, "they are told all the same");
    }

    #[test]
    fn an_answer_has_room_for_so_much_and_says_what_it_leaves_out() {
        let large = "x\n".repeat(400 * 1024);
        let old = bundle(5, |_| String::new());
        let new = bundle(5, |n| if n < 4 { large.clone() } else { "y\n".to_owned() });
        let files = difference(&old, &new, DIFF_TIMEOUT);
        let told: usize = files.iter().filter_map(|file| file.diff.as_ref()).map(String::len).sum();
        assert!(told <= MAX_DIFF_BYTES && told > MAX_DIFF_BYTES / 3, "{told}");
        let of = |path: &str| files.iter().find(|file| file.file.path == path).expect("there");
        assert!(of("000.txt").diff.is_some() && !of("000.txt").omitted);
        assert!(of("003.txt").diff.is_none() && of("003.txt").omitted);
        assert!(of("004.txt").diff.as_deref().is_some_and(|diff| diff.contains("+y")), "what fits comes along");
        assert!(of("SKILL.md").diff.is_none() && !of("SKILL.md").omitted, "it is the same");
    }
}
