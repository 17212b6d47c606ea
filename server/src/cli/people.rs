//! Commands about accounts, teams and tokens. They work while `serve` runs: both use the same database, and a running Board
//! reads credentials again every two seconds.

use std::io::{BufRead as _, IsTerminal as _};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    CliError,
    console::{remark, say, tell},
    open, serve_lock,
};
use crate::{
    actions::{
        self,
        members::{NewMember, Requester},
    },
    config::Config,
    db::{self, DbError},
    domain::{By, Operator, Role, Team, Token},
    secret::Secret,
    state::Board,
    web::urls,
};

#[derive(Debug, Subcommand)]
pub enum OperatorCommand {
    /// Create an account and add it to a team; an existing account is only added to the team
    #[command(after_help = "Example: viber-board operator add --team home --email ada@example.com --role admin")]
    Add {
        #[command(flatten)]
        member: MemberArgs,
        /// Role in the team
        #[arg(long)]
        role: Role,
        /// The person's name [default: the part of the address before the @]
        #[arg(long)]
        name: Option<String>,
        /// Read the password from one line of stdin; without this, one is generated and printed
        #[arg(long)]
        password_stdin: bool,
    },
    /// Show the members of a team
    #[command(after_help = "Example: viber-board operator list --team home")]
    List {
        /// The team's slug
        #[arg(long, value_name = "SLUG")]
        team: String,
    },
    /// Give a member another role
    #[command(after_help = "Example: viber-board operator role --team home --email ada@example.com --role owner")]
    Role {
        #[command(flatten)]
        member: MemberArgs,
        /// The new role
        #[arg(long)]
        role: Role,
    },
    /// Remove a member from a team
    #[command(after_help = "Example: viber-board operator remove --team home --email ada@example.com")]
    Remove(MemberArgs),
    /// Disable an account in all teams, or enable it again
    #[command(after_help = "Example: viber-board operator disable --email ada@example.com")]
    Disable {
        /// A team that the account belongs to, to be sure that it is the right one
        #[arg(long, value_name = "SLUG")]
        team: Option<String>,
        /// The account's address
        #[arg(long)]
        email: String,
        /// Enable it again
        #[arg(long)]
        enable: bool,
    },
    /// Set a new password; signs the account out everywhere
    #[command(after_help = "Example: viber-board operator password --email ada@example.com")]
    Password {
        /// A team that the account belongs to, to be sure that it is the right one
        #[arg(long, value_name = "SLUG")]
        team: Option<String>,
        /// The account's address
        #[arg(long)]
        email: String,
        /// Read the password from one line of stdin; without this, one is generated and printed
        #[arg(long)]
        password_stdin: bool,
    },
}

/// A person in a team.
#[derive(Debug, Args)]
pub struct MemberArgs {
    /// The team's slug
    #[arg(long, value_name = "SLUG")]
    team: String,
    /// The account's address
    #[arg(long)]
    email: String,
}

