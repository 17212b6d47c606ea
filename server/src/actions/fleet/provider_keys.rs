//! Keys of model providers that an admin sends to a viber which allows it. They pass through: nothing here stores or logs
//! one, and the audit says only who changed which provider's key on which viber.

use std::time::Duration;

use protocol::{
    KeyOffer, KeyOfferQuery, KeySource, ProviderInfo, ProviderKeyChanged, ProviderKeyRemoval, TeamId, ViberId,
    provider_key::{MAX_PROVIDER_NAME_BYTES, is_model_name},
    text::head,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    db::{self, audit::Entry},
    domain::{By, ContactState, Viber},
    error::{Error, Result},
    hub::RequestError,
    secret::provider_key::ProviderKey,
    state::Board,
};

/// How long a viber may take to answer. It waits up to 5 s until it has read a changed key itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long to wait until the viber's report of its providers is stored: the next page shows it then.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest part of a viber's own words, bytes.
const MAX_WORDS_BYTES: usize = 300;

/// A key to set.
#[derive(Clone, Debug)]
pub struct NewProviderKey {
    pub provider: String,
    pub key: ProviderKey,
    /// The provider's own name of the model for agents that name none; empty leaves that as it is.
    pub model: String,
}

/// Sends a key to a viber, which keeps it in `secrets/{provider}`. Sending it again is safe.
pub async fn set(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &ViberId,
    new: &NewProviderKey,
) -> Result<ProviderKeyChanged> {
    let NewProviderKey { provider, key, model } = new;
    let viber = changeable(board, team, id, provider).await?;
    if !key.is_plausible() {
        return Err(Error::unacceptable("bad_key", "that is not a key: one line of visible characters is expected"));
    }
    let model = Some(model.trim()).filter(|model| !model.is_empty());
    // With or without the provider in front, as agents' files have it.
    let model = model.map(|model| model.strip_prefix(&format!("{provider}/")).unwrap_or(model).to_owned());
    if model.as_deref().is_some_and(|model| !is_model_name(model)) {
        return Err(Error::unacceptable("bad_model", "a model's name is one word of visible characters"));
    }
    spend(board, id)?;
    let params = json!(KeyOfferQuery { provider: provider.clone() });
    let offer: KeyOffer = ask(board, id, KeyRequest { method: "provider.key.offer", params, key: None }).await?;
    let sealed = key.seal(id, provider, &offer).ok_or_else(strange)?;
    let sealed = protocol::SealedProviderKey { model, ..sealed };
    // Before it leaves: a change that the Board did not live to see is in the audit, too.
    note(board, team, by, &viber, ("provider_key.set", provider)).await?;
    let sent = confirm(board, id, KeyRequest { method: "provider.key.set", params: json!(sealed), key: Some(key) });
    let changed = match sent.await {
        Ok(changed) => changed,
        Err(error) => {
            note(board, team, by, &viber, ("provider_key.unconfirmed", provider)).await?;
            return Err(error);
        }
    };
    reported(board, team, id, |all| source(all, provider) == Some(KeySource::File)).await?;
    Ok(ProviderKeyChanged { note: changed.note.map(|note| head(&key.erase_from(&note), MAX_WORDS_BYTES).to_owned()) })
}

/// Has a viber delete `secrets/{provider}`. One that is not there is deleted already.
pub async fn remove(board: &Board, team: &TeamId, by: &By, id: &ViberId, provider: &str) -> Result<ProviderKeyChanged> {
    let viber = changeable(board, team, id, provider).await?;
    spend(board, id)?;
    note(board, team, by, &viber, ("provider_key.remove", provider)).await?;
    let params = json!(ProviderKeyRemoval { provider: provider.to_owned() });
    let changed = match confirm(board, id, KeyRequest { method: "provider.key.remove", params, key: None }).await {
        Ok(changed) => changed,
        Err(error) => {
            note(board, team, by, &viber, ("provider_key.unconfirmed", provider)).await?;
            return Err(error);
        }
    };
    reported(board, team, id, |all| source(all, provider) != Some(KeySource::File)).await?;
    Ok(ProviderKeyChanged { note: changed.note.map(|note| head(&note, MAX_WORDS_BYTES).to_owned()) })
}

