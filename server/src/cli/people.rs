//! Verbs about accounts, teams and tokens. They work while `serve` runs: both speak to the same database.

use super::{Failure, console::say, open};
use crate::{actions, config::Config, web::links};

/// `setup-link`.
pub async fn setup_link(config: &Config) -> Result<(), Failure> {
    let board = open::board(config).await?;
    let code = actions::setup::new_code(&board).await?;
    say(format_args!("{}{}", config.base_url(), links::setup(code.reveal())));
    board.db.close().await;
    Ok(())
}
