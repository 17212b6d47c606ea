//! A server over HTTP: headers, and signing in to it as a browser would.

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::PermissionsExt,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Form, Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

use super::{FREE, furnished, reported, result, write_servers};

/// The key that opens the server without signing in.
const KEY: &str = "owl-key-5f1e";
/// The token that somebody gets who signed in, and the one that follows it when it is revoked.
const TOKEN: &str = "owl-token-83ac";
const NEXT_TOKEN: &str = "owl-token-c04f";
/// What a client has to say when it asks for a token, where clients have a secret.
const CLIENT_SECRET: &str = "owl-secret-2b9d";
/// The header that names a session.
const SESSION: &str = "mcp-session-id";
/// How long signing in may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A wiki that shows its pages to whoever it knows.
struct Wiki {
    url: String,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The challenge of whoever is signing in.
    challenge: String,
    /// What clients registered as.
    redirects: HashSet<String>,
    /// The resource that the token was asked for.
    resource: String,
    renewed: usize,
    /// Only the next token is taken, although the first one has not ended.
    is_revoked: bool,
    /// What it calls itself instead of its address.
    described: Option<String>,
    /// Whose answer a browser comes back with.
    issuer: Option<String>,
    /// Whether clients have a secret.
    has_secrets: bool,
    /// The only session that it knows, if it has some.
    session: Option<u32>,
}

impl Wiki {
    async fn open() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let wiki = Arc::new(Self { url, seen: Mutex::default() });
        let app = Router::new()
            .route("/mcp", post(answer))
            .route("/.well-known/oauth-protected-resource/mcp", get(resource))
            .route("/.well-known/oauth-authorization-server", get(authorization_server))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(Arc::clone(&wiki));
        tokio::spawn(axum::serve(listener, app).into_future());
        wiki
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("not poisoned")
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let is = |name: &str, expected: &str| headers.get(name).is_some_and(|value| value == expected);
        is("x-key", KEY) || is("authorization", &format!("Bearer {}", self.seen().token()))
    }
}

impl Seen {
    fn token(&self) -> &'static str {
        if self.is_revoked { NEXT_TOKEN } else { TOKEN }
    }
}

async fn answer(State(wiki): State<Arc<Wiki>>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    if !wiki.knows(&headers) {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", wiki.url);
        let asked = format!("Bearer resource_metadata=\"{metadata}\"");
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, asked)]).into_response();
    }
    if message["id"].is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let session = wiki.seen().session.map(|session| session.to_string());
    let is_known = session.as_ref().is_none_or(|own| headers.get(SESSION).is_some_and(|named| named == own.as_str()));
    if !is_known && message["method"] != "initialize" {
        // As server-everything says it.
        let error = json!({ "code": -32000, "message": "Bad Request: No valid session ID provided" });
        return (StatusCode::BAD_REQUEST, Json(json!({ "jsonrpc": "2.0", "error": error }))).into_response();
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "wiki", "version": "2" },
        }),
        "tools/list" => {
            let schema = json!({ "type": "object", "properties": {} });
            json!({ "tools": [{ "name": "page", "description": "Shows it.", "inputSchema": schema }] })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": "Owls live in oaks." }] }),
        _ => {
            let error = json!({ "code": -32601, "message": "not known here" });
            return Json(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })).into_response();
        }
    };
    let named = session.map(|session| [(SESSION, session)]);
    (named, Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))).into_response()
}

async fn resource(State(wiki): State<Arc<Wiki>>) -> Json<Value> {
    let own = wiki.seen().described.clone().unwrap_or_else(|| format!("{}/mcp", wiki.url));
    Json(json!({ "resource": own, "authorization_servers": [wiki.url] }))
}

