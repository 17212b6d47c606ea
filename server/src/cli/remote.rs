//! `task` and `session`: a Board's JSON API for scripts. Needs its address and a token, and nothing of its data.

mod client;
mod follow;
mod sse;

use std::io::Read as _;

use clap::{Args, Subcommand};
use protocol::limits::MAX_GOAL_BYTES;
use serde_json::{Map, Value, json};

use super::{CliError, console::tell, fleet::label};
use client::ApiClient;

/// Most items of a page, as the API allows.
const MAX_PAGE_ITEMS: usize = 200;

/// Which Board, and on whose behalf.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    /// The Board's address, such as https://board.example.com
    #[arg(long, env = "VIBER_BOARD_URL", value_name = "URL")]
    board: String,
    /// An API token (vbt_…); in the environment other users of this machine do not see it
    #[arg(long, env = "VIBER_BOARD_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: String,
    /// Accept an unencrypted address (for test environments)
    #[arg(long)]
    insecure: bool,
}

/// What needs a Board's address and a token, and none of its data.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Give work to a Board and follow it, through its API: for scripts
    #[command(subcommand, after_help = "Example: viber-board task new \"Fix the flaky voucher test\" --viber kiln-03")]
    Task(TaskCommand),
    /// Sessions of a Board, through its API: for scripts
    #[command(subcommand, after_help = "Example: viber-board session list --viber kiln-03")]
    Session(SessionCommand),
}

#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Submit a task and print its id
    #[command(after_help = "Example: viber-board task new \"Fix the flaky voucher test\" --viber kiln-03 --wait")]
    New(NewTaskArgs),
    /// List tasks, the newest first
    #[command(after_help = "Example: viber-board task list --state running")]
    List {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Only tasks in this state: pending, running, completed, error or stopped
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// Only tasks of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Only tasks on this viber
        #[arg(long, value_name = "NAME|ID")]
        viber: Option<String>,
        /// Most tasks to list
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: usize,
    },
    /// Print what a task says as it comes, until it ends; fails when the task does
    #[command(after_help = "Example: viber-board task tail task_01a20bc76a3070dab67f27bd590b67f4")]
    Tail {
        #[command(flatten)]
        remote: RemoteArgs,
        /// The task
        #[arg(value_name = "TASK")]
        id: String,
        /// Only events after this one, {attempt}.{seq}
        #[arg(long, value_name = "CURSOR")]
        after: Option<String>,
    },
    /// Stop a task
    #[command(
        after_help = "Example: viber-board task stop task_01a20bc76a3070dab67f27bd590b67f4 --reason \"the wrong branch\""
    )]
    Stop {
        #[command(flatten)]
        remote: RemoteArgs,
        /// The task
        #[arg(value_name = "TASK")]
        id: String,
        /// Why, for those who look at the task later
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// `task new`.
#[derive(Debug, Args)]
pub struct NewTaskArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// The goal; - reads it from standard input
    goal: String,
    /// The viber that works on it
    #[arg(long, value_name = "NAME|ID", conflicts_with = "labels")]
    viber: Option<String>,
    /// Labels of the viber, instead of its name
    #[arg(long, value_name = "K=V", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// The agent; the session's, or `default`, when absent
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The session that it continues; a new one when absent
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Follow the task until it ends, as `task tail` does
    #[arg(long)]
    wait: bool,
    /// The same key within 24 hours never starts a second task; a random one when absent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List sessions, the most recently active first
    #[command(after_help = "Example: viber-board session list --viber kiln-03")]
    List {
        #[command(flatten)]
        remote: RemoteArgs,
        /// Only sessions on this viber
        #[arg(long, value_name = "NAME|ID")]
        viber: Option<String>,
        /// Archived sessions instead of the others
        #[arg(long)]
        archived: bool,
        /// Most sessions to list
        #[arg(long, value_name = "NUMBER", default_value_t = 50)]
        limit: usize,
    },
}

/// `task …` and `session …`.
pub async fn run(command: RemoteCommand) -> Result<(), CliError> {
    match command {
        RemoteCommand::Task(command) => task(command).await,
        RemoteCommand::Session(command) => session(command).await,
    }
}

