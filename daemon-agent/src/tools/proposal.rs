//! What a call is about, found out without doing any of it: what rules and people decide about.

use std::{path::PathBuf, time::Duration};

use protocol::AffectedFile;
use serde_json::Value;

use super::{
    INTERNAL_FAILURE, NO_RESPONSE, ToolErrorKind, ToolFailure, Toolbox, edit,
    paths::{RootKind, Roots},
    roots, shell,
};

/// A call that was not made.
#[derive(Debug)]
pub struct CallProposal {
    /// The folder that it would run in.
    pub cwd: PathBuf,
    pub subject: ProposalSubject,
    /// Names of the variables in a command's environment, sorted.
    pub variables: Vec<String>,
    /// The files that it would write, as they are now.
    pub files: Vec<AffectedFile>,
    /// The command in full, or the changes of a file as a diff; empty for other tools.
    pub preview: String,
    /// The digest of the skill whose script would run.
    pub skill: Option<String>,
}

/// What a call was looked at for: it does nothing in another folder, to another path or to other files.
#[derive(Clone, Debug)]
pub struct CallBounds {
    /// The folder that it runs in.
    pub cwd: PathBuf,
    /// The path that it names, without links.
    pub path: Option<PathBuf>,
    /// The files that it may write, if they still are as they were.
    pub files: Vec<AffectedFile>,
    /// The digest of the skill whose script it runs.
    pub skill: Option<String>,
}

impl CallProposal {
    /// What runs in this folder, and is about nothing else of which anything is known.
    pub fn in_folder(cwd: PathBuf) -> Self {
        Self {
            cwd,
            subject: ProposalSubject::Other,
            variables: Vec::new(),
            files: Vec::new(),
            preview: String::new(),
            skill: None,
        }
    }

    /// What the call is bound to, when it is made.
    pub fn bounds(&self) -> CallBounds {
        let path = match &self.subject {
            ProposalSubject::File(file) => Some(PathBuf::from(&file.absolute)),
            ProposalSubject::Command(_) | ProposalSubject::Other => None,
        };
        CallBounds { cwd: self.cwd.clone(), path, files: self.files.clone(), skill: self.skill.clone() }
    }
}

/// What rules can say something about.
#[derive(Debug)]
pub enum ProposalSubject {
    /// For `sh -c`.
    Command(String),
    File(ProposedFile),
    Other,
}

/// A file or a folder that a call names, without links.
#[derive(Debug)]
pub struct ProposedFile {
    pub absolute: String,
    /// Beneath the space, or the workspace, that it lies in.
    pub inside: Option<String>,
    pub area: FileArea,
}

/// Where a file lies, as seen by its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileArea {
    Space,
    /// The folder of its own session, in the workspace.
    Session,
    Elsewhere,
}

impl Toolbox {
    /// What the call is about; `Err` is what the call itself would fail with.
    pub async fn propose(&self, tool: &str, args: &Value) -> Result<CallProposal, ToolFailure> {
        if tool == "shell" {
            let command = shell::propose(self, args)?;
            return Ok(CallProposal {
                cwd: command.cwd,
                preview: command.line.clone(),
                subject: ProposalSubject::Command(command.line),
                variables: command.variables,
                files: Vec::new(),
                skill: None,
            });
        }
        if let Some(skill) = self.skill_tool(tool) {
            return shell::propose_skill(self, &skill, args).await;
        }
        let protected = self.protected_paths();
        let session = self.plan.as_ref().map(|plan| plan.folder().to_owned());
        let (context, tool, args, readable) = (self.context.clone(), tool.to_owned(), args.clone(), self.readable());
        let looking = tokio::task::spawn_blocking(move || {
            let roots = roots(&context).with_readable(readable, args["path"].as_str()).with_protected_paths(protected);
            look(&roots, session.as_deref(), &tool, &args)
        });
        let bound = Duration::from_secs(self.context.agent.timeouts.default + 5);
        tokio::select! {
            biased;
            found = looking => found.unwrap_or_else(|_| Err(ToolErrorKind::Unknown.because(INTERNAL_FAILURE))),
            () = self.context.stop.cancelled() => Err(ToolErrorKind::Unknown.because(self.why_ended("stopped"))),
            () = tokio::time::sleep(bound) => Err(ToolErrorKind::Timeout.because(NO_RESPONSE)),
        }
    }
}

fn look(roots: &Roots, session: Option<&str>, tool: &str, args: &Value) -> Result<CallProposal, ToolFailure> {
    let cwd = roots.working_directory().map(PathBuf::from).unwrap_or_default();
    let mut found = CallProposal::in_folder(cwd);
    let path = match tool {
        "write_file" | "edit_file" => {
            let write = edit::propose(roots, tool, args)?;
            found.preview = write.diff;
            found.files.push(AffectedFile { path: text(write.path.clone())?, hash: write.hash });
            write.path
        }
        "read_file" | "list_files" | "glob" | "grep" => roots.find(args["path"].as_str().unwrap_or("."))?.path,
        // What the task itself made lies elsewhere: the tool finds it.
        "add_artifact" => match args["path"].as_str().map(|path| roots.find(path)) {
            Some(Ok(file)) => file.path,
            _ => return Ok(found),
        },
        _ => return Ok(found),
    };
    let (inside, area) = match roots.innermost(&path) {
        Some((way, RootKind::Space)) => (Some(text(way)?), FileArea::Space),
        Some((way, RootKind::Workspace)) => {
            let area =
                if session.is_some_and(|own| way.starts_with(own)) { FileArea::Session } else { FileArea::Elsewhere };
            (Some(text(way)?), area)
        }
        None => (None, FileArea::Elsewhere),
    };
    found.subject = ProposalSubject::File(ProposedFile { absolute: text(path)?, inside, area });
    Ok(found)
}

/// Rules are about text: a name that is none could be taken for another.
fn text(path: PathBuf) -> Result<String, ToolFailure> {
    path.into_os_string().into_string().map_err(|name| format!("{} is no UTF-8 text", name.display()).into())
}
