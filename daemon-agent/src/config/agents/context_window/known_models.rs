//! What this machine found out about models while it used them: `state/models.json`.
//!
//! Owns the file and what in it can be believed. Nothing fails because of it: a damaged one is set aside and begun anew.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use protocol::{Instant, context::ESTIMATE_PERCENT};
use serde::{Deserialize, Serialize};

use crate::{
    damaged,
    home::{Home, write_private},
};

/// Most models that are kept; those that were used longest ago are forgotten first.
const MAX_MODELS: usize = 64;
/// Windows that a model can have, tokens: less is no use, more has none.
const PLAUSIBLE_WINDOW_TOKENS: std::ops::RangeInclusive<u64> = 1_024..=16_000_000;

/// Held while the file is read and written again.
static CHANGING: Mutex<()> = Mutex::new(());

/// All models of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KnownModels {
    models: Vec<KnownModel>,
}

/// What is known of one model at one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownModel {
    /// `provider/model`.
    model: String,
    /// The provider's address, without user name, password and query.
    base_url: String,
    /// When something was found out last.
    at: Instant,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asked: Option<AskedWindow>,
    /// The window that the error of a request named which was too long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub learnt: Option<LearntWindow>,
    /// How many tokens its provider counts for 100 that we estimate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    estimate_percent: Option<u64>,
}

/// What a provider said when it was asked for the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedWindow {
    pub at: Instant,
    /// `None` if it did not say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<u64>,
    /// Whether it answered at all.
    pub answered: bool,
}

/// A window that an error named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearntWindow {
    pub at: Instant,
    pub tokens: u64,
}

/// Whether a model can have a window of so many tokens.
pub fn is_plausible(tokens: u64) -> bool {
    PLAUSIBLE_WINDOW_TOKENS.contains(&tokens)
}

/// A provider's address as it is kept: without what may be secret.
pub fn place(base_url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(base_url) else { return String::new() };
    // Fails only for addresses that cannot have them.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().trim_end_matches('/').to_owned()
}

impl KnownModels {
    /// What the file says; nothing if it cannot be read.
    pub fn read(home: &Home) -> Self {
        load(home).ok().flatten().unwrap_or_default()
    }

    /// The same without figures that change with every call.
    pub fn windows(mut self) -> Self {
        for model in &mut self.models {
            (model.at, model.estimate_percent) = (Instant(0), None);
        }
        self
    }

    /// What is known of `model` (`provider/model`) at this address.
    pub fn find(&self, model: &str, base_url: &str) -> Option<&KnownModel> {
        let place = place(base_url);
        self.models.iter().find(|known| known.model == model && known.base_url == place)
    }

    /// Changes what is known of a model, on disk as well. Returns how it is then.
    pub fn change(
        home: &Home,
        (model, base_url): (&str, &str),
        now: Instant,
        change: impl FnOnce(&mut KnownModel),
    ) -> io::Result<KnownModel> {
        let _held = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = match load(home)? {
            Some(all) => all,
            None => {
                let kept = damaged::move_aside(&home.damaged(), &home.models(), "models.json", now)?;
                tracing::warn!(file = %kept.display(), "state/models.json was damaged: it was set aside and begun anew");
                Self::default()
            }
        };
        let mut known = all.find(model, base_url).cloned().unwrap_or_else(|| KnownModel {
            model: model.to_owned(),
            base_url: place(base_url),
            at: now,
            asked: None,
            learnt: None,
            estimate_percent: None,
        });
        change(&mut known);
        known.at = now;
        all.models.retain(|other| (&other.model, &other.base_url) != (&known.model, &known.base_url));
        all.models.push(known.clone());
        let more = all.models.len().saturating_sub(MAX_MODELS);
        all.models.drain(..more);
        write_private(&home.models(), &serde_json::to_vec_pretty(&all)?)?;
        Ok(known)
    }
}

/// The file's content; `None` if it is damaged.
fn load(home: &Home) -> io::Result<Option<KnownModels>> {
    match damaged::read(&home.models()) {
        Ok(bytes) => Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(KnownModels::default())),
        Err(error) => Err(error),
    }
}

impl KnownModel {
    /// How many tokens its provider counts for 100 that we estimate; 100 until it was compared.
    pub fn estimate_percent(&self) -> u64 {
        self.estimate_percent.unwrap_or(100).clamp(*ESTIMATE_PERCENT.start(), *ESTIMATE_PERCENT.end())
    }

    /// Takes a comparison into account: the first one as it is, later ones by a fifth.
    pub fn compare(&mut self, estimated: u64, counted: u64) {
        let found = u64::try_from(u128::from(counted) * 100 / u128::from(estimated.max(1))).unwrap_or(u64::MAX);
        let found = found.clamp(*ESTIMATE_PERCENT.start(), *ESTIMATE_PERCENT.end());
        let smoothed = self.estimate_percent.map_or(found, |_| (self.estimate_percent() * 4 + found + 2) / 5);
        self.estimate_percent = Some(smoothed);
    }
}

#[cfg(test)]
mod tests;
