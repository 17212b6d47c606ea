//! A59: a daemon speaks to its Board or to nobody. Each refusal is seen from the other side, by a listener that keeps
//! every byte; a daemon that may speak shows that the listener would have heard it.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use board_tests::{
    Viber,
    canary::Canary,
    programs::ProgramOutput,
    wait::{EVENT_TIMEOUT, SLACK},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::json;

/// Answers everybody with the same bytes.
struct Listener {
    port: u16,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    connections: AtomicUsize,
    /// As they came, and what TLS made of them.
    bytes: Mutex<Vec<u8>>,
    plain: Mutex<Vec<u8>>,
}

impl Listener {
    fn start(answer: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let heard = Arc::new(Heard::default());
        let (shared, answer) = (heard.clone(), answer.to_owned());
        // Ends with the test's process.
        std::thread::spawn(move || {
            for line in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let (shared, answer, tls) = (shared.clone(), answer.clone(), tls.clone());
                std::thread::spawn(move || {
                    line.set_read_timeout(Some(Duration::from_millis(500) * SLACK)).expect("a time-out");
                    let mut line = Tap { line, shared: shared.clone() };
                    match tls {
                        None => talk(&mut line, &shared, &answer),
                        Some(config) => {
                            let mut server = rustls::ServerConnection::new(config).expect("a server");
                            talk(&mut rustls::Stream::new(&mut server, &mut line), &shared, &answer);
                        }
                    }
                });
            }
        });
        Self { port, heard }
    }

    fn connections(&self) -> usize {
        self.heard.connections.load(Ordering::SeqCst)
    }

    /// Everything that was heard, in the clear or not.
    fn heard(&self) -> String {
        let bytes = self.heard.bytes.lock().expect("not poisoned");
        let plain = self.heard.plain.lock().expect("not poisoned");
        format!("{}{}", String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&plain))
    }
}

/// Keeps what is read from the line.
struct Tap {
    line: std::net::TcpStream,
    shared: Arc<Heard>,
}

impl Read for Tap {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = self.line.read(into)?;
        self.shared.bytes.lock().expect("not poisoned").extend_from_slice(&into[..n]);
        Ok(n)
    }
}

impl Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.line.flush()
    }
}

/// Reads a request to its end, or until nothing more comes, and answers.
fn talk(line: &mut (impl Read + Write), heard: &Heard, answer: &str) {
    let mut buffer = [0; 4096];
    let mut request = Vec::new();
    while let Ok(n) = line.read(&mut buffer) {
        if n == 0 {
            break;
        }
        request.extend_from_slice(&buffer[..n]);
        heard.plain.lock().expect("not poisoned").extend_from_slice(&buffer[..n]);
        if request.ends_with(b"\r\n\r\n") && !request.starts_with(b"POST") || request.ends_with(b"}") {
            break;
        }
    }
    // Whoever hung up does not want it.
    let _ = line.write_all(answer.as_bytes()).and_then(|()| line.flush());
}

const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// `daemon-agent ARGS` on this machine; with a certificate authority that it trusts beside its own.
async fn agent(viber: &Viber, args: &[&str], trusts: Option<&Path>) -> ProgramOutput {
    let mut command = viber.command(args);
    if let Some(file) = trusts {
        command.env("SSL_CERT_FILE", file);
    }
    let run = board_tests::programs::run(command, "");
    tokio::time::timeout(EVENT_TIMEOUT, run).await.expect("it ends by itself")
}

/// A machine that was enrolled at `board`, as its own file says.
fn enrolled(board: &str, credential: &str) -> Viber {
    let viber = Viber::fresh("lab");
    let state = viber.home().join("state");
    std::fs::create_dir_all(&state).expect("folders");
    let text = json!({"viberId": protocol::ViberId::new(1), "credential": credential, "boardUrl": board});
    let path = state.join("credential");
    std::fs::write(&path, text.to_string()).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    viber
}

fn bad(said: &ProgramOutput, why: &str) {
    assert_ne!(said.code(), 0, "{said:#?}");
    assert!(said.err.contains(why), "{said:#?}");
}

