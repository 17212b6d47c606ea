//! What the steps before a step produced is handed over to it, also across vibers: their files, and a file about each of them.

use std::collections::HashSet;

use futures_util::{StreamExt as _, stream};
use protocol::{TeamId, path::collision_key, text::head};

use crate::{
    actions::artifacts::{self, HandedArtifact},
    db::{self, TeamTx},
    domain::{
        Artifact, ArtifactOrigin, RunSnapshot, RunStep, StepPhase,
        artifact::file_name,
        playbook_run::goal::{HandedFiles, handed_file},
    },
    error::{Error, Result},
    state::Board,
};

/// Files that one step gets, as many as a message may have.
const MAX_FILES: usize = 64;
/// Steps that have a file of their own; beyond them one file tells of all.
const MAX_OWN_FILES: usize = 32;
/// Versions of artifacts of one step that are read to find the newest of each.
const MAX_VERSIONS_READ: u64 = 500;
/// Artifacts that are fetched at the same time.
const MAX_FETCHES: usize = 8;
/// How long after the last of the steps before it a step waits for files of vibers that are away, milliseconds.
const PATIENCE_MS: i64 = 10 * 60 * 1000;
/// Longest name of a file, bytes, before what tells it from others: file systems take 255.
const MAX_NAME_BYTES: usize = 200;
/// Longest ending of a name that is kept when the name is shortened, bytes.
const MAX_ENDING_BYTES: usize = 32;
/// The file that tells of all steps when they are many.
const ALL_STEPS: &str = "steps.md";

/// What lies before a step: files that the store has, and what they are called.
#[derive(Clone, Debug, Default)]
pub(super) struct Handover {
    pub files: Vec<HandedArtifact>,
    pub names: HandedFiles,
}

/// What a step before produced.
struct StepProducts {
    step: RunStep,
    /// What its task said in full.
    result: String,
    /// The newest version of each, without addresses.
    made: Vec<Artifact>,
    /// Files are waited for while its viber is away.
    is_waited_for: bool,
}

