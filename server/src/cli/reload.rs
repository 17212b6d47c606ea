//! SIGHUP: a running Board reads its configuration, keys and certificates again. All of it is good, or nothing changes.

use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use tokio::signal::unix::Signal;

use super::{Failure, Source, open, serve, serving::Mark};
use crate::{
    config::Config,
    guard::{Keys, audit_files::AuditFolder},
    secret::mac::AuditKeys,
    state::Board,
};

/// A certificate that cannot be read within this time is given up: what reads it may lie on a network.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// What a SIGHUP needs.
pub struct Reload {
    pub source: Source,
    /// The configuration as it was last asked for, before an address took the place of port 0.
    pub asked: Config,
    pub board: Board,
    pub tls: Option<RustlsConfig>,
    pub mark: Mark,
}

/// Everything that was read, and is good.
struct Fresh {
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
            let read = read.unwrap_or_else(|_| Err(Failure::Failed("a file could not be read in time".into())));
            match read.and_then(|fresh| self.apply(fresh)) {
                Ok(()) => {}
                Err(failure) => tracing::error!(reason = %failure, "SIGHUP: nothing was changed"),
            }
        }
    }

    async fn read(&self) -> Result<Fresh, Failure> {
        let (config, _) = self.source.settle()?;
        config.check()?;
        let clock = &self.board.clock;
        let now = clock.now().0;
        let keys = match config.signing_key_file.is_some() == self.asked.signing_key_file.is_some() {
            true => open::keys(&config, clock)?,
            // It needs a new start, which is said below.
            false => (*self.board.guard.keys()).clone(),
        };
        let keys = match config.signing_key_file {
            Some(_) => keys.after(&self.board.guard.keys(), now),
            None => keys,
        };
        let audit_keys = AuditFolder::of(&self.board.config.data).keys_or_first(now);
        let audit_keys = audit_keys.map_err(|bad| Failure::Config(bad.to_string()))?;
        let tls = match &self.tls {
            Some(_) => serve::tls(&config).await?,
            None => None,
        };
        Ok(Fresh { config, keys, audit_keys, tls })
    }

    fn apply(&mut self, fresh: Fresh) -> Result<(), Failure> {
        let Fresh { config, keys, audit_keys, tls } = fresh;
        let board = &self.board;
        let (kid, resting) = (keys.signing().kid.clone(), keys.resting(board.clock.now().0));
        let outside = self.asked.signing_key_file.is_some();
        board.guard.use_keys(keys);
        board.db.audit_chain().use_keys(audit_keys);
        board.reloadable.store(config.reloadable().into());
        if let (Some(serving), Some(tls)) = (&self.tls, tls) {
            serving.reload_from_config(tls.get_inner());
        }
        // Whoever asks may have revoked something: everybody is read again.
        board.guard.forget();
        for flag in self.asked.fixed_differences(&config) {
            tracing::warn!(flag, "SIGHUP: this setting was changed, and counts after a new start");
        }
        tracing::info!(signing = kid, resting, "SIGHUP: configuration, keys and certificates were read again");
        self.mark.tell(&board.config.base_url(), &kid, outside)
    }
}
