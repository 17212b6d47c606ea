//! Signing in to a server over HTTP: OAuth with PKCE in a browser, and what is kept of it.
//!
//! Owns the files in `secrets/mcp/`. What they hold goes to the server and its authorization server, and nowhere else.

mod discovery;

use std::{io, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use protocol::Instant;
use reqwest::{Url, header::CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::Mutex,
    time::timeout,
};

use self::discovery::{AuthorizationServer, ClientSecret, OAuthClient, answer, client, discover, safe_url};
use crate::{
    clock::Clock,
    home::{Home, read_plain, write_private},
};

/// How long somebody may take to sign in.
const SIGN_IN_TIMEOUT: Duration = Duration::from_secs(600);
/// A token that ends sooner is renewed before it is used, milliseconds.
const RENEWAL_MARGIN_MS: i64 = 60_000;
/// Longest request line of a browser that comes back, bytes.
const MAX_REQUEST_BYTES: u64 = 16 * 1024;

/// What somebody got when they signed in.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignIn {
    /// The server that it is for: it is sent to no other.
    pub server: String,
    client_id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    client_secret: Option<ClientSecret>,
    token_endpoint: String,
    resource: String,
    access_token: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    refresh_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    expires_at: Option<Instant>,
}

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").field("server", &self.server).finish_non_exhaustive()
    }
}

impl SignIn {
    /// What is kept of `name`; `None` if nobody signed in. Blocks.
    pub fn read(home: &Home, name: &str) -> Option<Self> {
        serde_json::from_str(&read_plain(&home.mcp_sign_in(name)).ok()?).ok()
    }

    fn write(&self, home: &Home, name: &str) -> io::Result<()> {
        write_private(&home.mcp_sign_in(name), &serde_json::to_vec(self)?)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|at| at.millis() - RENEWAL_MARGIN_MS <= now.millis())
    }

    /// The same with what a token endpoint answered.
    fn renewed(&self, answer: &Value, now: Instant) -> Option<Self> {
        let text = |key: &str| answer[key].as_str().map(str::to_owned);
        let seconds = answer["expires_in"].as_i64().filter(|seconds| *seconds > 0);
        Some(Self {
            access_token: text("access_token")?,
            // One that is not replaced stays.
            refresh_token: text("refresh_token").or_else(|| self.refresh_token.clone()),
            expires_at: seconds.map(|seconds| Instant(now.millis().saturating_add(seconds.saturating_mul(1000)))),
            ..self.clone()
        })
    }
}

/// The tokens of one server, renewed when it is time. Cheap to clone.
#[derive(Clone)]
pub struct Tokens {
    home: Home,
    name: String,
    server: String,
    clock: Clock,
    /// Held while one is renewed: a refresh token may be used once.
    turn: RenewalTurn,
}

/// Whose turn it is to renew the tokens of one server: every connection to it has the same.
pub type RenewalTurn = Arc<Mutex<()>>;

impl Tokens {
    /// Those of the server `name` at the address `server`.
    pub fn of(home: &Home, name: &str, server: &str, clock: &Clock, turn: RenewalTurn) -> Self {
        let (home, name, server) = (home.clone(), name.to_owned(), server.to_owned());
        Self { home, name, server, clock: clock.clone(), turn }
    }

    /// The bearer token for the next request; `None` if nobody signed in. With `refused`, one that the server did not take:
    /// another one, or `None` if there is none.
    pub async fn current(&self, refused: Option<&str>) -> Option<String> {
        let _turn = self.turn.lock().await;
        let (home, name) = (self.home.clone(), self.name.clone());
        let kept = tokio::task::spawn_blocking(move || SignIn::read(&home, &name)).await.ok()??;
        // The address in the configuration may be another one by now.
        if kept.server != self.server {
            return None;
        }
        let is_refused = refused == Some(kept.access_token.as_str());
        if !is_refused && !kept.is_due(self.clock.now()) {
            return Some(kept.access_token);
        }
        match self.renew(&kept).await {
            Ok(renewed) => Some(renewed.access_token),
            Err(why) => {
                tracing::warn!(server = self.name, "a token for an MCP server could not be renewed: {why}");
                Some(kept.access_token).filter(|_| !is_refused)
            }
        }
    }

    async fn renew(&self, kept: &SignIn) -> Result<SignIn, String> {
        let refresh = kept.refresh_token.clone().ok_or("it has ended, and somebody has to sign in again")?;
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("resource", kept.resource.as_str()),
        ];
        let own = OAuthClient { id: kept.client_id.clone(), secret: kept.client_secret.clone() };
        let answer = token_answer(&client()?, &safe_url(&kept.token_endpoint)?, &own, &form).await?;
        let renewed = kept.renewed(&answer, self.clock.now()).ok_or("the answer has no token")?;
        let (home, name, kept) = (self.home.clone(), self.name.clone(), renewed.clone());
        let written = tokio::task::spawn_blocking(move || kept.write(&home, &name)).await;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(renewed)
    }
}

