//! Keys of model providers that people send to a viber through the Board: the requests, and what a sealed key is bound to.
//!
//! The viber makes a key pair for each offer, the Board seals to its public part (HPKE, RFC 9180, base mode:
//! DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305), and the offer is used up by the first answer to it.
//! Binary values are base64 (URL alphabet, no padding). Owns shapes and checks; seals nothing itself.

use serde::{Deserialize, Serialize};

use crate::ids::ViberId;

/// Longest key of a provider, bytes.
pub const MAX_PROVIDER_KEY_BYTES: usize = 8 * 1024;
/// Longest name of a provider that the Board sends, bytes.
pub const MAX_PROVIDER_NAME_BYTES: usize = 64;
/// Longest name of a model that the Board sends, bytes.
pub const MAX_MODEL_NAME_BYTES: usize = 200;
/// HPKE's `info`: a seal for anything else does not open.
pub const PROVIDER_KEY_SEAL: &[u8] = b"viber-board provider key v1";

/// Where a provider's key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum KeySource {
    /// `secrets/{provider}` on the viber.
    File,
    /// A variable of the daemon's environment or of the home's `.env`.
    Environment,
    /// `apiKey` in `config.yaml`, which has precedence over the others.
    Config,
    /// One that this side does not know.
    #[serde(other)]
    Unknown,
}

/// `provider.key.offer`: asks for a public key to seal a provider's key to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyOfferQuery {
    pub provider: String,
}

/// The answer: good for one key of this provider, within a minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyOffer {
    /// Random.
    pub offer: String,
    /// 32 bytes.
    pub public_key: String,
}

/// `provider.key.set`: a key, sealed for an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedProviderKey {
    pub provider: String,
    pub offer: String,
    /// HPKE's encapsulated secret.
    pub encapsulated: String,
    pub sealed: String,
    /// The provider's own name of the model for agents that name none; `None` leaves that as it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub model: Option<String>,
}

/// The answer to `provider.key.set` and `provider.key.remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderKeyChanged {
    /// What people should know, such as a key that is still there from the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `provider.key.remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderKeyRemoval {
    pub provider: String,
}

/// HPKE's associated data: a key that was sealed for one viber, provider and offer opens for no other. A viber belongs to
/// one team, so its id stands for the team, too.
pub fn seal_context(viber: &ViberId, provider: &str, offer: &str) -> Vec<u8> {
    let mut context = Vec::new();
    for part in [viber.as_str(), provider, offer] {
        context.extend((part.len() as u64).to_le_bytes());
        context.extend(part.as_bytes());
    }
    context
}

/// Whether `text` can be a provider's key: visible ASCII characters without spaces.
pub fn is_provider_key(text: &str) -> bool {
    (1..=MAX_PROVIDER_KEY_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Whether `name` can be a provider's own name of a model, as the Board sends it.
pub fn is_model_name(name: &str) -> bool {
    (1..=MAX_MODEL_NAME_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_differ_in_every_part_and_keys_are_one_visible_word() {
        let (one, other) = (ViberId::new(1), ViberId::new(2));
        let all = [
            seal_context(&one, "openai", "o"),
            seal_context(&other, "openai", "o"),
            seal_context(&one, "openaio", ""),
            seal_context(&one, "openai", "p"),
        ];
        for (n, context) in all.iter().enumerate() {
            assert!(all.iter().skip(n + 1).all(|other| other != context));
        }
        assert!(is_provider_key("sk-1") && is_provider_key(&"k".repeat(MAX_PROVIDER_KEY_BYTES)));
        for bad in ["", "two words", "a\nb", "schlüssel", "a\0", &"k".repeat(MAX_PROVIDER_KEY_BYTES + 1)] {
            assert!(!is_provider_key(bad), "{bad:?}");
        }
        assert!(is_model_name("claude-sonnet-4-5") && is_model_name("meta/llama:8b") && !is_model_name("a b"));
    }

    #[test]
    fn a_source_from_a_newer_daemon_is_no_error() {
        let read: KeySource = serde_json::from_str("\"vault\"").expect("read");
        assert_eq!(read, KeySource::Unknown);
    }
}
