//! `playbook`: what playbooks this machine has, what is wrong with them, and runs of them, which the Board does.

use std::collections::BTreeMap;

use clap::Subcommand;
use protocol::{
    EntryKind,
    playbook::{MAX_PLAYBOOK_BYTES, PLAYBOOK_FOLDER, Playbook, PlaybookError, PlaybookInput, digest, file_path, parse},
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    adapters::board::{
        Credential,
        credential::{RunRequest, StartedRun},
    },
    cli::{
        CliError,
        console::{Tone, remark, say_toned},
    },
    config::{ConfigSnapshot, Variables},
    home::Home,
    workspace::{Workspace, WorkspaceError},
};

/// How the names of playbooks' files end.
const SUFFIX: &str = ".md";

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PlaybookVerb {
    /// List the playbooks of this machine, with what is wrong in them.
    #[command(after_help = "Example: daemon-agent playbook list")]
    List {
        /// Print a JSON object a playbook.
        #[arg(long)]
        json: bool,
    },
    /// Start a run of a playbook on the Board.
    #[command(after_help = "Example: daemon-agent playbook run release-feature version=1.2.0")]
    Run {
        /// The playbook: its file in workspace/playbooks, without .md.
        name: String,
        /// Its inputs, each as NAME=VALUE.
        inputs: Vec<String>,
        /// Run the steps as they are written, without an agent that supervises them.
        #[arg(long)]
        unsupervised: bool,
        /// Print the run as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(in crate::cli) async fn act(home: &Home, verb: PlaybookVerb) -> Result<(), CliError> {
    match verb {
        PlaybookVerb::List { json } => list(home, json).await,
        PlaybookVerb::Run { name, inputs, unsupervised, json } => {
            let inputs = read_inputs(&inputs)?;
            let started = run(home, &name, &inputs, !unsupervised).await?;
            if json {
                say!("{}", json!(started));
            } else {
                say!("{} of {name} is started: {}", started.run_id, started.url);
            }
            Ok(())
        }
    }
}

/// A file of the folder.
struct FoundPlaybook {
    /// Without its ending.
    name: String,
    /// Beneath the home.
    path: String,
    text: String,
    playbook: Playbook,
    errors: Vec<PlaybookError>,
}

impl FoundPlaybook {
    /// Mistakes in it as `FILE:LINE: message`.
    fn located(&self, errors: &[PlaybookError]) -> Vec<String> {
        let located = |PlaybookError { line, message }: &PlaybookError| match line {
            0 => format!("{}: {message}", self.path),
            line => format!("{}:{line}: {message}", self.path),
        };
        errors.iter().map(located).collect()
    }
}

/// The playbooks of the machine, by their names, and how many entries of their folder were not looked at because there are too
/// many. Blocks.
fn read_all(home: &Home) -> Result<(Vec<FoundPlaybook>, u64), WorkspaceError> {
    let workspace = Workspace::open(home);
    let listing = match workspace.list(PLAYBOOK_FOLDER, 0) {
        Err(WorkspaceError::Missing) => return Ok((Vec::new(), 0)),
        listing => listing?,
    };
    let agents = agents(home);
    let files = listing.entries.iter().filter(|entry| entry.kind != EntryKind::Folder);
    let names = files.filter_map(|entry| entry.name.strip_suffix(SUFFIX));
    // Hidden files are drafts of editors.
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty() && !name.starts_with('.')).collect();
    names.sort_unstable();
    Ok((names.into_iter().map(|name| read(&workspace, name, &agents)).collect(), listing.omitted))
}

/// The playbook of this name, if there is one. Blocks.
fn read_one(home: &Home, name: &str) -> Option<FoundPlaybook> {
    let workspace = Workspace::open(home);
    let path = file_path(name)?;
    match workspace.beginning(&path, 0) {
        Err(WorkspaceError::Missing | WorkspaceError::Folder) => None,
        _ => Some(read(&workspace, name, &agents(home))),
    }
}

/// The ids of this machine's agents.
fn agents(home: &Home) -> Vec<String> {
    ConfigSnapshot::read(home, &Variables::of_process()).agents.into_keys().collect()
}

/// Why there is no text to be read: the line, and what is wrong.
type NoText = (u32, String);

fn text_of(workspace: &Workspace, name: &str) -> Result<String, NoText> {
    let of_file = |why: String| -> NoText { (0, why) };
    let path = file_path(name).ok_or_else(|| of_file("no playbook can have this name".to_owned()))?;
    let most = MAX_PLAYBOOK_BYTES as u64;
    // Over no symbolic link: a run sends the text to the Board.
    let (bytes, _) = workspace.beginning(&path, most + 1).map_err(|error| of_file(error.to_string()))?;
    if bytes.len() > MAX_PLAYBOOK_BYTES {
        return Err((1, format!("a playbook has at most {} KiB", most / 1024)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = good.filter(|byte| **byte == b'\n').count() + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), "the line is not UTF-8 text".to_owned())
    })
}