#[tokio::test]
async fn a59_an_address_in_the_clear_is_refused_before_anything_is_dialled() {
    let listener = Listener::start(NOT_FOUND, None);
    let (token, credential) = (Canary::new("the join token"), Canary::new("the viber's credential"));
    // 0.0.0.0 is no loopback address to the daemon, and leads to this machine: who dials is heard.
    for scheme in ["http", "ws"] {
        for host in ["0.0.0.0", "localhost.", "[::ffff:127.0.0.1]"] {
            let url = format!("{scheme}://{host}:{}", listener.port);
            let said = agent(&Viber::fresh("lab"), &["join", &url, &token.secret], None).await;
            bad(&said, "not encrypted");
            assert_eq!(said.code(), 78, "{said:#?}");
            let said = agent(&enrolled(&url, &credential.secret), &["run", "--once"], None).await;
            bad(&said, "not encrypted");
        }
    }
    assert_eq!(listener.connections(), 0);
    // Somebody who says that this is a test lab is heard: the listener is no deaf one.
    let url = format!("http://0.0.0.0:{}", listener.port);
    let said = agent(&Viber::fresh("lab"), &["join", &url, &token.secret, "--insecure"], None).await;
    bad(&said, "404");
    assert!(listener.heard().contains(&token.secret));
    credential.not_in("the listener", &listener.heard());
}

#[tokio::test]
async fn a59_a_redirect_is_not_followed() {
    let second = Listener::start(NOT_FOUND, None);
    let there = format!("http://127.0.0.1:{}", second.port);
    let (token, credential) = (Canary::new("the join token"), Canary::new("the viber's credential"));
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let answer = format!(
            "HTTP/1.1 {status}\r\nLocation: {there}/api/daemon/join\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let first = Listener::start(&answer, None);
        let here = format!("http://127.0.0.1:{}", first.port);
        let viber = Viber::fresh("lab");
        let said = agent(&viber, &["join", &here, &token.secret], None).await;
        bad(&said, "redirects elsewhere");
        assert!(!viber.home().join("state/credential").exists());
        let said = agent(&enrolled(&here, &credential.secret), &["run", "--once"], None).await;
        bad(&said, &status[..3]);
        assert!(first.heard().contains(&credential.secret), "the first one is the Board it was made for");
    }
    assert_eq!(second.connections(), 0);
}

/// Who signs, and what was signed.
struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { params, key: KeyPair::generate().expect("a key") }
    }

    fn pem(&self) -> String {
        self.params.self_signed(&self.key).expect("a certificate").pem()
    }

    /// A server with a certificate for `name`, good in these years.
    fn server(&self, name: &str, years: (i32, i32)) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(years.0, 1, 1), rcgen::date_time_ymd(years.1, 1, 1));
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let chain = vec![CertificateDer::from_pem_slice(certificate.pem().as_bytes()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(chain, key);
        Arc::new(config.expect("a configuration"))
    }
}

#[tokio::test]
async fn a59_a_certificate_that_is_not_the_boards_ends_it() {
    let (trusted, stranger) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, trusted.pem()).expect("a file");
    let (token, credential) = (Canary::new("the join token"), Canary::new("the viber's credential"));
    let good = (2020, 2090);
    let wrong = [
        ("of a stranger", stranger.server("127.0.0.1", good)),
        ("of another name", trusted.server("board.example.org", good)),
        ("of another address", trusted.server("127.0.0.2", good)),
        ("of the past", trusted.server("127.0.0.1", (2020, 2021))),
        ("of the future", trusted.server("127.0.0.1", (2089, 2090))),
    ];
    for (what, config) in wrong {
        let listener = Listener::start(NOT_FOUND, Some(config));
        for scheme in ["https", "wss"] {
            let url = format!("{scheme}://127.0.0.1:{}", listener.port);
            let viber = Viber::fresh("lab");
            let said = agent(&viber, &["join", &url, &token.secret], Some(&file)).await;
            bad(&said, "cannot be reached");
            // Nor does the flag for a lab make a certificate good: it is about addresses in the clear.
            bad(&agent(&viber, &["join", &url, &token.secret, "--insecure"], Some(&file)).await, "cannot be reached");
            let said = agent(&enrolled(&url, &credential.secret), &["run", "--once"], Some(&file)).await;
            bad(&said, "cannot be reached");
            assert!(!said.err.contains(&credential.secret), "{said:#?}");
        }
        assert_eq!(listener.connections(), 6, "it was dialled: {what}");
        let plain = listener.heard.plain.lock().expect("not poisoned").clone();
        assert!(plain.is_empty(), "{what}: {}", String::from_utf8_lossy(&plain));
        for secret in [&token, &credential] {
            secret.not_in("the listener", &listener.heard());
        }
    }
    // The same daemon with the same file gives both to a Board that proves to be the one.
    let listener = Listener::start(NOT_FOUND, Some(trusted.server("127.0.0.1", good)));
    let url = format!("https://127.0.0.1:{}", listener.port);
    bad(&agent(&Viber::fresh("lab"), &["join", &url, &token.secret], Some(&file)).await, "404");
    bad(&agent(&enrolled(&url, &credential.secret), &["run", "--once"], Some(&file)).await, "404");
    for secret in [&token, &credential] {
        assert!(listener.heard().contains(&secret.secret), "it is heard by the right one");
    }
}