/// `task …`.
async fn task(command: TaskCommand) -> Result<(), CliError> {
    match command {
        TaskCommand::New(args) => new(args).await,
        TaskCommand::List { remote, state, session, viber, limit } => {
            let client = ApiClient::new(&remote)?;
            let viber = viber_id(&client, viber).await?;
            let query = [("state", state), ("sessionId", session), ("viberId", viber)];
            list(&client, "tasks", &query, limit, |task| {
                let [id, state, agent, at, goal] =
                    ["id", "state", "agentId", "createdAt", "goal"].map(|name| task[name].as_str().unwrap_or_default());
                tell(task, format_args!("{id}\t{state}\t{agent}\t{at}\t{}", protocol::text::title(goal)));
            })
            .await
        }
        TaskCommand::Tail { remote, id, after } => follow::follow(&ApiClient::new(&remote)?, &id, after).await,
        TaskCommand::Stop { remote, id, reason } => {
            let client = ApiClient::new(&remote)?;
            let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            let task = client.post(&["tasks", &id, "stop"], &body, &random_key()).await?;
            let state = task["state"].as_str().unwrap_or_default();
            tell(&task, format_args!("{id}\t{state}"));
            Ok(())
        }
    }
}

/// `session …`.
async fn session(command: SessionCommand) -> Result<(), CliError> {
    let SessionCommand::List { remote, viber, archived, limit } = command;
    let client = ApiClient::new(&remote)?;
    let viber = viber_id(&client, viber).await?;
    let query = [("viberId", viber), ("archived", archived.then(|| "true".to_owned()))];
    list(&client, "sessions", &query, limit, |session| {
        let [id, agent, at, title] =
            ["id", "agentId", "activeAt", "title"].map(|name| session[name].as_str().unwrap_or_default());
        tell(session, format_args!("{id}\t{agent}\t{at}\t{title}"));
    })
    .await
}

async fn new(args: NewTaskArgs) -> Result<(), CliError> {
    let client = ApiClient::new(&args.remote)?;
    let mut body = Map::new();
    body.insert("goal".to_owned(), Value::String(goal(args.goal)?));
    if let Some(viber) = viber_id(&client, args.viber).await? {
        body.insert("viberId".to_owned(), Value::String(viber));
    }
    if !args.labels.is_empty() {
        let labels = args.labels.into_iter().map(|(name, value)| (name, Value::String(value)));
        body.insert("labels".to_owned(), Value::Object(labels.collect()));
    }
    for (name, value) in [("agentId", args.agent), ("sessionId", args.session)] {
        body.extend(value.map(|value| (name.to_owned(), Value::String(value))));
    }
    let key = args.idempotency_key.unwrap_or_else(random_key);
    let task = client.post(&["tasks"], &Value::Object(body), &key).await?;
    let id = task["id"].as_str().ok_or_else(|| CliError::Failed("the Board's answer names no task".into()))?;
    tell(&task, id);
    if args.wait {
        return follow::follow(&client, id, None).await;
    }
    Ok(())
}

/// The goal as it was given, or all of standard input.
fn goal(given: String) -> Result<String, CliError> {
    if given != "-" {
        return Ok(given);
    }
    let mut text = String::new();
    // One byte more than is allowed: the Board says what is wrong with it.
    std::io::stdin().lock().take(MAX_GOAL_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn random_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// The id of a viber that was named.
async fn viber_id(client: &ApiClient, named: Option<String>) -> Result<Option<String>, CliError> {
    let Some(named) = named else { return Ok(None) };
    if named.starts_with("vib_") {
        return Ok(Some(named));
    }
    let mut found = Vec::new();
    list(client, "vibers", &[], usize::MAX, |viber| {
        if viber["name"] == named.as_str() {
            found.extend(viber["id"].as_str().map(str::to_owned));
        }
    })
    .await?;
    match found.as_slice() {
        [_] => Ok(found.pop()),
        [] => Err(CliError::Failed(format!("the team has no viber {named:?}"))),
        _ => Err(CliError::Failed(format!("several vibers are called {named:?}: give the id"))),
    }
}

/// Passes up to `limit` items of a list to `take`, page by page.
async fn list(
    client: &ApiClient,
    what: &str,
    query: &[(&str, Option<String>)],
    limit: usize,
    mut take: impl FnMut(&Value),
) -> Result<(), CliError> {
    let (mut left, mut cursor) = (limit, None::<String>);
    while left > 0 {
        let page = left.min(MAX_PAGE_ITEMS).to_string();
        let mut asked: Vec<(&str, &str)> =
            query.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        asked.push(("limit", &page));
        asked.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let answer = client.get(&[what], &asked).await?;
        for item in answer["items"].as_array().into_iter().flatten().take(left) {
            take(item);
            left -= 1;
        }
        match answer["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    Ok(())
}