/// Brings together what a step gets. What cannot be had is named as missing. Fails with `QuotaExceeded` when the team has no
/// room for what is written here, with `Offline` while a viber is away that may be back in a moment, and with `Unavailable` while
/// the store is.
pub(super) async fn gather(board: &Board, team: &TeamId, now: &RunSnapshot, label: &str) -> Result<Handover> {
    let step = now.step(label).ok_or(Error::NotFound)?;
    let ends = step.after.iter().filter_map(|label| now.step(label)?.ended_at);
    let is_recent = ends.max().is_some_and(|end| board.clock.now().0 - end.0 < PATIENCE_MS);
    let mut before = Vec::new();
    {
        let mut tx = board.db.reader_of(team).await?;
        for label in &step.after {
            let step = now.step(label).ok_or(Error::NotFound)?;
            let products = products(&mut tx, step).await?;
            before.push(StepProducts { is_waited_for: is_recent && products.is_waited_for, ..products });
        }
    }
    let own_files = if before.len() <= MAX_OWN_FILES { before.len() } else { 1 };
    let mut room = MAX_FILES - own_files;
    let mut gathered = Handover::default();
    let mut texts = Vec::new();
    for products in before {
        let text = hand_on(board, team, products, &mut room, &mut gathered).await?;
        texts.push(text);
    }
    let texts = match texts.len() {
        count if count <= MAX_OWN_FILES => texts,
        _ => vec![(ALL_STEPS.to_owned(), texts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n\n"))],
    };
    for (name, text) in texts {
        gathered.names.attached.push(name.clone());
        gathered.files.push(artifacts::keep_text(board, team, name, text).await?);
    }
    Ok(gathered)
}

async fn products(tx: &mut TeamTx<'_>, step: &RunStep) -> Result<StepProducts> {
    let mut products =
        StepProducts { step: step.clone(), result: String::new(), made: Vec::new(), is_waited_for: false };
    let (Some(session), Some(task), StepPhase::Done) = (&step.session_id, &step.task_id, step.phase) else {
        return Ok(products);
    };
    let task = db::tasks::load(tx, task).await?;
    if let Some(task) = &task {
        // One that was revoked never comes back.
        products.is_waited_for = db::vibers::candidate(tx, &task.viber_id).await?.is_some();
    }
    products.result = task.and_then(|task| task.result).map(|result| result.text).unwrap_or_default();
    let mut names = HashSet::new();
    let all = db::artifacts::products(tx, session, MAX_VERSIONS_READ).await?;
    let own = all.into_iter().filter(|one| one.origin != ArtifactOrigin::Operator && !one.is_link());
    products.made = own.filter(|one| names.insert(one.name.clone())).collect();
    Ok(products)
}

/// Adds the files of a step to what is handed over, as many as there is room for. Returns the file about the step.
async fn hand_on(
    board: &Board,
    team: &TeamId,
    products: StepProducts,
    room: &mut usize,
    all: &mut Handover,
) -> Result<(String, String)> {
    let StepProducts { step, result, made, is_waited_for } = products;
    let mut names = HandedFiles::default();
    // What the playbook asked for is called as it is there.
    let called = |one: &Artifact| {
        let given = step.gives.iter().find(|given| one.is_file(given));
        given.and_then(|given| file_name(given)).unwrap_or_else(|| one.file_name())
    };
    let mut wanted = made.iter().map(|one| (one.id.clone(), called(one))).collect::<Vec<_>>();
    names.missing.extend(wanted.split_off(wanted.len().min(*room)).into_iter().map(|(_, name)| name));
    let fetches =
        wanted.into_iter().map(|(id, name)| async move { (name, artifacts::keep_version(board, team, &id).await) });
    let mut fetched = stream::iter(fetches).buffered(MAX_FETCHES);
    while let Some((name, kept)) = fetched.next().await {
        let kept = match kept {
            Err(Error::Offline { .. }) if !is_waited_for => None,
            kept => kept?,
        };
        let Some(file) = kept else {
            names.missing.push(name);
            continue;
        };
        let name = unique(name, &step.label, &all.names.attached);
        names.attached.push(name.clone());
        all.names.attached.push(name.clone());
        all.files.push(file.named(name));
        *room -= 1;
    }
    all.names.missing.extend(names.missing.iter().map(|name| format!("{name} of step {}", step.label)));
    Ok((format!("step-{}.md", step.label), handed_file(&step, &result, &names)))
}

/// The name of a file among those of several steps: one that every machine takes, and that none takes for another one.
fn unique(name: String, label: &str, taken: &[String]) -> String {
    let name = shortened(name);
    let taken: HashSet<String> = taken.iter().map(|name| collision_key(name)).collect();
    let is_free = |name: &String| !taken.contains(&collision_key(name));
    let key = collision_key(&name);
    if is_free(&name) && !key.starts_with("step-") && key != ALL_STEPS {
        return name;
    }
    let own = format!("of-step-{label}-{name}");
    let numbered = (2..).map(|n| format!("of-step-{label}-{n}-{name}"));
    std::iter::once(own).chain(numbered).find(is_free).unwrap_or(name)
}

/// The same name, or its beginning with its ending.
fn shortened(name: String) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    match ending.len() {
        1..=MAX_ENDING_BYTES => format!("{}.{ending}", head(&name, MAX_NAME_BYTES - 1 - ending.len()).trim_end()),
        _ => head(&name, MAX_NAME_BYTES).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME_BYTES, unique};

    #[test]
    fn files_of_several_steps_do_not_get_into_each_others_way() {
        let taken = ["a.md".to_owned(), "of-step-2-a.md".to_owned()];
        let named = |name: &str| unique(name.to_owned(), "2", &taken);
        assert_eq!(named("b.md"), "b.md");
        assert_eq!(named("a.md"), "of-step-2-2-a.md");
        assert_eq!(named("step-1.md"), "of-step-2-step-1.md", "the Board's own files are its own");
        assert_eq!(unique("a.md".to_owned(), "3", &taken), "of-step-3-a.md");
        // Also where capitals, or how a letter is composed, make no difference.
        for (name, named_as) in [
            ("A.md", "of-step-2-2-A.md"),
            ("Step-1.md", "of-step-2-Step-1.md"),
            ("STEPS.md", "of-step-2-STEPS.md"),
            ("steps.md.txt", "steps.md.txt"),
        ] {
            assert_eq!(named(name), named_as);
        }
    }

    #[test]
    fn a_long_name_is_one_that_vibers_take() {
        let long = format!("{}.csv", "\u{1f600}".repeat(116));
        let name = unique(long.clone(), "200aa", &[]);
        assert!(name.len() <= MAX_NAME_BYTES && name.ends_with("\u{1f600}.csv"), "{name}");
        let second = unique(long, "200aa", &[name]);
        assert!(second.len() <= 255 && second.starts_with("of-step-200aa-") && second.ends_with(".csv"), "{second}");
        assert_eq!(unique("x".repeat(300), "1", &[]).len(), MAX_NAME_BYTES);
    }
}
