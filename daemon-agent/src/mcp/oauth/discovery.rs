//! Where somebody signs in to a server, and as which client: asked of the server itself, then of its authorization server.

use std::{net::Ipv4Addr, time::Duration};

use reqwest::{StatusCode, Url, header::WWW_AUTHENTICATE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Longest answer that is read, bytes.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// How a client says who it is when it asks for a token, in the order in which it is done.
const NO_SECRET: &str = "none";
const SECRET_IN_HEADER: &str = "client_secret_basic";
const SECRET_IN_FORM: &str = "client_secret_post";
/// The name under which the daemon registers.
const CLIENT_NAME: &str = "Viber daemon-agent";

/// An authorization server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizationServer {
    pub issuer: String,
    pub authorization: Url,
    pub token: Url,
    pub registration: Option<Url>,
    /// The server that tokens are for.
    pub resource: String,
    /// What the server asks for, or else the description of its resource.
    pub scope: Option<String>,
    /// How it wants to know a client that asks for a token.
    pub auth_method: &'static str,
    /// Whether its answers say whose they are: one that does not is then somebody else's.
    pub names_itself: bool,
}

/// As which client the daemon asks.
pub struct OAuthClient {
    pub id: String,
    pub secret: Option<ClientSecret>,
}

/// What an authorization server gave a client that it knows by a secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecret {
    pub secret: String,
    /// Whether it goes into a header, else into the form.
    pub in_header: bool,
}

/// The client for these requests. It follows no redirect: what it sends is for one server alone.
pub fn client() -> Result<reqwest::Client, String> {
    let client = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).redirect(reqwest::redirect::Policy::none());
    client.build().map_err(|error| error.to_string())
}

/// Finds the authorization server of the MCP server at `server`.
pub async fn discover(client: &reqwest::Client, server: &Url) -> Result<AuthorizationServer, String> {
    let (described, scope) = resource_metadata(client, server).await?;
    let resource = described["resource"].as_str().map_or_else(|| without_fragment(server), str::to_owned);
    // A description of another server would have tokens sent that are not meant for this one.
    if !Url::parse(&resource).is_ok_and(|described| is_about(&described, server)) {
        return Err(format!("{server} describes itself as another server"));
    }
    let origin = server.origin().ascii_serialization();
    let issuer = described["authorization_servers"][0].as_str().unwrap_or(&origin).to_owned();
    let issuer_url = named_by(server, &issuer)?;
    let mut last = String::new();
    for address in metadata_addresses(&issuer_url) {
        match json_at(client, &address).await {
            Ok(metadata) => {
                let found = authorization_server(&issuer, &metadata, resource, &described)?;
                return Ok(AuthorizationServer { scope: scope.or(found.scope), ..found });
            }
            Err(why) => last = why,
        }
    }
    Err(format!("{issuer} does not say how one signs in: {last}"))
}

fn authorization_server(
    issuer: &str,
    metadata: &Value,
    resource: String,
    described: &Value,
) -> Result<AuthorizationServer, String> {
    let said = metadata["issuer"].as_str().unwrap_or_default();
    if said.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(format!("{issuer} calls itself {}", protocol::text::head(said, 200)));
    }
    let methods = metadata["code_challenge_methods_supported"].as_array();
    if !methods.is_some_and(|methods| methods.iter().any(|method| method == "S256")) {
        return Err(format!("{issuer} does not support PKCE with S256"));
    }
    let own = safe_url(&resource)?;
    let address = |key: &str| metadata[key].as_str().map(|text| named_by(&own, text)).transpose();
    let needed = |key: &str| address(key)?.ok_or_else(|| format!("{issuer} has no {key}"));
    let scopes = described["scopes_supported"].as_array();
    let scope = scopes.map(|scopes| scopes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "));
    let known = metadata["token_endpoint_auth_methods_supported"].as_array();
    let is_offered = |method: &str| known.is_none_or(|all| all.iter().any(|one| one == method));
    let auth_method = [NO_SECRET, SECRET_IN_HEADER, SECRET_IN_FORM].into_iter().find(|method| is_offered(method));
    Ok(AuthorizationServer {
        // As it says it: its answers name it by the same letters.
        issuer: said.to_owned(),
        authorization: needed("authorization_endpoint")?,
        token: needed("token_endpoint")?,
        registration: address("registration_endpoint")?,
        resource,
        scope: scope.filter(|scope| !scope.is_empty()),
        auth_method: auth_method.unwrap_or(NO_SECRET),
        names_itself: metadata["authorization_response_iss_parameter_supported"] == true,
    })
}

