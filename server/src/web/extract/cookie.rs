//! The one cookie of the Board: who is signed in.

use axum::http::{HeaderMap, HeaderValue, header};

use protocol::OperatorId;

use crate::{config::Config, domain::Login, guard::jwt, state::Board};

/// How long a browser keeps the session cookie: as long as an unused login stands.
const LOGIN_SECONDS: i64 = crate::actions::accounts::LOGIN_IDLE_MS / 1000;
/// The session cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie {
    Login,
}

impl Cookie {
    /// `__Host-` cookies exist over https only; on http loopback the plain name is used.
    fn name(self, config: &Config) -> &'static str {
        match (self, config.secure()) {
            (Self::Login, true) => "__Host-vb",
            (Self::Login, false) => "vb",
        }
    }

    /// Its value in a request; `None` when several cookies have its name, because one of them is not ours.
    pub fn read<'a>(self, headers: &'a HeaderMap, config: &Config) -> Option<&'a str> {
        let name = self.name(config);
        let pairs = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut values = pairs
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        let value = values.next()?;
        if values.next().is_some() { None } else { Some(value) }
    }

    /// Whether a request carries it in any form.
    pub fn is_in(self, headers: &HeaderMap, config: &Config) -> bool {
        let start = format!("{}=", self.name(config));
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        lines.flat_map(|line| line.split(';')).any(|pair| pair.trim().starts_with(&start))
    }

    /// The header that sets a login's cookie of this generation.
    pub fn of(self, board: &Board, login: &Login, operator: &OperatorId, generation: u64) -> HeaderValue {
        let now = board.clock.now();
        let claims = jwt::LoginClaims { login: login.id.clone(), operator: operator.clone(), generation };
        let token = jwt::sign(&board.guard.keys(), &claims, now, login.ends_at);
        self.set(&token, &board.config)
    }

    /// The header that sets it. `value` consists of a token's characters.
    fn set(self, value: &str, config: &Config) -> HeaderValue {
        self.header(value, LOGIN_SECONDS, config)
    }

    /// The header that takes it away.
    pub fn clear(self, config: &Config) -> HeaderValue {
        self.header("", 0, config)
    }

    fn header(self, value: &str, seconds: i64, config: &Config) -> HeaderValue {
        let secure = if config.secure() { "; Secure" } else { "" };
        let name = self.name(config);
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
        HeaderValue::from_str(&text).expect("tokens are visible ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_guarded_and_a_doubled_one_is_nobodys() {
        let mut config = Config::local("/tmp/x".into());
        assert_eq!(Cookie::Login.set("t", &config), "vb=t; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000");
        config.public_url = Some("https://b".into());
        let set = Cookie::Login.set("t", &config);
        assert!(set.to_str().expect("text").starts_with("__Host-vb=t; Path=/; HttpOnly; SameSite=Lax"));
        assert!(set.to_str().expect("text").ends_with("; Secure"));
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; __Host-vb=x; c=d"));
        assert_eq!(Cookie::Login.read(&headers, &config), Some("x"));
        headers.append(header::COOKIE, HeaderValue::from_static("__Host-vb=y"));
        assert_eq!(Cookie::Login.read(&headers, &config), None);
        assert!(Cookie::Login.is_in(&headers, &config));
    }
}