async fn authorization_server(State(wiki): State<Arc<Wiki>>) -> Json<Value> {
    let at = |path: &str| format!("{}{path}", wiki.url);
    let method = if wiki.seen().has_secrets { "client_secret_basic" } else { "none" };
    Json(json!({
        "token_endpoint_auth_methods_supported": [method],
        "issuer": wiki.url,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"),
        "code_challenge_methods_supported": ["S256"],
    }))
}

async fn register(State(wiki): State<Arc<Wiki>>, Json(wanted): Json<Value>) -> Json<Value> {
    let redirects = wanted["redirect_uris"].as_array().cloned().unwrap_or_default();
    let mut seen = wiki.seen();
    seen.redirects.extend(redirects.iter().filter_map(Value::as_str).map(str::to_owned));
    match seen.has_secrets && wanted["token_endpoint_auth_method"] == "client_secret_basic" {
        true => Json(json!({ "client_id": "client-1", "client_secret": CLIENT_SECRET })),
        false => Json(json!({ "client_id": "client-1" })),
    }
}

/// The page where somebody agrees, which everybody does.
async fn authorize(State(wiki): State<Arc<Wiki>>, Query(asked): Query<HashMap<String, String>>) -> Response {
    let of = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let mut seen = wiki.seen();
    let is_known = of("client_id") == "client-1" && of("response_type") == "code";
    if !is_known || of("code_challenge_method") != "S256" || !seen.redirects.contains(&of("redirect_uri")) {
        return StatusCode::BAD_REQUEST.into_response();
    }
    (seen.challenge, seen.resource) = (of("code_challenge"), of("resource"));
    let issuer = seen.issuer.iter().map(|issuer| format!("&iss={issuer}")).collect::<String>();
    Redirect::to(&format!("{}?code=code-1&state={}{issuer}", of("redirect_uri"), of("state"))).into_response()
}

async fn token(
    State(wiki): State<Arc<Wiki>>,
    headers: HeaderMap,
    Form(asked): Form<HashMap<String, String>>,
) -> Response {
    let of = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
    let mut seen = wiki.seen();
    let is_good = match of("grant_type") {
        "authorization_code" => {
            let made = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(of("code_verifier").as_bytes()));
            of("code") == "code-1" && made == seen.challenge && of("resource") == seen.resource
        }
        "refresh_token" => {
            seen.renewed += 1;
            of("refresh_token") == "refresh-1"
        }
        _ => false,
    };
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("client-1:{CLIENT_SECRET}")));
    let is_known = !seen.has_secrets || headers.get("authorization").is_some_and(|value| value == basic.as_str());
    if !is_good || !is_known {
        return (StatusCode::BAD_REQUEST, Json(json!({ "error": "invalid_grant" }))).into_response();
    }
    // The first token is due at once: the next request of the daemon has it renewed.
    let expires = if of("grant_type") == "refresh_token" { 3_600 } else { 1 };
    let lasting = json!({ "refresh_token": "refresh-1", "token_type": "Bearer", "expires_in": expires });
    let mut token = json!({ "access_token": seen.token() });
    token.as_object_mut().expect("an object").extend(lasting.as_object().cloned().unwrap_or_default());
    Json(token).into_response()
}

/// A viber whose agent uses the wiki, which is configured with these further keys.
async fn reader(wiki: &Wiki, more: Value, script: Vec<Reply>) -> Fixture<Viber> {
    let fixture = furnished(Engine::Sqlite, FREE, &[("wiki", &[])], script).await;
    let mut server = json!({ "url": format!("{}/mcp", wiki.url) });
    server.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    write_servers(&fixture, &format!("    wiki: {server}\n"));
    fixture.running().await
}