/// Whether a description of `resource` is about the server at `server`: that very place, or one above it.
fn is_about(resource: &Url, server: &Url) -> bool {
    let rest = server.path().strip_prefix(resource.path().trim_end_matches('/'));
    resource.origin() == server.origin() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// An address that `server` names. A server elsewhere has this machine asked for nothing that only this machine can reach.
fn named_by(server: &Url, text: &str) -> Result<Url, String> {
    let url = safe_url(text)?;
    match is_local(&url) && !is_local(server) {
        true => Err(format!("{server} names {url}, an address of this machine")),
        false => Ok(url),
    }
}

impl AuthorizationServer {
    /// One that is nowhere.
    #[cfg(test)]
    pub fn sample(resource: &str) -> Self {
        let url = Url::parse("https://a").expect("an address");
        let (authorization, token) = (url.clone(), url);
        let (issuer, resource) = ("https://a".to_owned(), resource.to_owned());
        let (registration, scope, auth_method, names_itself) = (None, None, NO_SECRET, false);
        Self { issuer, authorization, token, registration, resource, scope, auth_method, names_itself }
    }

    /// Registers a client that is sent back to `redirect`.
    pub async fn register(&self, client: &reqwest::Client, redirect: &str) -> Result<OAuthClient, String> {
        let Some(address) = self.registration.clone() else {
            return Err(format!(
                "{} does not let clients register: name one with `clientId` beside the url in config.yaml",
                self.issuer
            ));
        };
        let wanted = json!({
            "client_name": CLIENT_NAME,
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": self.auth_method,
            "application_type": "native",
        });
        let answer = answer(client.post(address).json(&wanted)).await?;
        let id = answer["client_id"].as_str().ok_or_else(|| format!("{} registered no client", self.issuer))?;
        // It may choose another way than the one that was asked for.
        let method = answer["token_endpoint_auth_method"].as_str().unwrap_or(self.auth_method);
        let secret = answer["client_secret"].as_str().filter(|_| method != NO_SECRET);
        let in_header = method != SECRET_IN_FORM;
        let secret = secret.map(|secret| ClientSecret { secret: secret.to_owned(), in_header });
        Ok(OAuthClient { id: id.to_owned(), secret })
    }
}

/// What the server says about itself, an empty object if it says nothing; and the scope that it asks for when it is called.
async fn resource_metadata(client: &reqwest::Client, server: &Url) -> Result<(Value, Option<String>), String> {
    let probe = client.post(server.clone()).json(&json!({})).send().await;
    let response = probe.map_err(|error| format!("{server} does not answer: {error}"))?;
    let (mut addresses, mut scope) = (Vec::new(), None);
    if response.status() == StatusCode::UNAUTHORIZED {
        let asked = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|header| header.to_str().ok());
        let asked: Vec<&str> = asked.collect();
        let named = asked.iter().filter_map(|header| parameter(header, "resource_metadata"));
        addresses.extend(named.filter_map(|address| named_by(server, &address).ok()));
        scope = asked.iter().find_map(|header| parameter(header, "scope")).filter(|scope| !scope.is_empty());
    }
    let path = server.path().trim_end_matches('/');
    for well_known in
        [format!("/.well-known/oauth-protected-resource{path}"), "/.well-known/oauth-protected-resource".into()]
    {
        addresses.extend(server.join(&well_known));
    }
    for address in addresses {
        if let Ok(metadata) = json_at(client, &address).await {
            return Ok((metadata, scope));
        }
    }
    Ok((json!({}), scope))
}

/// The value of `name` in `Bearer name="…"`.
fn parameter(header: &str, name: &str) -> Option<String> {
    let named = format!("{name}=");
    let mut places = header.match_indices(&named);
    let begins = |at: usize| header[..at].ends_with([' ', ',', '\t']);
    let (at, _) = places.find(|(at, _)| begins(*at))?;
    let rest = &header[at + named.len()..];
    let end = |c: char| c == ',' || c.is_whitespace();
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(address, _)| address.to_owned()),
        None => rest.split(end).next().map(str::to_owned),
    }
}

/// Where the metadata of an issuer may lie, in the order in which it is asked for.
fn metadata_addresses(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    places.iter().filter_map(|place| issuer.join(place).ok()).collect()
}

