//! SIGHUP: a running Board reads its configuration, keys and certificates again. Either all of it is valid, or nothing
//! changes.

use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use tokio::signal::unix::Signal;

use super::{CliError, ConfigSource, open, serve, serve_lock::ServeLock};
use crate::{
    config::Config,
    guard::{Keys, audit_files::AuditFolder},
    secret::audit_keys::AuditKeys,
    state::Board,
};

/// How long reading everything may take: a certificate may lie on a network file system.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What a SIGHUP needs.
pub struct Reload {
    pub source: ConfigSource,
    /// The configuration as it was given at the start, before port 0 was replaced by the actual port.
    pub asked: Config,
    pub board: Board,
    pub tls: Option<RustlsConfig>,
    pub lock: ServeLock,
}

/// Everything that was read and found valid.
struct NewSettings {
    config: Config,
    keys: Keys,
    audit_keys: AuditKeys,
    tls: Option<RustlsConfig>,
}

impl Reload {
    /// Answers every SIGHUP as long as the Board serves.
    pub async fn watch(mut self, mut hangups: Signal) {
        let soft = self.board.shutdown.soft.clone();
        loop {
            tokio::select! {
                () = soft.cancelled() => return,
                _ = hangups.recv() => {}
            }
            let read = tokio::time::timeout(READ_TIMEOUT, self.read()).await;
            let read = read.unwrap_or_else(|_| Err(CliError::Failed("a file could not be read in time".into())));
            match read.and_then(|settings| self.apply(settings)) {
                Ok(()) => {}
                Err(failure) => tracing::error!(reason = %failure, "SIGHUP: nothing was changed"),
            }
        }
    }

    async fn read(&self) -> Result<NewSettings, CliError> {
        let (config, _) = self.source.settle()?;
        config.check()?;
        let clock = &self.board.clock;
        let now = clock.now().0;
        let keys = match config.signing_key_file.is_some() == self.asked.signing_key_file.is_some() {
            true => open::keys(&config, clock)?,
            // Changing this needs a restart, as `apply` says.
            false => (*self.board.guard.keys()).clone(),
        };
        let keys = match config.signing_key_file {
            Some(_) => keys.replacing(&self.board.guard.keys(), now),
            None => keys,
        };
        let audit_keys = AuditFolder::of(&self.board.config.data).keys_or_first(now);
        let audit_keys = audit_keys.map_err(|bad| CliError::Config(bad.to_string()))?;
        let tls = match &self.tls {
            Some(_) => serve::tls(&config).await?,
            None => None,
        };
        Ok(NewSettings { config, keys, audit_keys, tls })
    }

    fn apply(&mut self, settings: NewSettings) -> Result<(), CliError> {
        let NewSettings { config, keys, audit_keys, tls } = settings;
        let board = &self.board;
        let (kid, retired) = (keys.signing().kid.clone(), keys.retired(board.clock.now().0));
        let outside = self.asked.signing_key_file.is_some();
        board.guard.use_keys(keys);
        board.db.audit_chain().use_keys(audit_keys);
        board.reloadable.store(config.reloadable().into());
        if let (Some(serving), Some(tls)) = (&self.tls, tls) {
            serving.reload_from_config(tls.get_inner());
        }
        // A revocation may be the reason for the signal: everything cached is read again.
        board.guard.forget();
        for flag in self.asked.fixed_differences(&config) {
            tracing::warn!(flag, "SIGHUP: this setting was changed, and takes effect after a restart");
        }
        tracing::info!(signing = kid, retired, "SIGHUP: configuration, keys and certificates were read again");
        self.lock.publish(&board.config.base_url(), &kid, outside)
    }
}