/// A request about a key.
struct KeyRequest<'a> {
    method: &'static str,
    params: Value,
    /// Erased from what the viber says, should it repeat it.
    key: Option<&'a ProviderKey>,
}

/// The viber, if it says that the Board may change this provider's key. The viber itself decides again.
async fn changeable(board: &Board, team: &TeamId, id: &ViberId, provider: &str) -> Result<Viber> {
    let found = db::vibers::load(&mut board.db.reader_of(team).await?, id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    let is_named = provider.len() <= MAX_PROVIDER_NAME_BYTES;
    let known = viber.providers.iter().find(|known| is_named && known.id == provider);
    match known {
        Some(known) if known.accepts_key => {}
        Some(_) => {
            let why = "this viber takes no key for this provider from the Board: set it on the machine";
            return Err(Error::conflict("key_not_accepted", why));
        }
        None => return Err(Error::unacceptable("unknown_provider", "this viber knows no such provider")),
    }
    if viber.contact.state != ContactState::Connected {
        return Err(away());
    }
    Ok(viber)
}

fn spend(board: &Board, id: &ViberId) -> Result<()> {
    let spent = board.guard.login_limits.provider_key(id.as_str(), board.clock.monotonic());
    spent.map_err(|retry_after| Error::Throttled { retry_after })
}

async fn note(board: &Board, team: &TeamId, by: &By, viber: &Viber, what: (&'static str, &str)) -> Result<()> {
    let (id, name, action, provider) = (viber.id.clone(), viber.name.clone(), what.0, what.1.to_owned());
    let noted = board.change(team, by, move |tx| {
        let (id, detail) = (id.clone(), format!("{provider} on {name}"));
        Box::pin(async move { db::audit::append(tx, Entry::new(action, id.as_str()).detail(&detail)).await })
    });
    Ok(noted.await?)
}

async fn confirm(board: &Board, id: &ViberId, change: KeyRequest<'_>) -> Result<ProviderKeyChanged> {
    ask(board, id, change).await
}

async fn ask<T: DeserializeOwned>(board: &Board, id: &ViberId, request: KeyRequest<'_>) -> Result<T> {
    let KeyRequest { method, params, key } = request;
    let answer = board.hub.request(id, method, params, ANSWER_TIMEOUT).await.map_err(|error| match error {
        RequestError::Disconnected => away(),
        RequestError::TimedOut => Error::conflict(
            "viber_silent",
            "the viber did not answer in time: the list says whether the key is there, and sending it again is safe",
        ),
        RequestError::Busy => Error::conflict("viber_busy", "the viber has too much to answer right now: try again"),
        RequestError::Refused(told) => {
            // Erased before it is cut: a part of the key at the end would not be found.
            let told = key.map_or_else(|| told.clone(), |key| key.erase_from(&told));
            Error::unacceptable("viber_refused", head(&told, MAX_WORDS_BYTES))
        }
    })?;
    serde_json::from_value(answer).map_err(|_| strange())
}

fn away() -> Error {
    Error::conflict("viber_away", "the viber is not connected: keys are sent only while it is")
}

fn strange() -> Error {
    Error::unacceptable("viber_refused", "the viber's answer is not understood")
}

/// Waits until what the viber reports of its providers is so, within a limit.
async fn reported(
    board: &Board,
    team: &TeamId,
    id: &ViberId,
    is_so: impl Fn(&[ProviderInfo]) -> bool + Send,
) -> Result<()> {
    let mut changes = board.hub.subscribe(team);
    let until = tokio::time::Instant::now() + REPORT_TIMEOUT;
    loop {
        let viber = db::vibers::load(&mut board.db.reader_of(team).await?, id).await?;
        if viber.is_none_or(|viber| is_so(&viber.providers)) {
            return Ok(());
        }
        if tokio::time::timeout_at(until, changes.next()).await.is_err() {
            return Ok(());
        }
    }
}

fn source(all: &[ProviderInfo], provider: &str) -> Option<KeySource> {
    all.iter().find(|known| known.id == provider)?.key_source
}