/// What is asked for when somebody signs in.
pub struct SignInRequest<'r> {
    pub home: &'r Home,
    pub clock: &'r Clock,
    pub name: &'r str,
    pub url: &'r str,
    pub client_id: Option<&'r str>,
    pub scope: Option<&'r str>,
}

/// Has somebody sign in: `show` gets the address that they open in a browser. They come back to this machine, or paste the
/// address that the browser then shows into `pasted`.
pub async fn sign_in(
    request: SignInRequest<'_>,
    show: impl FnOnce(&str),
    pasted: impl Future<Output = Option<String>>,
) -> Result<(), String> {
    let server = safe_url(request.url)?;
    let http = client()?;
    let found = discover(&http, &server).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let redirect = format!("http://127.0.0.1:{port}/callback");
    let own = match request.client_id {
        Some(id) => OAuthClient { id: id.to_owned(), secret: None },
        None => found.register(&http, &redirect).await?,
    };
    let (verifier, state) = (random(), random());
    let asked = Asked { client_id: &own.id, redirect: &redirect, state: &state, verifier: &verifier };
    show(asked.address(&found, request.scope).as_str());
    let came_back = async {
        tokio::select! {
            address = visitor(&listener, &redirect, |address| asked.is_answer(address)) => address,
            Some(address) = pasted => Ok(address),
        }
    };
    let address = timeout(SIGN_IN_TIMEOUT, came_back).await.map_err(|_| "nobody signed in within ten minutes")??;
    let code = asked.code(&found, &address)?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("redirect_uri", redirect.as_str()),
        ("code_verifier", verifier.as_str()),
        ("resource", found.resource.as_str()),
    ];
    let answer = token_answer(&http, &found.token, &own, &form).await?;
    let empty = SignIn {
        server: request.url.to_owned(),
        client_id: own.id.clone(),
        client_secret: own.secret.clone(),
        token_endpoint: found.token.to_string(),
        resource: found.resource.clone(),
        access_token: String::new(),
        refresh_token: None,
        expires_at: None,
    };
    let kept = empty.renewed(&answer, request.clock.now()).ok_or("the answer has no token")?;
    kept.write(request.home, request.name).map_err(|error| format!("it cannot be kept: {error}"))
}

/// A request of a person to sign in.
struct Asked<'a> {
    client_id: &'a str,
    redirect: &'a str,
    state: &'a str,
    verifier: &'a str,
}

impl Asked<'_> {
    /// What a browser opens.
    fn address(&self, at: &AuthorizationServer, scope: Option<&str>) -> Url {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()));
        let mut address = at.authorization.clone();
        {
            let mut query = address.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", self.client_id)
                .append_pair("redirect_uri", self.redirect)
                .append_pair("state", self.state)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256")
                .append_pair("resource", &at.resource);
            if let Some(scope) = scope.or(at.scope.as_deref()) {
                query.append_pair("scope", scope);
            }
        }
        address
    }

    /// Whether somebody came back with the answer to this request.
    fn is_answer(&self, address: &str) -> bool {
        let state = Url::parse(address.trim()).ok().and_then(|url| in_query(&url, "state")).unwrap_or_default();
        bool::from(state.as_bytes().ct_eq(self.state.as_bytes()))
    }

    /// The code in the address that somebody came back with.
    fn code(&self, at: &AuthorizationServer, address: &str) -> Result<String, String> {
        let url = Url::parse(address.trim()).map_err(|error| format!("that is no address: {error}"))?;
        let value = |name: &str| in_query(&url, name);
        if !self.is_answer(address) {
            return Err("that is not the answer to this request: sign in once more".to_owned());
        }
        // Whoever mixes up two authorization servers is told apart by it.
        let is_its_own = match value("iss") {
            Some(issuer) => issuer == at.issuer,
            None => !at.names_itself,
        };
        if !is_its_own {
            return Err("the answer is of another authorization server".to_owned());
        }
        if let Some(error) = value("error") {
            let why = value("error_description").unwrap_or(error);
            return Err(format!("not signed in: {}", protocol::text::printable(protocol::text::head(&why, 300))));
        }
        value("code").ok_or_else(|| "the answer has no code".to_owned())
    }
}

fn in_query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Waits for the browser that comes back; returns the address that it asks for. Whoever else comes is shown nothing.
async fn visitor(listener: &TcpListener, redirect: &str, is_answer: impl Fn(&str) -> bool) -> Result<String, String> {
    let origin = redirect.trim_end_matches("/callback");
    loop {
        let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        let (reader, mut writer) = stream.into_split();
        let (mut line, mut rest) = (String::new(), String::new());
        let mut reader = BufReader::new(reader.take(MAX_REQUEST_BYTES));
        let reading = async {
            reader.read_line(&mut line).await?;
            // All of it, so that the browser is not cut off while it still sends.
            while reader.read_line(&mut rest).await? > 2 {}
            io::Result::Ok(())
        };
        let _ = timeout(Duration::from_secs(5), reading).await;
        let path = line.split(' ').nth(1).unwrap_or_default();
        let address = format!("{origin}{path}");
        let is_it = line.starts_with("GET ") && path.starts_with("/callback?") && is_answer(&address);
        let (status, said) = match is_it {
            true => ("200 OK", "You can close this page and go back to the terminal."),
            false => ("404 Not Found", "Nothing is here."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}",
            said.len()
        );
        let _ = timeout(Duration::from_secs(5), writer.write_all(answer.as_bytes())).await;
        if is_it {
            return Ok(address);
        }
    }
}

