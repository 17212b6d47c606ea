//! Commands about keys: rotating them while the Board serves, and revoking access after a break-in.

use std::{path::Path, time::Duration};

use clap::Subcommand;
use serde_json::json;

use super::{
    CliError,
    console::{remark, say, tell},
    open,
    people::find_team,
    serve_lock::{self, RunningBoard},
};
use crate::{
    actions::{self, revoke_all::AccessCounts},
    clock::Clock,
    config::Config,
    domain::By,
    guard::{Keys, audit_files::AuditFolder, keys::BadKey},
};

/// How long to wait for a running Board to sign with the new key.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the running Board's lock file is read meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Sign with a new key from now on; cookies signed with older keys stay valid until they expire
    #[command(after_help = "Example: viber-board keys rotate")]
    Rotate {
        /// Replace the key that seals the audit instead
        #[arg(long)]
        audit: bool,
    },
    /// After a break-in: sign everybody out and revoke every token and invitation
    #[command(after_help = "Example: viber-board keys revoke-all --team home --yes")]
    RevokeAll {
        /// Only in this team; without this, on the whole Board
        #[arg(long, value_name = "SLUG")]
        team: Option<String>,
        /// Also revoke the vibers' credentials: every machine has to join again, and its tasks are lost
        #[arg(long)]
        vibers: bool,
        /// Revoke; without this, only show what would be revoked
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Accept the audit as it is, when you know why doctor reports its head; the audit records this
    #[command(after_help = "Example: viber-board audit accept --reason \"restored from the backup of Sunday\"")]
    Accept {
        /// The reason, for those who read the audit later
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// `keys …`.
pub async fn keys(config: &Config, command: KeysCommand) -> Result<(), CliError> {
    open::data_folder(&config.data)?;
    match command {
        KeysCommand::Rotate { audit: false } => rotate(config).await,
        KeysCommand::Rotate { audit: true } => rotate_audit(config),
        KeysCommand::RevokeAll { team, vibers, yes } => revoke_all(config, team, vibers, yes).await,
    }
}

/// `audit …`.
pub async fn audit(config: &Config, command: AuditCommand) -> Result<(), CliError> {
    let AuditCommand::Accept { reason } = command;
    let board = open::board(config).await?;
    let accepted = actions::audit::accept(&board, "audit.accept", &reason).await;
    open::close(&board).await;
    let teams = accepted?;
    tell(&json!({ "accepted": teams }), format_args!("accepted the audits of {teams} teams as they are"));
    Ok(())
}

async fn rotate(config: &Config) -> Result<(), CliError> {
    let running = serve_lock::running(&config.data);
    refuse_outside(config, running.as_ref())?;
    let now = Clock::System.now().0;
    let keys = Keys::rotate(&config.data.join("keys"), now).map_err(bad)?;
    let kid = keys.signing().kid.as_str();
    let older = keys.retired(now);
    let fact = json!({ "signingKey": kid, "olderKeys": older });
    tell(&fact, format_args!("signing with {kid}; {older} older keys still verify what they signed"));
    notify(&config.data, running, kid).await
}

/// Refuses to rotate a key that the administrator provided: they replace it themselves.
fn refuse_outside(config: &Config, running: Option<&RunningBoard>) -> Result<(), CliError> {
    if config.signing_key_file.is_none() && !running.is_some_and(|board| board.outside) {
        return Ok(());
    }
    let file = config
        .signing_key_file
        .as_ref()
        .map_or("the file that --signing-key-file names".into(), |file| file.display().to_string());
    let process = running.map_or("the Board".into(), |board| format!("process {}", board.pid));
    Err(CliError::Failed(format!(
        "the signing key comes from {file}: put the new key there, keep the old one on the line below for 31 days, and \
         send {process} a SIGHUP"
    )))
}

/// Has a running Board read its keys again, and waits until it signs with the new one.
async fn notify(data: &Path, running: Option<RunningBoard>, kid: &str) -> Result<(), CliError> {
    let Some(board) = running else {
        remark("no Board is running on this data folder; the next one signs with it");
        return Ok(());
    };
    if !board.reload(data) {
        return Err(CliError::Failed(format!(
            "the Board running on this data folder could not be notified: send its process ({}) a SIGHUP",
            board.pid
        )));
    }
    let signs = async {
        while serve_lock::running(data).is_some_and(|board| board.kid != kid) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    if tokio::time::timeout(RELOAD_TIMEOUT, signs).await.is_err() {
        return Err(CliError::Failed(
            "the Board was notified, but does not sign with the new key yet: see its log".into(),
        ));
    }
    say("the running Board signs with it now");
    Ok(())
}

fn rotate_audit(config: &Config) -> Result<(), CliError> {
    let folder = AuditFolder::of(&config.data);
    let now = Clock::System.now().0;
    // The first key is made together with its marker file.
    folder.keys_or_first(now).map_err(bad)?;
    let keys = folder.rotate(now).map_err(bad)?;
    let sealing = keys.sealing().to_string();
    let words = format!("sealing the audit with {sealing}; older keys are kept to verify older rows");
    tell(&json!({ "auditKey": sealing }), words);
    if let Some(board) = serve_lock::running(&config.data)
        && !board.reload(&config.data)
    {
        return Err(CliError::Failed(format!("send the running Board (process {}) a SIGHUP", board.pid)));
    }
    Ok(())
}

async fn revoke_all(config: &Config, slug: Option<String>, vibers: bool, yes: bool) -> Result<(), CliError> {
    let board = open::board(config).await?;
    let team = match &slug {
        Some(slug) => Some(find_team(&board, slug).await?),
        None => None,
    };
    let there = actions::revoke_all::count(&board, team.as_ref()).await?;
    if !yes {
        open::close(&board).await;
        tell(&as_json(there, vibers, false), "This would revoke:");
        table(there, vibers, team.is_none());
        return Err(CliError::Usage("nothing was revoked; add --yes to revoke".into()));
    }
    let running = serve_lock::running(&config.data);
    let outside = refuse_outside(config, running.as_ref()).err();
    // For the whole Board: first everything that was signed becomes invalid, then everything that was handed out.
    let fresh = match team.is_none() && outside.is_none() {
        true => Some(Keys::start_over(&config.data.join("keys"), Clock::System.now().0).map_err(bad)?),
        false => None,
    };
    let done = actions::revoke_all::revoke_all(&board, &By::console(), team.as_ref(), vibers).await;
    open::close(&board).await;
    let done = AccessCounts { people: there.people, ..done? };
    let done = AccessCounts { vibers: if vibers { done.vibers } else { there.vibers }, ..done };
    tell(&as_json(done, vibers, true), "Revoked:");
    table(done, vibers, team.is_none());
    say("Open pages, streams and links end within 5 seconds.");
    if let Some(keys) = fresh {
        say(format_args!("Cookies are signed with a new key, {}; the old keys are gone.", keys.signing().kid));
        notify(&config.data, running, &keys.signing().kid).await?;
    } else if let Some(board) = running {
        // The running Board drops what it read up to two seconds ago.
        board.reload(&config.data);
    }
    match outside.filter(|_| team.is_none()) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

fn as_json(counts: AccessCounts, vibers: bool, is_revoked: bool) -> serde_json::Value {
    let AccessCounts { logins, people, tokens, join_tokens, invitations, vibers: credentials } = counts;
    json!({
        "revoked": is_revoked, "logins": logins, "people": people, "tokens": tokens, "joinTokens": join_tokens,
        "invitations": invitations, "vibers": if vibers { credentials } else { 0 },
    })
}

fn table(counts: AccessCounts, vibers: bool, whole: bool) {
    let scope = if whole {
        ""
    } else {
        " (this includes their access to other teams: a login belongs to a person, not to a team)"
    };
    say(format_args!("  {} logins of {} people{scope}", counts.logins, counts.people));
    say(format_args!("  {} API tokens", counts.tokens));
    say(format_args!("  {} join tokens (unused)", counts.join_tokens));
    say(format_args!("  {} invitations (open)", counts.invitations));
    if whole {
        say("  the setup link, if there is one");
    }
    match vibers {
        true => say(format_args!("  the credentials of {} vibers", counts.vibers)),
        false => {
            say(format_args!("  not the credentials of {} vibers: add --vibers to revoke those too", counts.vibers))
        }
    }
    say("Passwords are unchanged: viber-board operator password sets a new one.");
}

fn bad(bad: BadKey) -> CliError {
    CliError::Failed(bad.to_string())
}