fn read(workspace: &Workspace, name: &str, agents: &[String]) -> FoundPlaybook {
    let text = text_of(workspace, name);
    let (playbook, mut errors) = text.as_ref().map(|text| parse(text)).unwrap_or_default();
    // Agents of other vibers are known there.
    let here = Playbook {
        steps: playbook.steps.iter().filter(|step| step.viber.is_none()).cloned().collect(),
        ..Playbook::default()
    };
    let known: Vec<&str> = agents.iter().map(String::as_str).collect();
    errors.extend(here.unknown_agents(&known));
    errors.sort_by_key(|error| error.line);
    let text = text.unwrap_or_else(|(line, message)| {
        errors.push(PlaybookError { line, message });
        String::new()
    });
    let path = format!("workspace/{PLAYBOOK_FOLDER}/{name}{SUFFIX}");
    FoundPlaybook { name: name.to_owned(), path, text, playbook, errors }
}

/// What `reading` finds in the workspace of the machine.
async fn found<T: Send + 'static>(
    home: &Home,
    reading: impl FnOnce(&Home) -> T + Send + 'static,
) -> Result<T, CliError> {
    let own = home.clone();
    let reading = tokio::task::spawn_blocking(move || reading(&own));
    reading.await.map_err(|error| CliError::Failed(error.to_string()))
}

async fn list(home: &Home, json: bool) -> Result<(), CliError> {
    let read = found(home, read_all).await?;
    let (all, omitted) =
        read.map_err(|error| CliError::Failed(format!("the playbooks of this machine cannot be read: {error}")))?;
    if omitted > 0 {
        remark(format_args!("{omitted} entries of workspace/{PLAYBOOK_FOLDER} are not looked at: there are too many"));
    }
    for one in &all {
        let Playbook { goal, inputs, steps, .. } = &one.playbook;
        if json {
            let line = json!({ "name": one.name, "path": one.path, "hash": digest(&one.text), "goal": goal, "inputs": inputs,
                "steps": steps, "errors": one.errors });
            say!("{line}");
        } else {
            show(one);
        }
    }
    if all.is_empty() && !json {
        say!("No playbooks: put files such as NAME.md into {}.", home.workspace().join(PLAYBOOK_FOLDER).display());
    }
    match all.iter().filter(|one| !one.errors.is_empty()).count() {
        0 => Ok(()),
        1 => Err(CliError::Failed("a playbook cannot run".to_owned())),
        n => Err(CliError::Failed(format!("{n} playbooks cannot run"))),
    }
}

fn show(one: &FoundPlaybook) {
    let Playbook { goal, inputs, steps, .. } = &one.playbook;
    let (tone, word) = if one.errors.is_empty() { (Tone::Good, "good") } else { (Tone::Bad, "wrong") };
    let count = if steps.len() == 1 { "1 step".to_owned() } else { format!("{} steps", steps.len()) };
    say_toned(&format!("{} (", one.name), tone, word, format_args!(") {count}"));
    if let Some(first) = goal.lines().next() {
        say!("    {first}");
    }
    for PlaybookInput { name, text, required, .. } in inputs {
        let what = if text.is_empty() { String::new() } else { format!(": {text}") };
        let is_optional = if *required { "" } else { " (optional)" };
        say!("    {name}{what}{is_optional}");
    }
    one.located(&one.errors).iter().for_each(|mistake| say!("    {mistake}"));
}

async fn run(
    home: &Home,
    name: &str,
    inputs: &BTreeMap<String, String>,
    supervised: bool,
) -> Result<StartedRun, CliError> {
    let credential = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    let credential = credential.ok_or_else(|| {
        CliError::Configuration(format!("{} has not joined a Board: it runs playbooks", home.root().display()))
    })?;
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    let named = name.to_owned();
    let Some(one) = found(home, move |home| read_one(home, &named)).await? else {
        let why = format!("there is no playbook {name:?}: daemon-agent playbook list names those that there are");
        return Err(CliError::Failed(why));
    };
    if !one.errors.is_empty() {
        one.located(&one.errors).iter().for_each(|mistake| remark(format_args!("{mistake}")));
        return Err(CliError::Failed(format!("the playbook {name} cannot run")));
    }
    if let Err(wrong) = one.playbook.fill(inputs) {
        let wrong = one.located(&wrong).join("; ");
        return Err(CliError::Usage(format!("{wrong} (inputs are given as NAME=VALUE)")));
    }
    let request = RunRequest { playbook: name, text: &one.text, inputs, supervised };
    credential.start_run(&request, &Uuid::now_v7().to_string()).await.map_err(CliError::Failed)
}

