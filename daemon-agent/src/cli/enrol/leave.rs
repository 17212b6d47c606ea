//! `leave`: this machine ends its enrolment. What it wrote stays on its disk; what belongs to that Board alone is put
//! aside, so that no other Board is ever told of it.

use std::{fs, io};

use serde_json::json;

use crate::{
    adapters::board::{Credential, credential::Farewell},
    cli::{CliError, unusable},
    home::Home,
};

/// Where the journal and the outbox of a Board that was left are kept, in `state/`.
const LEFT_FOLDER: &str = "left";

/// Revokes this viber's credential on its Board and deletes it here. With `--offline` the Board is not told.
pub async fn leave(home: &Home, offline: bool, json: bool) -> Result<(), CliError> {
    let credential = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    let credential = credential
        .ok_or_else(|| CliError::Configuration(format!("{} has not joined a Board", home.root().display())))?;
    let lock = home.lock().map_err(|error| unusable("the lock", &error))?;
    let Some(_lock) = lock else {
        return Err(CliError::Failed(
            "a daemon runs for this home: end it first (`daemon-agent service uninstall`, or stop `daemon-agent run`)"
                .to_owned(),
        ));
    };
    let told = match offline {
        true => Farewell::Unsaid,
        false => credential.leave().await.map_err(|why| {
            CliError::Failed(format!(
                "{why}. Nothing was changed; `daemon-agent leave --offline` leaves without telling it."
            ))
        })?,
    };
    let viber = &credential.viber_id;
    let aside = home.state().join(LEFT_FOLDER).join(viber.as_str());
    let kept = put_aside(home, &aside).map_err(|error| unusable(&aside.display().to_string(), &error))?;
    // Last of all: killed before this line, the same command does the rest.
    fs::remove_file(home.credential()).map_err(|error| unusable(&home.credential().display().to_string(), &error))?;
    if json {
        let kept = kept.then(|| aside.display().to_string());
        say!(
            "{}",
            json!({ "viberId": viber, "board": credential.board_url, "revoked": told != Farewell::Unsaid, "kept": kept })
        );
        return Ok(());
    }
    match told {
        Farewell::Said => say!("{viber} left {}: its credential is revoked.", credential.board_url),
        Farewell::Unknown => say!("{viber} left {}, where it was revoked already.", credential.board_url),
        Farewell::Unsaid => say!("{viber} left {}, which was not told: revoke the viber there.", credential.board_url),
    }
    if kept {
        say!("What it had for that Board is kept in {}.", aside.display());
    }
    Ok(())
}

/// Moves journal, outbox and the team's rules aside. True if there was something.
fn put_aside(home: &Home, aside: &std::path::Path) -> io::Result<bool> {
    let mut kept = false;
    for from in [home.outbox(), home.journal(), home.team_rules()] {
        let Some(name) = from.file_name().filter(|_| from.symlink_metadata().is_ok()) else { continue };
        crate::home::private_folder(aside)?;
        fs::rename(&from, aside.join(name))?;
        kept = true;
    }
    Ok(kept)
}