async fn token_answer(
    client: &reqwest::Client,
    endpoint: &Url,
    own: &OAuthClient,
    form: &[(&str, &str)],
) -> Result<Value, String> {
    let mut encoded = endpoint.clone();
    encoded.set_query(None);
    encoded.query_pairs_mut().extend_pairs(form).append_pair("client_id", &own.id);
    let mut request = client.post(endpoint.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    match &own.secret {
        Some(ClientSecret { secret, in_header: true }) => request = request.basic_auth(&own.id, Some(secret)),
        Some(ClientSecret { secret, in_header: false }) => {
            encoded.query_pairs_mut().append_pair("client_secret", secret);
        }
        None => {}
    }
    answer(request.body(encoded.query().unwrap_or_default().to_owned())).await
}

/// 256 random bits as text.
fn random() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept() -> SignIn {
        SignIn {
            server: "https://wiki.example.com/mcp".to_owned(),
            client_id: "c".to_owned(),
            client_secret: None,
            token_endpoint: "https://a/token".to_owned(),
            resource: "https://wiki.example.com/mcp".to_owned(),
            access_token: "at1".to_owned(),
            refresh_token: Some("rt1".to_owned()),
            expires_at: Some(Instant(100_000)),
        }
    }

    #[test]
    fn tokens_are_renewed_in_time_and_kept_from_others() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        let first = kept();
        assert!(!first.is_due(Instant(30_000)) && first.is_due(Instant(50_000)));
        first.write(&home, "wiki").expect("written");
        let mode = std::fs::metadata(home.mcp_sign_in("wiki")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!format!("{first:?}").contains("at1"));
        let renewed =
            first.renewed(&json!({ "access_token": "at2", "expires_in": 60 }), Instant(50_000)).expect("a token");
        assert_eq!((renewed.access_token.as_str(), renewed.refresh_token.as_deref()), ("at2", Some("rt1")));
        assert_eq!(renewed.expires_at, Some(Instant(110_000)));
        assert!(first.renewed(&json!({ "error": "invalid_grant" }), Instant(0)).is_none());
    }

    #[tokio::test]
    async fn a_token_goes_to_no_other_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        kept().write(&home, "wiki").expect("written");
        let clock = Clock::fixed(Instant(0));
        let tokens = |url: &str| Tokens::of(&home, "wiki", url, &clock, RenewalTurn::default());
        assert_eq!(tokens("https://wiki.example.com/mcp").current(None).await.as_deref(), Some("at1"));
        assert_eq!(
            tokens("https://wiki.example.com/mcp").current(Some("at0")).await.as_deref(),
            Some("at1"),
            "another"
        );
        assert_eq!(tokens("https://evil.example.com/mcp").current(None).await, None);
    }

    #[test]
    fn only_the_answer_to_this_request_has_a_code() {
        let at = AuthorizationServer {
            issuer: "https://a".to_owned(),
            authorization: Url::parse("https://a/authorize?tenant=1").expect("an address"),
            token: Url::parse("https://a/token").expect("an address"),
            ..sample()
        };
        let asked = Asked { client_id: "c", redirect: "http://127.0.0.1:9/callback", state: "s", verifier: "v" };
        let address = asked.address(&at, Some("read"));
        for part in ["tenant=1", "code_challenge_method=S256", "scope=read", "resource=https%3A%2F%2Fr"] {
            assert!(address.as_str().contains(part), "{address}");
        }
        assert!(!address.as_str().contains("=v&"), "the verifier stays here");
        let code = |query: &str| asked.code(&at, &format!("http://127.0.0.1:9/callback?{query}"));
        assert_eq!(code("code=x&state=s&iss=https%3A%2F%2Fa"), Ok("x".to_owned()));
        for bad in [
            "code=x&state=t",
            "code=x",
            "code=x&state=s&iss=https%3A%2F%2Fb",
            "code=x&state=s&iss=https%3A%2F%2Fa%2F",
            "error=access_denied&state=s",
        ] {
            assert!(code(bad).is_err(), "{bad}");
        }
        assert!(asked.is_answer("http://127.0.0.1:9/callback?state=s") && !asked.is_answer("/callback?state=s"));
        // One that says whose its answers are has none without that.
        let named = AuthorizationServer { names_itself: true, ..at.clone() };
        let code = |query: &str| asked.code(&named, &format!("http://127.0.0.1:9/callback?{query}"));
        assert_eq!(code("code=x&state=s&iss=https%3A%2F%2Fa"), Ok("x".to_owned()));
        assert!(code("code=x&state=s").is_err());
    }

    fn sample() -> AuthorizationServer {
        AuthorizationServer::sample("https://r")
    }
}
