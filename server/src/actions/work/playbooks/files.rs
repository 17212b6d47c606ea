//! The playbooks of a viber: the Markdown files in `playbooks/` of its workspace, with what is wrong with them.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use protocol::{
    EntryKind, TeamId, ViberId,
    playbook::{self, MAX_PLAYBOOK_BYTES, PLAYBOOK_FOLDER, Playbook, PlaybookError, StepViber},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    actions::files,
    db,
    domain::Viber,
    error::{Error, Result},
    state::Board,
};

/// Listings of the folder that are asked for: each has up to 2,000 entries. How long all behind the first one may take.
const MAX_LISTINGS: usize = 10;
const LISTINGS_TIMEOUT: Duration = Duration::from_secs(4);
/// How many playbooks are read at once, and how long all of a page may take.
const READS_AT_ONCE: usize = 4;
const FILES_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a folder's listing is good enough for the names in it, milliseconds, and how long a viber has to answer with another.
const NAMES_KEPT_MS: i64 = 30_000;
const NAMES_TIMEOUT: Duration = Duration::from_millis(500);
/// Other vibers whose agents are looked at for the steps of one playbook.
pub(super) const MAX_OTHER_VIBERS: usize = 16;

/// A playbook as it lies on a viber.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybookFile {
    /// Of the file, without its ending.
    pub name: String,
    /// Beneath the workspace.
    pub path: String,
    /// SHA-256 of the text, in hex.
    pub hash: String,
    pub text: String,
    /// What could be read of it.
    pub playbook: Playbook,
    /// What is wrong with it, in the order of lines; it runs only without any.
    pub errors: Vec<PlaybookError>,
}

impl PlaybookFile {
    /// A file that cannot be read, and why.
    fn unread(name: &str, path: String, why: &str) -> Self {
        let errors = vec![PlaybookError { line: 0, message: why.to_owned() }];
        let (text, playbook) = (String::new(), Playbook::default());
        Self { name: name.to_owned(), path, hash: playbook::digest(&text), text, playbook, errors }
    }
}

/// Some playbooks of a viber.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaybookFiles {
    pub files: Vec<PlaybookFile>,
    /// The last name, when there are more behind it.
    pub next: Option<String>,
    /// Entries of the folder whose names nobody knows here.
    pub unlisted: u64,
}

