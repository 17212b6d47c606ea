//! The token in the session cookie: who signed in on which device, and the cookie's generation within that login.
//!
//! It only names the login. Whether that login is still valid, and whether an older cookie of it is accepted, is decided by
//! the login's row.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use protocol::{Instant, LoginId, OperatorId};
use serde::{Deserialize, Serialize};

use super::Keys;

/// The longest life of a token, milliseconds: as long as an unused login stays valid.
pub const MAX_LIFE_MS: i64 = 30 * 24 * 3600 * 1000;
const ISSUER: &str = "viber-board";
const AUDIENCE: &str = "viber-board/pages";
/// The kind of the token, so that no other kind passes for it (RFC 8725, 3.11).
const TOKEN_TYPE: &str = "vb-login+jwt";

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    sid: String,
    /// Absent in a token from a Board that did not count generations: it counts as the first cookie of its login, and its
    /// `exp` is ignored.
    #[serde(rename = "gen", default, skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    iat: i64,
    exp: i64,
}

/// The content of a genuine token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginClaims {
    pub login: LoginId,
    pub operator: OperatorId,
    /// Which cookie of the login it is.
    pub generation: u64,
}

/// Makes a token for a login, valid until `expires` at most.
pub fn sign(keys: &Keys, claims: &LoginClaims, now: Instant, expires: Instant) -> String {
    let key = keys.signing();
    let header = Header { kid: Some(key.kid.clone()), typ: Some(TOKEN_TYPE.into()), ..Header::new(Algorithm::HS256) };
    let claims = Claims {
        iss: ISSUER.into(),
        aud: AUDIENCE.into(),
        sub: claims.operator.to_string(),
        sid: claims.login.to_string(),
        generation: Some(claims.generation),
        iat: now.0 / 1000,
        exp: expires.0.min(now.0 + MAX_LIFE_MS) / 1000,
    };
    jsonwebtoken::encode(&header, &claims, &EncodingKey::from_secret(&key.bytes))
        .expect("strings and numbers are JSON, and HS256 takes any key")
}

/// Reads a token. `None` when it is not ours or has expired; the reason is not told.
pub fn read(keys: &Keys, token: &str, now: Instant) -> Option<LoginClaims> {
    let header = jsonwebtoken::decode_header(token).ok()?;
    if header.alg != Algorithm::HS256 || header.typ.as_deref() != Some(TOKEN_TYPE) {
        return None;
    }
    let key = keys.named(header.kid.as_deref()?, now.0)?;
    let mut rules = Validation::new(Algorithm::HS256);
    rules.set_issuer(&[ISSUER]);
    rules.set_audience(&[AUDIENCE]);
    rules.set_required_spec_claims(&["exp", "aud", "iss", "sub"]);
    // By our own clock, below.
    rules.validate_exp = false;
    let claims = jsonwebtoken::decode::<Claims>(token, &DecodingKey::from_secret(&key.bytes), &rules).ok()?.claims;
    let is_expired = claims.exp.checked_mul(1000)? <= now.0 && claims.generation.is_some();
    if is_expired || claims.iat.checked_mul(1000).is_none() {
        return None;
    }
    Some(LoginClaims {
        login: claims.sid.parse().ok()?,
        operator: claims.sub.parse().ok()?,
        generation: claims.generation.unwrap_or(0),
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
    fn a_token_is_read_back_until_it_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys(&folder);
        let (login, operator) = (LoginId::new(NOW.0), OperatorId::new(NOW.0));
        let claims = LoginClaims { login, operator, generation: 7 };
        let until = |ms: i64| sign(&keys, &claims, NOW, Instant(NOW.0 + ms));
        let short = until(60_000);
        assert_eq!(read(&keys, &short, Instant(NOW.0 + 59_000)), Some(claims.clone()));
        assert_eq!(read(&keys, &short, Instant(NOW.0 + 60_000)), None);
        let long = until(i64::MAX - NOW.0);
        assert_eq!(read(&keys, &long, Instant(NOW.0 + MAX_LIFE_MS - 1000)), Some(claims.clone()));
        assert_eq!(read(&keys, &long, Instant(NOW.0 + MAX_LIFE_MS)), None);
    }

    fn claims() -> LoginClaims {
        LoginClaims { login: LoginId::new(NOW.0), operator: OperatorId::new(NOW.0), generation: 0 }
    }

    #[test]
    fn a_key_that_is_over_verifies_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = keys(&folder);
        let token = sign(&old, &claims(), NOW, Instant(i64::MAX));
        let rotated = Keys::rotate(folder.path(), NOW.0).expect("keys");
        assert!(read(&rotated, &token, Instant(NOW.0 + MAX_LIFE_MS - 1000)).is_some());
        let fresh = Keys::start_over(folder.path(), NOW.0 + 1).expect("keys");
        assert_eq!(read(&fresh, &token, NOW), None);
    }

    #[test]
    fn forgeries_are_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = keys(&folder);
        let token = sign(&keys, &claims(), NOW, Instant(i64::MAX));
        let kid = &keys.signing().kid;
        let unsigned = token.rsplit_once('.').expect("three parts").0;
        let cases = [
            format!("{unsigned}."),
            forged(&format!(r#"{{"typ":"{TOKEN_TYPE}","alg":"none","kid":"{kid}"}}"#), &token),
            forged(&format!(r#"{{"typ":"{TOKEN_TYPE}","alg":"RS256","kid":"{kid}"}}"#), &token),
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