#[derive(Debug, Subcommand)]
pub enum TeamCommand {
    /// Create a team
    #[command(after_help = "Example: viber-board team add home --name \"The whole house\"")]
    Add {
        #[command(flatten)]
        team: TeamArgs,
        /// Its name [default: the slug]
        #[arg(long)]
        name: Option<String>,
    },
    /// Show all teams
    #[command(after_help = "Example: viber-board team list")]
    List,
    /// Show a team's storage usage and limit, or change the limit
    #[command(after_help = "Example: viber-board team quota home --storage 50GiB")]
    Quota(super::quota::QuotaArgs),
    /// Suspend a team: its tasks are stopped, and neither people nor vibers can connect
    #[command(after_help = "Example: viber-board team suspend home")]
    Suspend {
        #[command(flatten)]
        team: TeamArgs,
        /// Resume it
        #[arg(long)]
        resume: bool,
    },
    /// Delete a team and everything in it
    #[command(after_help = "Example: viber-board team delete home")]
    Delete {
        #[command(flatten)]
        team: TeamArgs,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// A team, by position or flag.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct TeamArgs {
    /// The team's slug
    #[arg(value_name = "SLUG")]
    slug: Option<String>,
    /// The same, as a flag
    #[arg(long, value_name = "SLUG")]
    team: Option<String>,
}

impl TeamArgs {
    pub(super) fn slug(&self) -> &str {
        self.slug.as_deref().or(self.team.as_deref()).unwrap_or_default()
    }
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create an API token and print it once
    #[command(after_help = "Example: viber-board token add --team home --name ci --role operator")]
    Add {
        /// The team's slug
        #[arg(long, value_name = "SLUG")]
        team: String,
        /// What it is for
        #[arg(long)]
        name: String,
        /// What it may do, as the role of a member
        #[arg(long)]
        role: Role,
    },
    /// Show a team's tokens
    #[command(after_help = "Example: viber-board token list --team home")]
    List {
        /// The team's slug
        #[arg(long, value_name = "SLUG")]
        team: String,
    },
    /// Revoke a token by name or id
    #[command(after_help = "Example: viber-board token revoke --team home --name ci")]
    Revoke {
        /// The team's slug
        #[arg(long, value_name = "SLUG")]
        team: String,
        /// The token
        #[arg(long, value_name = "NAME|ID")]
        name: String,
    },
}

/// `setup-link`.
pub async fn setup_link(config: &Config) -> Result<(), CliError> {
    let board = open::board(config).await?;
    let code = actions::setup::new_code(&board).await?;
    let url = serve_lock::address(&config.data).unwrap_or_else(|| config.base_url());
    let link = format!("{url}{}", urls::setup(code.reveal()));
    tell(&json!({ "url": link }), &link);
    open::close(&board).await;
    Ok(())
}

/// `operator …`.
pub async fn operator(config: &Config, command: OperatorCommand) -> Result<(), CliError> {
    let board = open::board(config).await?;
    let by = By::console();
    let owner = Requester { by: &by, role: Role::Owner };
    match command {
        OperatorCommand::Add { member, role, name, password_stdin } => {
            let password = if password_stdin { read_line()? } else { generated_password() };
            let name = name.unwrap_or_else(|| member.email.split('@').next().unwrap_or_default().to_owned());
            let shown = password.clone();
            let addition = NewMember { team: member.team, email: member.email, name, role, password };
            let added = actions::members::add(&board, &by, addition).await?;
            let made = (!password_stdin && added.is_new).then_some(shown);
            let (email, slug) = (&added.operator.email, &added.team.slug);
            let fact = json!({
                "email": email, "team": slug, "role": role.to_string(), "isNew": added.is_new, "password": made,
            });
            tell(&fact, format_args!("{email} is {role} in {slug}"));
            if let Some(made) = made {
                say(format_args!("password: {made}"));
            }
        }
        OperatorCommand::List { team } => {
            let team = find_team(&board, &team).await?;
            let members = db::members::list(&mut board.db.reader_of(&team.id).await?).await?;
            for member in members {
                let Operator { email, name, disabled_at, .. } = member.operator;
                let (role, disabled) = (member.role.to_string(), disabled_at.is_some());
                let state = if disabled { "\tdisabled" } else { "" };
                let fact = json!({ "email": email, "role": role, "name": name, "disabled": disabled });
                tell(&fact, format_args!("{email}\t{role}\t{name}{state}"));
            }
        }
        OperatorCommand::Role { member, role } => {
            let (team, who) = find_member(&board, &member.team, &member.email).await?;
            actions::members::set_role(&board, &team.id, owner, &who.id, role).await?;
            let fact = json!({ "email": who.email, "team": team.slug, "role": role.to_string() });
            tell(&fact, format_args!("{} is {role} in {}", who.email, team.slug));
        }
        OperatorCommand::Remove(member) => {
            let (team, who) = find_member(&board, &member.team, &member.email).await?;
            actions::members::remove(&board, &team.id, owner, &who.id).await?;
            let fact = json!({ "email": who.email, "team": team.slug, "removed": true });
            tell(&fact, format_args!("{} is not in {} any more", who.email, team.slug));
        }
        OperatorCommand::Disable { team, email, enable } => {
            let who = find_operator(&board, team.as_deref(), &email).await?;
            actions::accounts::disable(&board, &by, &who.id, !enable).await?;
            let state = if enable { "enabled" } else { "disabled" };
            tell(&json!({ "email": who.email, "disabled": !enable }), format_args!("{} is {state}", who.email));
        }
        OperatorCommand::Password { team, email, password_stdin } => {
            let who = find_operator(&board, team.as_deref(), &email).await?;
            let password = if password_stdin { read_line()? } else { generated_password() };
            actions::accounts::set_password(&board, &by, &who.id, password.clone(), None).await?;
            let made = (!password_stdin).then_some(password);
            let fact = json!({ "email": who.email, "password": made });
            match &made {
                Some(password) => tell(&fact, format_args!("password: {password}")),
                None => tell(&fact, format_args!("{} has a new password and is signed out everywhere", who.email)),
            }
        }
    }
    open::close(&board).await;
    Ok(())
}

/// `team …`.
pub async fn team(config: &Config, command: TeamCommand) -> Result<(), CliError> {
    let board = open::board(config).await?;
    let by = By::console();
    match command {
        TeamCommand::Add { team, name } => {
            let name = name.unwrap_or_else(|| team.slug().to_owned());
            let team = actions::teams::add(&board, &by, team.slug(), &name).await?;
            let fact = json!({ "slug": team.slug, "name": team.name });
            tell(&fact, format_args!("{}\t{}", team.slug, team.name));
        }
        TeamCommand::List => {
            let teams = db::teams::all(&mut *board.db.reader().await?, 10_000).await?;
            for Team { slug, name, suspended_at, claimed_at, .. } in teams {
                let state = match (suspended_at, claimed_at) {
                    (Some(_), _) => "suspended",
                    (None, None) => "unclaimed",
                    _ => "open",
                };
                let fact = json!({ "slug": slug, "state": state, "name": name });
                tell(&fact, format_args!("{slug}\t{state}\t{name}"));
            }
        }
        TeamCommand::Quota(args) => super::quota::quota(&board, args).await?,
        TeamCommand::Suspend { team, resume } => {
            let team = find_team(&board, team.slug()).await?;
            match resume {
                true => actions::teams::resume(&board, &by, &team).await?,
                false => actions::ending::suspend_team(&board, &by, &team).await?,
            }
            let state = if resume { "open" } else { "suspended" };
            tell(&json!({ "slug": team.slug, "state": state }), format_args!("{}\t{state}", team.slug));
        }
        TeamCommand::Delete { team, yes } => {
            let team = find_team(&board, team.slug()).await?;
            if !yes && std::io::stdin().is_terminal() {
                remark(format_args!("This deletes everything of {}. Type {} to continue.", team.name, team.slug));
                if read_line()? != team.slug {
                    return Err(CliError::Failed("nothing was deleted".into()));
                }
            }
            actions::ending::delete_team(&board, &by, &team).await?;
            tell(&json!({ "slug": team.slug, "state": "deleted" }), format_args!("{}\tdeleted", team.slug));
        }
    }
    open::close(&board).await;
    Ok(())
}

/// `token …`.
pub async fn token(config: &Config, command: TokenCommand) -> Result<(), CliError> {
    let board = open::board(config).await?;
    let by = By::console();
    match command {
        TokenCommand::Add { team, name, role } => {
            let team = find_team(&board, &team).await?;
            let owner = Requester { by: &by, role: Role::Owner };
            let (secret, _) = actions::tokens::create(&board, &team.id, owner, &name, role).await?;
            tell(&json!({ "token": secret.reveal() }), secret.reveal());
        }
        TokenCommand::List { team } => {
            let team = find_team(&board, &team).await?;
            for Token { id, name, role, seen_at, .. } in tokens(&board, &team).await? {
                let seen = seen_at.map_or_else(|| "never used".to_owned(), |at| format!("used {at}"));
                let fact = json!({ "id": id, "role": role.to_string(), "name": name, "usedAt": seen_at });
                tell(&fact, format_args!("{id}\t{role}\t{name}\t{seen}"));
            }
        }
        TokenCommand::Revoke { team, name } => {
            let team = find_team(&board, &team).await?;
            let all = tokens(&board, &team).await?;
            let found: Vec<_> = all.iter().filter(|token| token.name == name || token.id.as_str() == name).collect();
            match found.as_slice() {
                [token] => {
                    actions::tokens::revoke(&board, &team.id, &by, &token.id).await?;
                    let fact = json!({ "id": token.id, "name": token.name, "revoked": true });
                    tell(&fact, format_args!("{}\trevoked\t{}", token.id, token.name));
                }
                [] => return Err(CliError::Failed(format!("the team has no token {name:?}"))),
                _ => return Err(CliError::Failed(format!("several tokens are called {name:?}: give the id"))),
            }
        }
    }
    open::close(&board).await;
    Ok(())
}

async fn tokens(board: &Board, team: &Team) -> Result<Vec<Token>, DbError> {
    db::tokens::list(&mut board.db.reader_of(&team.id).await?).await
}

/// The team of a slug.
pub(super) async fn find_team(board: &Board, slug: &str) -> Result<Team, CliError> {
    let found = db::teams::by_slug(&mut *board.db.reader().await?, slug).await?;
    found.ok_or_else(|| CliError::Failed(format!("there is no team {slug:?}")))
}

async fn find_member(board: &Board, slug: &str, email: &str) -> Result<(Team, Operator), CliError> {
    let team = find_team(board, slug).await?;
    let operator = find_operator(board, None, email).await?;
    let found = db::members::load(&mut board.db.reader_of(&team.id).await?, &operator.id).await?;
    found.ok_or_else(|| CliError::Failed(format!("{email} is not in the team {slug:?}")))?;
    Ok((team, operator))
}

async fn find_operator(board: &Board, team: Option<&str>, email: &str) -> Result<Operator, CliError> {
    if let Some(slug) = team {
        return Ok(Box::pin(find_member(board, slug, email)).await?.1);
    }
    let address = crate::domain::input::fold_email(email);
    let found = db::operators::by_email(&mut *board.db.reader().await?, &address).await?;
    found.map(|(operator, _)| operator).ok_or_else(|| CliError::Failed(format!("there is no operator {email}")))
}

/// A random password of 20 characters.
fn generated_password() -> String {
    Secret::new("").reveal()[..20].to_owned()
}

/// One line of stdin without its line end.
fn read_line() -> Result<String, CliError> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
