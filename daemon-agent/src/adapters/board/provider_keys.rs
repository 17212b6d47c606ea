//! `provider.key.offer`, `provider.key.set`, `provider.key.remove`: keys of model providers that an admin sends through the
//! Board, where `config.yaml` says `boardKeys: on`.
//!
//! A key comes sealed to a key pair that was made for it a moment before. The private part stays in memory, is used once
//! and forgotten after a minute, so nothing that was recorded on the way opens later or sets a key again.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use protocol::{
    KeyOffer, KeyOfferQuery, KeySource, ProviderKeyChanged, ProviderKeyRemoval, SealedProviderKey, ViberId,
    provider_key::{PROVIDER_KEY_SEAL, is_model_name, is_provider_key, seal_context},
};
use rustls::crypto::{
    aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305 as HPKE,
    hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey},
};
use serde_json::Value;
use zeroize::Zeroizing;

use super::Identity;
use crate::{
    config::{Config, Variables, provider_keys, set_default_model},
    mesh::Mesh,
};

/// How long an offer is good.
const OFFER_TIMEOUT: Duration = Duration::from_secs(60);
/// Offers that are open at the same time; the oldest goes first.
const MAX_OFFERS: usize = 8;
/// How long to wait until the daemon itself has read a changed key. Where the system does not report changed files it takes
/// longer, and the answer says so.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The open offers.
#[derive(Clone, Default)]
pub struct KeyOffers(Arc<Mutex<VecDeque<OpenOffer>>>);

struct OpenOffer {
    id: String,
    provider: String,
    private: HpkePrivateKey,
    until: Instant,
}

impl KeyOffers {
    fn add(&self, provider: &str, now: Instant) -> Result<KeyOffer, String> {
        let (public, private) = HPKE.generate_key_pair().map_err(|error| error.to_string())?;
        let id = BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>());
        let mut offers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        offers.retain(|offer| offer.until > now);
        while offers.len() >= MAX_OFFERS {
            offers.pop_front();
        }
        offers.push_back(OpenOffer {
            id: id.clone(),
            provider: provider.to_owned(),
            private,
            until: now + OFFER_TIMEOUT,
        });
        Ok(KeyOffer { offer: id, public_key: BASE64_URL_SAFE_NO_PAD.encode(public.0) })
    }

    /// Uses up the offer and opens what was sealed for it.
    fn open(&self, viber: &ViberId, sent: &SealedProviderKey, now: Instant) -> Result<Zeroizing<String>, String> {
        let offer = {
            let mut offers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = offers.iter().position(|offer| offer.id == sent.offer);
            found.and_then(|at| offers.remove(at))
        };
        let offer = offer.filter(|offer| offer.until > now && offer.provider == sent.provider);
        let offer = offer.ok_or("the key was sealed for an offer that is used up or too old: send it again")?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let opened = decode(&sent.encapsulated).zip(decode(&sent.sealed)).and_then(|(encapsulated, sealed)| {
            let context = seal_context(viber, &sent.provider, &sent.offer);
            HPKE.open(&EncapsulatedSecret(encapsulated), PROVIDER_KEY_SEAL, &context, &sealed, &offer.private).ok()
        });
        let opened = Zeroizing::new(opened.ok_or("the sealed key does not open: it was sealed for something else")?);
        match std::str::from_utf8(&opened) {
            Ok(key) if is_provider_key(key) => Ok(Zeroizing::new(key.to_owned())),
            _ => Err("that is not a key: one line of visible characters is expected".to_owned()),
        }
    }
}

/// Answers one of the three requests.
pub async fn answer(mesh: &Mesh, identity: &Identity, method: &str, params: &Value) -> Result<Value, String> {
    match method {
        "provider.key.offer" => {
            let asked: KeyOfferQuery = read(params)?;
            provider_keys::check_change(&config(mesh), &asked.provider)?;
            write(&identity.key_offers.add(&asked.provider, Instant::now())?)
        }
        "provider.key.set" => set(mesh, identity, read(params)?).await,
        "provider.key.remove" => remove(mesh, read(params)?).await,
        _ => Err(format!("{} is not built on this viber", protocol::text::head(method, 64))),
    }
}

async fn set(mesh: &Mesh, identity: &Identity, sent: SealedProviderKey) -> Result<Value, String> {
    // Asked again: the file may have changed since the offer.
    provider_keys::check_change(&config(mesh), &sent.provider)?;
    if sent.model.as_deref().is_some_and(|model| !is_model_name(model)) {
        return Err("that is not a model's name".to_owned());
    }
    let key = identity.key_offers.open(&identity.credential.viber_id, &sent, Instant::now())?;
    let (home, provider, written) = (mesh.home().clone(), sent.provider.clone(), key.clone());
    let model = sent.model.map(|model| format!("{}/{model}", sent.provider));
    let wanted = model.clone();
    let saved = tokio::task::spawn_blocking(move || {
        provider_keys::save(&home, &provider, &written).map_err(|error| format!("the key cannot be saved: {error}"))?;
        Ok::<_, String>(wanted.map(|model| set_default_model(&home, &model, &Variables::of_process())))
    });
    let defaults = saved.await.map_err(|error| error.to_string())??;
    tracing::info!(provider = sent.provider, "a provider's key was set from the Board");
    let is_new_model = matches!(defaults, Some(Ok(())));
    let is_read = reloaded(mesh, |config| {
        let has_key = config.providers.get(&sent.provider).is_some_and(|found| found.api_key.as_deref() == Some(&*key));
        has_key && (!is_new_model || config.default_model == model)
    });
    let late = (!is_read.await).then(|| NOT_READ_YET.to_owned());
    write(&ProviderKeyChanged { note: defaults.and_then(Result::err).or(late) })
}