#[tokio::test]
async fn a_server_gets_the_headers_of_the_configuration() {
    let wiki = Wiki::open().await;
    let script = vec![Reply::call("mcp__wiki__page", json!({})), Reply::text("Done.")];
    let fixture = reader(&wiki, json!({ "headers": { "X-Key": KEY } }), script).await;
    let task = fixture.play("Read it").await;
    assert_eq!(result(&fixture, &task, 0).await, (true, "Owls live in oaks.".to_owned()));
    let server = reported(&fixture, "wiki", |server| server["state"] == "ready").await;
    assert_eq!((&server["kind"], &server["version"]), (&json!("http"), &json!("wiki 2")));
    assert!(!fixture.viber.log().contains(KEY) && !server.to_string().contains(KEY));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn somebody_signs_in_once_and_tokens_are_renewed() {
    let wiki = Wiki::open().await;
    let mut script = vec![Reply::text("It is closed.")];
    for _ in 0..3 {
        script.extend([Reply::call("mcp__wiki__page", json!({})), Reply::text("Done.")]);
    }
    let fixture = reader(&wiki, json!({}), script).await;
    fixture.play("Read it").await;
    reported(&fixture, "wiki", |server| server["state"] == "auth_required").await;
    let listed = fixture.viber.cli(&["mcp", "list"]).await.good();
    assert!(listed.contains("wiki (sign in) http") && listed.contains("mcp login wiki"), "{listed}");
    let page = fixture.owner().get(&format!("/t/home/vibers/{}", fixture.viber_id)).await.expect(200).body;
    assert!(page.contains("daemon-agent mcp login wiki"), "the viber's page says how");
    sign_in(&fixture.viber).await;
    assert_eq!(wiki.seen().resource, format!("{}/mcp", wiki.url), "the token is for this server");
    let kept = fixture.viber.home().join("secrets/mcp/wiki.json");
    let mode = std::fs::metadata(&kept).expect("the token is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let task = fixture.play("Read it now").await;
    assert_eq!(result(&fixture, &task, 0).await, (true, "Owls live in oaks.".to_owned()));
    assert_eq!(wiki.seen().renewed, 1);
    // The server takes it back before its time.
    wiki.seen().is_revoked = true;
    let task = fixture.play("Read it again").await;
    assert_eq!(result(&fixture, &task, 0).await, (true, "Owls live in oaks.".to_owned()));
    assert_eq!(wiki.seen().renewed, 2);
    // What is kept is torn: nobody is signed in, and somebody can do it again.
    fixture.viber.write_at(&kept, "{\"server\":");
    let task = fixture.play("Read it once more").await;
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(!ok && said.contains("daemon-agent mcp login"), "{said}");
    reported(&fixture, "wiki", |server| server["state"] == "auth_required").await;
    assert!(!fixture.viber.log().contains(TOKEN) && !fixture.viber.log().contains(NEXT_TOKEN));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn nobody_is_signed_in_by_the_answer_of_somebody_else() {
    let wiki = Wiki::open().await;
    let fixture = reader(&wiki, json!({}), vec![]).await;
    let kept = fixture.viber.home().join("secrets/mcp/wiki.json");
    wiki.seen().issuer = Some("https%3A%2F%2Fevil.example.com".to_owned());
    let login = Login::begin(&fixture.viber).await;
    assert!(!login.agreed().await.success() && !kept.exists(), "the answer of another authorization server");
    wiki.seen().issuer = None;
    wiki.seen().described = Some("https://evil.example.com/mcp".to_owned());
    let refused = fixture.viber.cli(&["mcp", "login", "wiki"]).await;
    assert!(refused.code() != 0 && refused.err.contains("describes itself as another server"), "{refused:?}");
    wiki.seen().described = None;
    // Whoever guesses gets nothing, and disturbs nobody.
    let login = Login::begin(&fixture.viber).await;
    let url = reqwest::Url::parse(&login.address).expect("an address");
    let back = url.query_pairs().find(|(name, _)| name == "redirect_uri").expect("a way back").1.into_owned();
    for guess in ["?code=evil&state=guess", "?code=evil", "?error=access_denied"] {
        let answer = browser().get(format!("{back}{guess}")).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 404, "{guess}");
    }
    assert!(login.agreed().await.success() && kept.exists());
}

#[tokio::test]
async fn a_client_with_a_secret_says_it_to_its_authorization_server() {
    let wiki = Wiki::open().await;
    wiki.seen().has_secrets = true;
    let script = vec![Reply::call("mcp__wiki__page", json!({})), Reply::text("Done.")];
    let fixture = reader(&wiki, json!({}), script).await;
    sign_in(&fixture.viber).await;
    let task = fixture.play("Read it").await;
    assert_eq!(result(&fixture, &task, 0).await, (true, "Owls live in oaks.".to_owned()));
    assert_eq!(wiki.seen().renewed, 1, "with the secret, too");
    assert!(!fixture.viber.log().contains(CLIENT_SECRET));
}

#[tokio::test]
async fn a_server_that_was_started_anew_is_greeted_anew() {
    let wiki = Wiki::open().await;
    wiki.seen().session = Some(1);
    let script = vec![
        Reply::call("mcp__wiki__page", json!({})),
        Reply::text("Done."),
        Reply::call("mcp__wiki__page", json!({})),
        Reply::text("Done."),
    ];
    let fixture = reader(&wiki, json!({ "headers": { "X-Key": KEY } }), script).await;
    for session in [1, 2] {
        wiki.seen().session = Some(session);
        let task = fixture.play("Read it").await;
        assert_eq!(result(&fixture, &task, 0).await, (true, "Owls live in oaks.".to_owned()), "session {session}");
    }
}

#[tokio::test]
async fn a_sentence_says_why_an_address_cannot_be_used() {
    let wiki = Wiki::open().await;
    let headers = json!({ "headers": { "Authorization": "Bearer owl-wrong-1" } });
    let fixture = reader(&wiki, headers, vec![]).await;
    let tested = fixture.viber.cli(&["mcp", "test", "wiki"]).await;
    // Nobody can sign in where the configuration says who asks.
    assert!(tested.code() != 0 && tested.out.contains("it refuses the Authorization header"), "{tested:?}");
    assert!(!tested.out.contains("mcp login") && !tested.out.contains("owl-wrong-1"), "{tested:?}");
    for (url, why) in [
        ("http://127.0.0.1:1/mcp?key=owl".to_owned(), "http://127.0.0.1:1/mcp cannot be reached: connection refused"),
        (format!("{}/none", wiki.url), "it answered HTTP 404 Not Found"),
    ] {
        write_servers(&fixture, &format!("    wiki: {}\n", json!({ "url": url })));
        eventually(why, async || {
            let tested = fixture.viber.cli(&["mcp", "test", "wiki"]).await;
            (tested.code() != 0 && tested.out.lines().any(|line| line.trim() == why)).then_some(())
        })
        .await;
    }
}

fn browser() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

/// `mcp login`, with somebody who opens the address that it shows.
async fn sign_in(viber: &Viber) {
    assert!(Login::begin(viber).await.agreed().await.success());
}

/// `mcp login` that waits for somebody.
struct Login {
    child: Child,
    /// What they open in a browser.
    address: String,
    /// The rest of its output.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Login {
    async fn begin(viber: &Viber) -> Self {
        let mut command = Command::from(viber.command(&["mcp", "login", "wiki"]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let told = async {
            loop {
                let line = lines.next_line().await.expect("text").expect("it shows an address");
                if line.starts_with("http") {
                    return line;
                }
            }
        };
        let address = tokio::time::timeout(LOGIN_TIMEOUT, told).await.expect("it shows an address in time");
        Self { child, address, _lines: lines }
    }

    /// Somebody opens the address and agrees; how the command ends.
    async fn agreed(mut self) -> ExitStatus {
        let page = browser().get(&self.address).send().await.expect("a page");
        assert!(page.status().is_success(), "{page:?}");
        tokio::time::timeout(LOGIN_TIMEOUT, self.child.wait()).await.expect("it ends in time").expect("an end")
    }
}
