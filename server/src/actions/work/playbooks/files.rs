//! The playbooks of a viber: the Markdown files in `playbooks/` of its workspace, with what is wrong with them.

use protocol::{
    EntryKind, TeamId, ViberId,
    playbook::{self, MAX_PLAYBOOK_BYTES, Playbook, PlaybookError, StepViber},
};

use crate::{
    actions::files,
    db,
    domain::Viber,
    error::{Error, Result},
    state::Board,
};

/// Playbooks of one viber that are read.
const MAX_FILES: usize = 100;
/// The folder of playbooks, beneath the workspace.
pub(super) const FOLDER: &str = "playbooks";
/// Longest name of a playbook's file, bytes.
const MAX_NAME_BYTES: usize = 120;

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

/// The playbooks of a viber, by name.
pub async fn files(board: &Board, team: &TeamId, viber: &ViberId) -> Result<Vec<PlaybookFile>> {
    let known = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let listing = match files::list(board, team, viber, FOLDER, 0).await {
        Ok(folder) => folder.listing,
        Err(Error::NotFound) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let is_file = |entry: &&protocol::Entry| entry.kind == EntryKind::File;
    let names = listing.entries.iter().filter(is_file).filter_map(|entry| entry.name.strip_suffix(".md"));
    let mut found = Vec::new();
    for name in names.filter(|name| path(name).is_ok()).take(MAX_FILES) {
        match read(board, team, &known, name).await {
            Ok(file) => found.push(file),
            // It was removed meanwhile.
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// One playbook of a viber, as the Board last heard of it.
async fn read(board: &Board, team: &TeamId, viber: &Viber, name: &str) -> Result<PlaybookFile> {
    let contents = files::read(board, team, &viber.id, &path(name)?, None).await?;
    parsed(board, (team, viber), name, &contents).await
}

/// Where the playbook of this name lies.
pub(super) fn path(name: &str) -> Result<String> {
    let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && !name.contains('/');
    let path = format!("{FOLDER}/{name}.md");
    if is_name && protocol::path::file(&path).is_ok() { Ok(path) } else { Err(Error::NotFound) }
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
    let text = contents.text().map(str::to_owned);
    let mistake = |message: &str| vec![PlaybookError { line: 0, message: message.to_owned() }];
    let of = |text: String, playbook: Playbook, errors: Vec<PlaybookError>| PlaybookFile {
        name: name.to_owned(),
        path: path.clone(),
        hash: playbook::digest(&text),
        text,
        playbook,
        errors,
    };
    match text {
        Some(text) if text.len() <= MAX_PLAYBOOK_BYTES => {
            let (playbook, errors) = checked(board, team, viber, &text).await?;
            Ok(of(text, playbook, errors))
        }
        Some(_) => Ok(of(String::new(), Playbook::default(), mistake("a playbook has at most 256 KiB"))),
        None if contents.is_part() => {
            Ok(of(String::new(), Playbook::default(), mistake("a playbook has at most 256 KiB")))
        }
        None => Ok(of(String::new(), Playbook::default(), mistake("it is no text"))),
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