async fn remove(mesh: &Mesh, sent: ProviderKeyRemoval) -> Result<Value, String> {
    provider_keys::check_change(&config(mesh), &sent.provider)?;
    let (home, provider) = (mesh.home().clone(), sent.provider.clone());
    let removed = tokio::task::spawn_blocking(move || provider_keys::remove(&home, &provider));
    let removed = removed.await.map_err(|error| error.to_string())?;
    let removed = removed.map_err(|error| format!("the key cannot be removed: {error}"))?;
    if removed.is_some() {
        tracing::info!(provider = sent.provider, "a provider's key was removed from the Board");
    }
    let source = |config: &Config| config.providers.get(&sent.provider).and_then(|found| found.key_source);
    let is_read = reloaded(mesh, |config| source(config) != Some(KeySource::File)).await;
    let note = match source(&config(mesh)) {
        _ if !is_read => Some(NOT_READ_YET.to_owned()),
        Some(KeySource::Environment) => Some(format!("{} still has a key from the environment.", sent.provider)),
        Some(_) => Some(format!("{} still has a key.", sent.provider)),
        None => None,
    };
    write(&ProviderKeyChanged { note })
}

const NOT_READ_YET: &str = "The daemon has not read it yet; it does so within 30 s.";

/// Waits until the daemon's own configuration is as it should be after a change.
async fn reloaded(mesh: &Mesh, is_so: impl Fn(&Config) -> bool) -> bool {
    let mut files = mesh.files();
    let read = files.wait_for(|files| is_so(&files.config));
    matches!(tokio::time::timeout(RELOAD_TIMEOUT, read).await, Ok(Ok(_)))
}

fn config(mesh: &Mesh) -> Arc<Config> {
    mesh.files().borrow().config.clone()
}

/// The error names a field and its type at most: serde's words would repeat what was sent.
fn read<T: serde::de::DeserializeOwned>(params: &Value) -> Result<T, String> {
    serde_json::from_value(params.clone()).map_err(|_| "bad_request: the request is not understood".to_owned())
}

fn write(answer: &impl serde::Serialize) -> Result<Value, String> {
    serde_json::to_value(answer).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use rustls::crypto::hpke::HpkePublicKey;

    use super::*;

    fn sealed(viber: &ViberId, provider: &str, offer: &KeyOffer, key: &str) -> SealedProviderKey {
        let public = HpkePublicKey(BASE64_URL_SAFE_NO_PAD.decode(&offer.public_key).expect("base64"));
        let context = seal_context(viber, provider, &offer.offer);
        let (encapsulated, sealed) =
            HPKE.seal(PROVIDER_KEY_SEAL, &context, key.as_bytes(), &public).expect("a good public key");
        SealedProviderKey {
            provider: provider.to_owned(),
            offer: offer.offer.clone(),
            encapsulated: BASE64_URL_SAFE_NO_PAD.encode(encapsulated.0),
            sealed: BASE64_URL_SAFE_NO_PAD.encode(sealed),
            model: None,
        }
    }

    #[test]
    fn a_sealed_key_opens_once_in_time_and_for_what_it_was_sealed() {
        let (offers, viber, other) = (KeyOffers::default(), ViberId::new(1), ViberId::new(2));
        let now = Instant::now();
        let offer = |provider: &str| offers.add(provider, now).expect("an offer");
        let good = sealed(&viber, "openai", &offer("openai"), "sk-1");
        assert_eq!(offers.open(&viber, &good, now).expect("open").as_str(), "sk-1");
        assert!(offers.open(&viber, &good, now).is_err(), "a second time");

        let late = sealed(&viber, "openai", &offer("openai"), "sk-1");
        assert!(offers.open(&viber, &late, now + OFFER_TIMEOUT).is_err(), "too late");

        let moved = sealed(&viber, "openai", &offer("openai"), "sk-1");
        let moved = SealedProviderKey { provider: "anthropic".to_owned(), ..moved };
        assert!(offers.open(&viber, &moved, now).is_err(), "another provider");
        let (first, second) = (offer("openai"), offer("anthropic"));
        let swapped = SealedProviderKey { offer: second.offer, ..sealed(&viber, "anthropic", &first, "sk-1") };
        assert!(offers.open(&viber, &swapped, now).is_err(), "another offer");

        let strange = sealed(&other, "openai", &offer("openai"), "sk-1");
        assert!(offers.open(&viber, &strange, now).is_err(), "another viber");
        for bad in ["", "two words", "a\nb"] {
            assert!(offers.open(&viber, &sealed(&viber, "openai", &offer("openai"), bad), now).is_err(), "{bad:?}");
        }
        let mut broken = sealed(&viber, "openai", &offer("openai"), "sk-1");
        broken.encapsulated = "AAAA".to_owned();
        assert!(offers.open(&viber, &broken, now).is_err());
    }

    #[test]
    fn open_offers_are_few() {
        let (offers, now) = (KeyOffers::default(), Instant::now());
        for _ in 0..100 {
            offers.add("openai", now).expect("an offer");
        }
        assert_eq!(offers.0.lock().expect("free").len(), MAX_OFFERS);
        offers.add("openai", now + OFFER_TIMEOUT).expect("an offer");
        assert_eq!(offers.0.lock().expect("free").len(), 1, "old ones are forgotten");
    }

    #[test]
    fn a_refusal_repeats_nothing_of_what_was_sent() {
        let why = read::<SealedProviderKey>(&serde_json::json!({ "provider": 7, "sealed": "sk-secret" }));
        assert!(!why.expect_err("a number").contains("sk-secret"));
    }
}
