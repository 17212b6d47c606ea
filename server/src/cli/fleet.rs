//! Commands about vibers and the tokens that let them join.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    CliError,
    console::{remark, tell},
    open,
    people::find_team,
};
use crate::{
    actions,
    config::Config,
    db::{self, DbError},
    domain::{By, Team, Viber},
    secret,
    state::Board,
};

/// `join-token`.
#[derive(Debug, Args)]
pub struct JoinTokenArgs {
    /// The team's slug
    #[arg(long, value_name = "SLUG")]
    team: String,
    /// Labels for the machine that joins
    #[arg(long, value_name = "K=V", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Revoke this unused token instead
    #[arg(long, value_name = "TOKEN", conflicts_with = "labels")]
    revoke: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ViberCommand {
    /// Show a team's vibers
    #[command(after_help = "Example: viber-board viber list --team home")]
    List {
        /// The team's slug
        #[arg(long, value_name = "SLUG")]
        team: String,
    },
    /// Revoke a viber's credential, by name or id
    #[command(after_help = "Example: viber-board viber revoke --team home kiln-03")]
    Revoke {
        /// The team's slug
        #[arg(long, value_name = "SLUG")]
        team: String,
        /// The viber
        #[arg(value_name = "NAME|ID", required_unless_present = "name")]
        viber: Option<String>,
        /// The same, as a flag
        #[arg(long, value_name = "NAME|ID", conflicts_with = "viber")]
        name: Option<String>,
    },
}

pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not of the form key=value"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Prints a new token once, or revokes one.
pub async fn join_token(config: &Config, flags: JoinTokenArgs) -> Result<(), CliError> {
    let board = open::board(config).await?;
    let team = find_team(&board, &flags.team).await?;
    if let Some(token) = flags.revoke {
        let hash = secret::hash(token.trim());
        let found = db::join_tokens::by_hash(&mut board.db.reader_of(&team.id).await?, &hash).await?;
        let found = found.ok_or_else(|| CliError::Failed("the team has no such join token".into()))?;
        actions::vibers::revoke_join_token(&board, &team.id, &By::console(), &found).await?;
        tell(&json!({ "revoked": true }), "the join token is revoked");
        open::close(&board).await;
        return Ok(());
    }
    let labels: BTreeMap<_, _> = flags.labels.into_iter().collect();
    let (secret, token) = actions::vibers::join_token(&board, &team.id, &By::console(), &labels).await?;
    remark(format_args!("works once, until {}", token.expires_at));
    tell(&json!({ "token": secret.reveal(), "expiresAt": token.expires_at }), secret.reveal());
    open::close(&board).await;
    Ok(())
}

/// `viber …`.
pub async fn viber(config: &Config, command: ViberCommand) -> Result<(), CliError> {
    let board = open::board(config).await?;
    match command {
        ViberCommand::List { team } => {
            let team = find_team(&board, &team).await?;
            for Viber { id, name, contact, version, platform, running, .. } in vibers(&board, &team).await? {
                let state = contact.state.to_string();
                let fact = json!({
                    "id": id, "name": name, "state": state, "running": running, "version": version, "platform": platform,
                });
                tell(&fact, format_args!("{id}\t{state}\t{running} running\t{version}\t{platform}\t{name}"));
            }
        }
        ViberCommand::Revoke { team, viber, name } => {
            let team = find_team(&board, &team).await?;
            let wanted = viber.or(name).unwrap_or_default();
            let all = vibers(&board, &team).await?;
            let found: Vec<_> =
                all.iter().filter(|viber| viber.name == wanted || viber.id.as_str() == wanted).collect();
            let [viber] = found.as_slice() else {
                let why = if found.is_empty() { "the team has no viber" } else { "several vibers are called" };
                return Err(CliError::Failed(format!("{why} {wanted:?}")));
            };
            actions::ending::revoke_viber(&board, &team.id, &By::console(), &viber.id).await?;
            let fact = json!({ "id": viber.id, "name": viber.name, "state": "revoked" });
            tell(&fact, format_args!("{}\trevoked\t{}", viber.id, viber.name));
        }
    }
    open::close(&board).await;
    Ok(())
}

async fn vibers(board: &Board, team: &Team) -> Result<Vec<Viber>, DbError> {
    db::vibers::list(&mut board.db.reader_of(&team.id).await?, None, 10_000).await
}
