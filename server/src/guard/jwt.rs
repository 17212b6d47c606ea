//! The session cookie's token: who signed in on which device, for a quarter of an hour.
//!
//! It only names the login; whether that still stands is the login row's to say.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use protocol::{Instant, LoginId, OperatorId};
use serde::{Deserialize, Serialize};

use super::Keys;

/// Life of a token, milliseconds.
pub const LIFE_MS: i64 = 15 * 60 * 1000;
const ISSUER: &str = "viber-board";
const AUDIENCE: &str = "viber-board/pages";
/// RFC 8725, 3.11: says what kind of token it is, so that no other kind passes for it.
const TYPE: &str = "vb-login+jwt";

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    sid: String,
    iat: i64,
    exp: i64,
}

/// What a genuine token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub login: LoginId,
    pub operator: OperatorId,
    /// Past half of its life, or expired: a good login row renews it in the same answer.
    pub stale: bool,
}

/// A token for a login.
pub fn sign(keys: &Keys, login: &LoginId, operator: &OperatorId, now: Instant) -> String {
    let key = keys.signing();
    let header = Header { kid: Some(key.kid.clone()), typ: Some(TYPE.into()), ..Header::new(Algorithm::HS256) };
    let claims = Claims {
        iss: ISSUER.into(),
        aud: AUDIENCE.into(),
        sub: operator.to_string(),
        sid: login.to_string(),
        iat: now.0 / 1000,
        exp: (now.0 + LIFE_MS) / 1000,
    };
    jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&key.bytes))
        .expect("strings and numbers are JSON, and HS256 takes any key")
}

/// Reads a token. `None` when we did not make it: the reason is nobody's business.
///
/// An expired one is read too: `exp` ends what it says by itself, and it says nothing by itself here.
pub fn read(keys: &Keys, token: &str, now: Instant) -> Option<Said> {
    let header = jsonwebtoken::decode_header(token).ok()?;
    if header.alg != Algorithm::HS256 || header.typ.as_deref() != Some(TYPE) {
        return None;
    }
    let key = keys.named(header.kid.as_deref()?)?;
    let mut rules = Validation::new(Algorithm::HS256);
    rules.set_issuer(&[ISSUER]);
    rules.set_audience(&[AUDIENCE]);
    rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
    rules.validate_exp = false;
    let claims = jsonwebtoken::decode::<Claims>(token, &DecodingKey::from_secret(&key.bytes), &rules).ok()?.claims;
    Some(Said {
        login: claims.sid.parse().ok()?,
        operator: claims.sub.parse().ok()?,
        stale: now.0 >= (claims.iat.checked_mul(1000)?).checked_add(LIFE_MS / 2)?,
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000);

    fn keys(folder: &tempfile::TempDir) -> Keys {
        jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default().ok();
        Keys::kept(folder.path(), 1).expect("keys")
    }

    fn forged(header: &str, token: &str) -> String {
        let rest = token.split_once('.').expect("three parts").1;
        format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header))
    }

    #[test]
    fn a_token_is_read_back_and_grows_stale_at_half_its_life() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys(&folder);
        let (login, operator) = (LoginId::new(NOW.0), OperatorId::new(NOW.0));
        let token = sign(&keys, &login, &operator, NOW);
        let said = |at| read(&keys, &token, Instant(NOW.0 + at)).expect("ours");
        assert_eq!(said(0), Said { login, operator, stale: false });
        assert!(!said(LIFE_MS / 2 - 1000).stale && said(LIFE_MS / 2).stale && said(LIFE_MS * 9).stale);
    }

    #[test]
    fn forgeries_are_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys(&folder);
        let token = sign(&keys, &LoginId::new(NOW.0), &OperatorId::new(NOW.0), NOW);
        let kid = &keys.signing().kid;
        let unsigned = token.rsplit_once('.').expect("three parts").0;
        let cases = [
            format!("{unsigned}."),
            forged(&format!(r#"{{"typ":"{TYPE}","alg":"none","kid":"{kid}"}}"#), &token),
            forged(&format!(r#"{{"typ":"{TYPE}","alg":"RS256","kid":"{kid}"}}"#), &token),
            forged(&format!(r#"{{"typ":"JWT","alg":"HS256","kid":"{kid}"}}"#), &token),
            forged(r#"{"typ":"vb-login+jwt","alg":"HS256","kid":"../../dev/null"}"#, &token),
            forged(r#"{"typ":"vb-login+jwt","alg":"HS256","kid":"' OR 1=1"}"#, &token),
            forged(r#"{"typ":"vb-login+jwt","alg":"HS256","jku":"http://127.0.0.1:9/keys"}"#, &token),
            String::new(),
            "a.b.c".into(),
        ];
        for case in cases {
            assert_eq!(read(&keys, &case, NOW), None, "{case}");
        }
        let elsewhere = tempfile::tempdir().expect("a folder");
        let other = self::keys(&elsewhere);
        assert_eq!(read(&other, &token, NOW), None, "another Board's key");
    }
}