/// The names of a viber's playbooks, without looking into them: as they were listed a moment ago, else as they are now, or were
/// when the viber does not answer soon.
pub async fn playbook_names(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<String>> {
    let kept = db::listings::load(&mut board.db.reader_of(team).await?, viber, PLAYBOOK_FOLDER).await?;
    let oldest = board.clock.now().millis() - NAMES_KEPT_MS;
    let listing = match kept {
        Some((listing, at)) if at.millis() > oldest => Some(listing),
        kept => {
            let asked = tokio::time::timeout(NAMES_TIMEOUT, files::list(board, team, viber, PLAYBOOK_FOLDER, 0)).await;
            asked.ok().and_then(Result::ok).map(|folder| folder.listing).or(kept.map(|(listing, _)| listing))
        }
    };
    let named = listing.as_ref().map(listed).unwrap_or_default();
    Ok(named.into_iter().map(|(name, _)| name).collect())
}

/// The playbooks of a folder, by name, each with its path.
fn listed(listing: &protocol::Listing) -> Vec<(String, String)> {
    let files = listing.entries.iter().filter(|entry| entry.kind == EntryKind::File);
    let names = files.filter_map(|entry| entry.name.strip_suffix(".md"));
    let mut named: Vec<(String, String)> = names.filter_map(|name| Some((name.to_owned(), path(name).ok()?))).collect();
    named.sort_unstable();
    named
}

/// All playbooks of a viber's folder, by name, each with its path, and how many entries were not listed.
async fn all_listed(board: &Board, team: &TeamId, viber: &ViberId) -> Result<(Vec<(String, String)>, u64)> {
    let (mut named, mut from) = (Vec::new(), 0);
    let mut unlisted = 0;
    let mut until = None;
    for n in 0..MAX_LISTINGS {
        let asked = files::list(board, team, viber, PLAYBOOK_FOLDER, from);
        // One that answers ever more slowly holds nobody up.
        let answer = match until {
            None => asked.await,
            Some(until) => match timeout_at(until, asked).await {
                Ok(answer) => answer,
                Err(_) => break,
            },
        };
        until.get_or_insert_with(|| Instant::now() + LISTINGS_TIMEOUT);
        let listing = match answer {
            Ok(folder) => folder.listing,
            Err(Error::NotFound) => break,
            // It has gone away meanwhile, or it is away and its first listing is kept alone.
            Err(Error::Conflict { .. }) if n > 0 => break,
            Err(error) => return Err(error),
        };
        named.extend(listed(&listing));
        from += listing.entries.len() as u64;
        unlisted = listing.omitted;
        if unlisted == 0 || listing.entries.is_empty() {
            break;
        }
    }
    named.sort_unstable();
    named.dedup();
    Ok((named, unlisted))
}

/// At most `limit` of them, by name, whose names come after `after`. One that cannot be read says why, and hides no other.
pub async fn files_after(
    board: &Board,
    (team, viber): (&TeamId, &ViberId),
    after: &str,
    limit: usize,
) -> Result<PlaybookFiles> {
    let known = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let (mut named, unlisted) = all_listed(board, team, viber).await?;
    named.retain(|(name, _)| name.as_str() > after);
    let is_more = named.len() > limit;
    named.truncate(limit);
    let next = named.last().filter(|_| is_more).map(|(name, _)| name.clone());
    let (known, end) = (&known, Instant::now() + FILES_TIMEOUT);
    let reads = named.into_iter().map(|(name, path)| async move {
        let read = timeout_at(end, read(board, team, known, &name)).await;
        match read {
            Ok(Ok(file)) => Ok(Some(file)),
            // It was removed meanwhile.
            Ok(Err(Error::NotFound)) => Ok(None),
            Ok(Err(error)) => why(error).map(|why| Some(PlaybookFile::unread(&name, path, &why))),
            Err(_) => Ok(Some(PlaybookFile::unread(&name, path, "the viber did not answer in time"))),
        }
    });
    let mut reads = stream::iter(reads.collect::<Vec<_>>()).buffered(READS_AT_ONCE);
    let mut found = Vec::new();
    while let Some(read) = reads.next().await {
        found.extend(read?);
    }
    Ok(PlaybookFiles { files: found, next, unlisted })
}

/// One of them, as it lies there now, or as it was seen last while the viber is away.
pub async fn file(board: &Board, team: &TeamId, viber: &ViberId, name: &str) -> Result<PlaybookFile> {
    let known = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    read_anew(board, team, &known, name).await
}

/// Why one file cannot be read, if that is no reason for the others.
fn why(error: Error) -> Result<String> {
    match error {
        Error::Unacceptable { .. }
        | Error::Conflict { .. }
        | Error::TooLarge(_)
        | Error::Gone(_)
        | Error::Offline { .. } => Ok(error.to_string()),
        error => Err(error),
    }
}

/// One playbook of a viber, as the Board last heard of it.
async fn read(board: &Board, team: &TeamId, viber: &Viber, name: &str) -> Result<PlaybookFile> {
    let contents = files::read(board, team, &viber.id, &path(name)?, None).await?;
    parsed(board, (team, viber), name, &contents).await
}

/// Where the playbook of this name lies.
pub(super) fn path(name: &str) -> Result<String> {
    playbook::file_path(name).ok_or(Error::NotFound)
}

/// One playbook of a viber, as it lies there now.
pub(super) async fn read_anew(board: &Board, team: &TeamId, viber: &Viber, name: &str) -> Result<PlaybookFile> {
    let contents = files::read_anew(board, team, &viber.id, &path(name)?).await?;
    parsed(board, (team, viber), name, &contents).await
}

async fn parsed(
    board: &Board,
    (team, viber): (&TeamId, &Viber),
    name: &str,
    contents: &files::FileContents,
) -> Result<PlaybookFile> {
    let path = path(name)?;
    match contents.text() {
        Some(text) if text.len() <= MAX_PLAYBOOK_BYTES => {
            let (playbook, errors) = checked(board, team, viber, text).await?;
            let (text, hash) = (text.to_owned(), playbook::digest(text));
            Ok(PlaybookFile { name: name.to_owned(), path, hash, text, playbook, errors })
        }
        None if !contents.is_part() => Ok(PlaybookFile::unread(name, path, "it is no text")),
        _ => Ok(PlaybookFile::unread(name, path, "a playbook has at most 256 KiB")),
    }
}

/// A playbook as its text has it, with its mistakes. Agents are looked for where their steps run, as far as that is known.
pub(super) async fn checked(
    board: &Board,
    team: &TeamId,
    viber: &Viber,
    text: &str,
) -> Result<(Playbook, Vec<PlaybookError>)> {
    let (playbook, mut errors) = playbook::parse(text);
    let of = |target: Option<&str>| {
        let runs_there = |step: &&playbook::PlaybookStep| match (&step.viber, target) {
            (None, None) => true,
            (Some(StepViber::Name(name)), Some(other)) => name == other,
            _ => false,
        };
        Playbook { steps: playbook.steps.iter().filter(runs_there).cloned().collect(), ..Playbook::default() }
    };
    let mut others: Vec<&str> = playbook.steps.iter().filter_map(|step| named(step.viber.as_ref())).collect();
    others.sort_unstable();
    others.dedup();
    others.truncate(MAX_OTHER_VIBERS);
    let ids = |agents: &[protocol::AgentInfo]| agents.iter().map(|agent| agent.id.clone()).collect::<Vec<_>>();
    let mut places = vec![(None, ids(&viber.agents))];
    for other in others {
        let known = db::vibers::candidate_named(&mut board.db.reader_of(team).await?, other).await?;
        places.extend(known.map(|known| (Some(other), ids(&known.agents))));
    }
    for (target, agents) in places {
        // A daemon that has not told its agents may have them all.
        let agents: Vec<&str> = agents.iter().map(String::as_str).collect();
        if !agents.is_empty() {
            errors.extend(of(target).unknown_agents(&agents));
        }
    }
    errors.sort_by_key(|error| error.line);
    Ok((playbook, errors))
}

fn named(target: Option<&StepViber>) -> Option<&str> {
    match target {
        Some(StepViber::Name(name)) => Some(name),
        _ => None,
    }
}