/// An address that nobody on the way can read, or one on this machine.
pub fn safe_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{}: {error}", protocol::text::head(text, 200)))?;
    let is_safe = url.scheme() == "https" || url.scheme() == "http" && is_local(&url);
    if is_safe && url.username().is_empty() && url.password().is_none() {
        Ok(url)
    } else {
        Err(format!("{} is not an https address", protocol::text::head(text, 200)))
    }
}

/// Whether the address is one of this machine.
fn is_local(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let is_loopback = host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
        host == "localhost" || host == "[::1]" || is_loopback
    })
}

fn without_fragment(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.to_string().trim_end_matches('/').to_owned()
}

async fn json_at(client: &reqwest::Client, address: &Url) -> Result<Value, String> {
    answer(client.get(address.clone())).await
}

/// The answer of a request, as JSON.
pub async fn answer(request: reqwest::RequestBuilder) -> Result<Value, String> {
    let mut response = request.send().await.map_err(|error| error.without_url().to_string())?;
    let status = response.status();
    let mut whole = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| error.without_url().to_string())? {
        whole.extend_from_slice(&piece);
        if whole.len() > MAX_ANSWER_BYTES {
            return Err("the answer is too long".to_owned());
        }
    }
    let answer: Value = serde_json::from_slice(&whole).unwrap_or_default();
    if status.is_success() && answer.is_object() {
        return Ok(answer);
    }
    let why = answer["error_description"].as_str().or(answer["error"].as_str()).unwrap_or("not what was expected");
    Err(format!("HTTP {status}: {}", protocol::text::printable(protocol::text::head(why, 300))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_metadata_follow_the_issuer() {
        let at = |issuer: &str| {
            let url = Url::parse(issuer).expect("an address");
            metadata_addresses(&url).iter().map(Url::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            at("https://auth.example.com"),
            [
                "https://auth.example.com/.well-known/oauth-authorization-server",
                "https://auth.example.com/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            at("https://auth.example.com/t1")[2],
            "https://auth.example.com/t1/.well-known/openid-configuration"
        );
        let named = r#"Bearer error="x", resource_metadata="https://a/.well-known/x", scope="y""#;
        assert_eq!(parameter(named, "resource_metadata").as_deref(), Some("https://a/.well-known/x"));
        assert_eq!(parameter(named, "scope").as_deref(), Some("y"));
        assert_eq!(parameter(named, "metadata"), None, "a part of a name");
    }

    #[test]
    fn secrets_go_nowhere_in_the_clear() {
        for good in ["https://a/x", "http://127.0.0.1:8/x", "http://localhost/x"] {
            assert!(safe_url(good).is_ok(), "{good}");
        }
        for bad in ["http://a/x", "ftp://a", "https://u:p@a/", "http://127.0.0.1.example.com/"] {
            assert!(safe_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_server_speaks_for_itself_and_not_for_this_machine() {
        let url = |text: &str| Url::parse(text).expect("an address");
        for (resource, is_good) in [
            ("https://a/x/mcp", true),
            ("https://a/x/mcp/", true),
            ("https://a/x", true),
            ("https://a", true),
            ("https://a/y/mcp", false),
            ("https://a/x/m", false),
            ("https://b/x/mcp", false),
            ("http://a/x/mcp", false),
        ] {
            assert_eq!(is_about(&url(resource), &url("https://a/x/mcp")), is_good, "{resource}");
        }
        let (far, near) = (url("https://a/mcp"), url("http://127.0.0.1:9/mcp"));
        for local in ["http://127.0.0.1:80/x", "http://localhost/x", "https://[::1]/x"] {
            assert!(named_by(&far, local).is_err() && named_by(&near, local).is_ok(), "{local}");
        }
        assert!(named_by(&far, "https://auth.example.com").is_ok());
    }

    #[test]
    fn an_authorization_server_without_pkce_or_of_another_name_is_refused() {
        let good = json!({ "issuer": "https://a", "authorization_endpoint": "https://a/authorize",
            "token_endpoint": "https://a/token", "code_challenge_methods_supported": ["S256"] });
        let read = |metadata: &Value| authorization_server("https://a", metadata, "https://r".to_owned(), &json!({}));
        assert!(read(&good).is_ok());
        for (key, value) in [
            ("issuer", json!("https://b")),
            ("code_challenge_methods_supported", json!(["plain"])),
            ("token_endpoint", json!("http://a/token")),
            ("token_endpoint", json!("http://127.0.0.1:80/token")),
        ] {
            let mut other = good.clone();
            other[key] = value;
            assert!(read(&other).is_err(), "{key}");
        }
    }
}