/// Each `NAME=VALUE`.
fn read_inputs(arguments: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let mut inputs = BTreeMap::new();
    for argument in arguments {
        let (name, value) = argument
            .split_once('=')
            .ok_or_else(|| CliError::Usage(format!("{argument:?} is not of the form NAME=VALUE")))?;
        if inputs.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(CliError::Usage(format!("the input {name:?} is given twice")));
        }
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::{
        cli::{CommandLine, Verb},
        config::ProviderApi,
        model::scripted::{ScriptedProvider, ScriptedReply},
    };

    fn home_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        fs::create_dir_all(home.workspace().join("playbooks/runs")).expect("made");
        fs::write(home.agents().join("coder.yaml"), "model: echo/1\n").expect("written");
        for (name, text) in files {
            fs::write(home.workspace().join("playbooks").join(name), text).expect("written");
        }
        (folder, home)
    }

    fn given(inputs: &[&str]) -> BTreeMap<String, String> {
        read_inputs(&inputs.iter().map(|input| (*input).to_owned()).collect::<Vec<_>>()).expect("pairs")
    }

    fn join(home: &Home, board: &str) {
        let credential = json!({ "viberId": "vib_00000000000070008000000000000001", "credential": "vbc_x",
            "boardUrl": board });
        let credential: Credential = serde_json::from_value(credential).expect("a credential");
        credential.write(home).expect("written");
    }

    const GOOD: &str = "# Playbook: release\n## Goal\nRelease <version>.\n## Steps\n1. [Coder] Do it.\n\
        2. [press] Print it.\n   - Viber: press-1\n";

    #[test]
    fn a_start_is_read_from_the_command_line() {
        let line = ["daemon-agent", "playbook", "run", "release", "version=1=2", "note=", "--unsupervised"];
        let Verb::Playbook(PlaybookVerb::Run { name, inputs, unsupervised, json }) =
            CommandLine::try_parse_from(line).expect("good").command
        else {
            panic!("a start")
        };
        assert!(name == "release" && unsupervised && !json);
        let inputs = read_inputs(&inputs).expect("pairs");
        assert_eq!((inputs["version"].as_str(), inputs["note"].as_str()), ("1=2", ""));
        for wrong in [vec!["version"], vec!["a=1", "a=2"]] {
            let wrong: Vec<String> = wrong.into_iter().map(str::to_owned).collect();
            assert!(matches!(read_inputs(&wrong), Err(CliError::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn the_files_of_the_folder_are_listed_with_their_mistakes() {
        let (folder, home) = home_with(&[
            ("release.md", GOOD),
            ("b.md", "# Playbook: b\n## Goal\nx\n## Steps\n1. [nobody] x\n3. [coder] y\n"),
            ("notes.txt", "no playbook"),
        ]);
        fs::write(home.workspace().join("playbooks/c.md"), b"# Playbook: c\n\xff\xfe").expect("written");
        fs::write(folder.path().join("secret.md"), GOOD).expect("written");
        std::os::unix::fs::symlink(folder.path().join("secret.md"), home.workspace().join("playbooks/d.md"))
            .expect("linked");
        fs::hard_link(folder.path().join("secret.md"), home.workspace().join("playbooks/e.md")).expect("linked");
        let (all, omitted) = read_all(&home).expect("readable");
        let names: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.errors.len())).collect();
        assert_eq!((names, omitted), (vec![("b", 2), ("c", 1), ("d", 1), ("e", 0), ("release", 0)], 0));
        let mistakes = all[0].located(&all[0].errors);
        assert!(mistakes[0].starts_with("workspace/playbooks/b.md:5: there is no agent"), "{mistakes:?}");
        assert!(mistakes[1].starts_with("workspace/playbooks/b.md:6: expected the step 2"), "{mistakes:?}");
        assert_eq!(all[1].located(&all[1].errors), ["workspace/playbooks/c.md:2: the line is not UTF-8 text"]);
        assert!(all[2].text.is_empty(), "what lies elsewhere is not read");
        assert_eq!(all[3].text, GOOD, "a file with a second name lies here, as for the Board");
        assert_eq!((all[4].playbook.inputs[0].name.as_str(), all[4].text.as_str()), ("version", GOOD));
        let (_folder, empty) = home_with(&[]);
        fs::remove_dir_all(empty.workspace().join("playbooks")).expect("removed");
        assert!(read_all(&empty).expect("none").0.is_empty());
    }

    #[test]
    fn files_that_are_none_are_mistakes_and_hold_up_nobody() {
        let (_folder, home) = home_with(&[(".draft.md", "x"), (".md", "x"), ("a\u{202e}b.md", GOOD)]);
        let folder = home.workspace().join("playbooks");
        fs::write(folder.join("large.md"), "x".repeat(MAX_PLAYBOOK_BYTES + 1)).expect("written");
        fs::create_dir(folder.join("folder.md")).expect("made");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe.md"), mode).expect("a pipe");
        let (all, _) = read_all(&home).expect("readable");
        let mistakes: Vec<String> = all.iter().flat_map(|one| one.located(&one.errors)).collect();
        let expected = [
            "workspace/playbooks/a\u{202e}b.md: no playbook can have this name",
            "workspace/playbooks/large.md:1: a playbook has at most 256 KiB",
            "workspace/playbooks/pipe.md: it is neither a file nor a folder",
        ];
        assert_eq!(mistakes, expected);
        assert!(read_one(&home, "folder").is_none() && read_one(&home, "none").is_none());
        assert!(read_one(&home, "pipe").is_some_and(|one| one.text.is_empty()));
        fs::remove_dir_all(&folder).expect("removed");
        fs::write(&folder, "a file").expect("written");
        assert!(matches!(read_all(&home), Err(WorkspaceError::NoFolder)));
    }

    #[tokio::test]
    async fn what_cannot_run_is_said_before_the_board_is_asked() {
        let (_folder, home) = home_with(&[("release.md", GOOD), ("bad.md", "nothing")]);
        let why = run(&home, "release", &given(&[]), true).await.expect_err("it has not joined");
        assert!(matches!(&why, CliError::Configuration(why) if why.contains("has not joined")), "{why}");
        join(&home, "http://127.0.0.1:1");
        for (name, inputs, word) in [
            ("other", given(&[]), "no playbook \"other\""),
            ("runs/x", given(&[]), "no playbook"),
            ("../playbooks/release", given(&[]), "no playbook"),
            ("", given(&[]), "no playbook"),
            ("bad", given(&[]), "cannot run"),
            ("release", given(&[]), "workspace/playbooks/release.md:3: the input `version` is missing"),
            ("release", given(&["version=1\n2"]), "release.md:3: the input `version` has a line end"),
            ("release.md", given(&["version=1", "more=2"]), "no input \"more\""),
        ] {
            let why = run(&home, name, &inputs, true).await.expect_err(word).to_string();
            assert!(why.contains(word), "{why}");
        }
    }

    #[tokio::test]
    async fn a_run_is_started_once_however_often_the_board_is_asked() {
        let (_folder, home) = home_with(&[("release.md", GOOD)]);
        let run_id = "run_00000000000070008000000000000006";
        let page = format!("/t/home/playbook-runs/{run_id}");
        let endpoint = ScriptedProvider::start(vec![
            ScriptedReply::refusal(503, r#"{"title":"The Board is starting"}"#),
            ScriptedReply::refusal(201, &json!({ "runId": run_id, "url": page }).to_string()),
        ])
        .await;
        let board = endpoint.provider(ProviderApi::Ollama).base_url;
        join(&home, &board);
        let started = run(&home, "release", &given(&["version=1.2"]), false).await.expect("started");
        assert_eq!((started.run_id.as_str(), started.url), (run_id, format!("{board}{page}")));
        let seen = endpoint.seen();
        let expected =
            json!({ "playbook": "release", "text": GOOD, "inputs": { "version": "1.2" }, "supervised": false });
        for request in &seen {
            assert_eq!((request.path.as_str(), &request.body), ("/api/daemon/playbook-runs", &expected));
            assert_eq!(request.headers["authorization"], "Bearer vbc_x");
        }
        let keys: Vec<&String> = seen.iter().map(|request| &request.headers["idempotency-key"]).collect();
        assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{keys:?}");
    }

    #[tokio::test]
    async fn what_the_board_refuses_is_said_in_its_words() {
        let (_folder, home) = home_with(&[("release.md", GOOD)]);
        for (status, body, word) in [
            (
                422,
                r#"{"title":"No","detail":"there is no agent press","code":"bad_playbook"}"#,
                "there is no agent press",
            ),
            (403, r#"{"title":"Not allowed"}"#, "Not allowed"),
            (401, "{}", "does not know this viber"),
            (404, "no such page", "may be older"),
            (418, "", "answers 418"),
            (201, "{}", "cannot be parsed"),
        ] {
            let endpoint = ScriptedProvider::start(vec![ScriptedReply::refusal(status, body)]).await;
            join(&home, &endpoint.provider(ProviderApi::Ollama).base_url);
            let why = run(&home, "release", &given(&["version=1"]), true).await.expect_err(word).to_string();
            assert!(why.contains(word) && endpoint.seen().len() == 1, "{why}");
        }
    }
}
