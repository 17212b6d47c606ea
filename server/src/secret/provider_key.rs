//! A model provider's key on its way from a form to a viber: held in memory only while the request lasts, overwritten
//! afterwards, silent in `Debug`, and readable only by sealing it.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use protocol::{
    KeyOffer, SealedProviderKey, ViberId,
    provider_key::{PROVIDER_KEY_SEAL, is_provider_key, seal_context},
};
use rustls::crypto::{
    aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305 as HPKE,
    hpke::{Hpke as _, HpkePublicKey},
};
use serde::Deserialize;
use zeroize::Zeroizing;

/// A key as it was sent.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "String")]
pub struct ProviderKey(Zeroizing<String>);

impl From<String> for ProviderKey {
    fn from(sent: String) -> Self {
        let sent = Zeroizing::new(sent);
        Self(Zeroizing::new(sent.trim().to_owned()))
    }
}

impl std::fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProviderKey(…)")
    }
}

impl ProviderKey {
    /// Whether it looks like a key.
    pub fn is_plausible(&self) -> bool {
        is_provider_key(&self.0)
    }

    /// Sealed for one offer of a viber, so that nobody else can open it; `None` if the offer's public key is none.
    pub fn seal(&self, viber: &ViberId, provider: &str, offer: &KeyOffer) -> Option<SealedProviderKey> {
        let public = HpkePublicKey(BASE64_URL_SAFE_NO_PAD.decode(&offer.public_key).ok()?);
        let context = seal_context(viber, provider, &offer.offer);
        let (encapsulated, sealed) = HPKE.seal(PROVIDER_KEY_SEAL, &context, self.0.as_bytes(), &public).ok()?;
        Some(SealedProviderKey {
            provider: provider.to_owned(),
            offer: offer.offer.clone(),
            encapsulated: BASE64_URL_SAFE_NO_PAD.encode(encapsulated.0),
            sealed: BASE64_URL_SAFE_NO_PAD.encode(sealed),
            model: None,
        })
    }

    /// `text` without this key: a viber may repeat in its answer what it was sent.
    pub fn erase_from(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(self.0.as_str(), "…") }
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::hpke::EncapsulatedSecret;

    use super::*;

    #[test]
    fn a_key_is_silent_and_opens_with_the_vibers_private_part_alone() {
        let key = ProviderKey::from(" sk-very-secret\n".to_owned());
        assert!(key.is_plausible() && !ProviderKey::from("two words".to_owned()).is_plausible());
        assert_eq!(format!("{key:?}"), "ProviderKey(…)");
        assert_eq!(key.erase_from("what is sk-very-secret?"), "what is …?");
        let ((public, private), (_, other)) =
            (HPKE.generate_key_pair().expect("a pair"), HPKE.generate_key_pair().expect("a pair"));
        let offer = KeyOffer { offer: "o1".to_owned(), public_key: BASE64_URL_SAFE_NO_PAD.encode(public.0) };
        let viber = ViberId::new(1);
        let sealed = key.seal(&viber, "openai", &offer).expect("a good public key");
        assert!(!serde_json::to_string(&sealed).expect("JSON").contains("secret"));
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64");
        let open = |context: &[u8], private| {
            let encapsulated = EncapsulatedSecret(decode(&sealed.encapsulated));
            HPKE.open(&encapsulated, PROVIDER_KEY_SEAL, context, &decode(&sealed.sealed), private)
        };
        let context = seal_context(&viber, "openai", "o1");
        assert_eq!(open(&context, &private).expect("opens"), b"sk-very-secret");
        assert!(open(&context, &other).is_err());
        assert!(open(&seal_context(&viber, "anthropic", "o1"), &private).is_err());
        for bad in ["", "AAAA", "not base64"] {
            let offer = KeyOffer { offer: "o1".to_owned(), public_key: bad.to_owned() };
            assert!(key.seal(&viber, "openai", &offer).is_none(), "{bad}");
        }
    }
}
