//! Artifacts: what vibers announce, how their bytes come to readers and stay, and files that operators attach.

mod attach;
mod cards;
mod deltas;
mod fetch;
mod hostile;
mod pages;
mod quota;
mod s3;

use std::time::Duration;

use board_tests::{Board, Engine, FakeDaemon, Fixture, fake_daemon::progress};
use protocol::{FromDaemon, ToDaemon};
use reqwest::{Method, header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Something that the viber has.
#[derive(Clone, Debug)]
struct Thing {
    id: String,
    bytes: Vec<u8>,
    sha256: String,
}

/// What the Board asked the viber to put.
struct Offer {
    id: u64,
    params: Value,
}

/// A viber with a running task.
async fn working(engine: Engine) -> Fixture<FakeDaemon> {
    working_at(Board::start(engine).await).await
}

async fn working_at(board: Board) -> Fixture<FakeDaemon> {
    let mut fixture = Fixture::at(board).with_fake().await;
    fixture.begin("make something").await;
    fixture
}

/// What a viber has in the task that it works on, and how its bytes come to readers.
trait Artifacts {
    /// The viber tells of something that it has.
    async fn has(&mut self, name: &str, bytes: Vec<u8>) -> Thing;
    /// The same with other words.
    async fn announces(&mut self, name: &str, bytes: Vec<u8>, more: Value) -> Thing;
    async fn report(&mut self, event: &Value);
    /// The facts of an artifact.
    async fn facts(&self, thing: &Thing) -> Value;
    /// Reads an artifact in the background, from `range` on when there is one.
    fn reader(&self, thing: &Thing, range: Option<&str>) -> tokio::task::JoinHandle<Read>;
    /// What the Board asks the viber to put.
    async fn offered(&mut self) -> Offer;
    async fn answer(&mut self, offer: &Offer, outcome: Result<Value, &str>);
    /// The viber puts bytes; answers the status, and how far the Board is when it says so.
    async fn put(&self, thing: &Thing, bytes: Vec<u8>, range: Option<String>) -> (u16, Option<String>);
    /// The Board asks, the viber puts all of it.
    async fn gives(&mut self, thing: &Thing);
}

impl Artifacts for Fixture<FakeDaemon> {
    async fn has(&mut self, name: &str, bytes: Vec<u8>) -> Thing {
        let sniffed = protocol::sniff::sniff(&bytes);
        self.announces(name, bytes, json!({ "sniffed": sniffed })).await
    }

    async fn announces(&mut self, name: &str, bytes: Vec<u8>, more: Value) -> Thing {
        let id = protocol::ArtifactId::new(1_700_000_000_000 + i64::try_from(self.seq()).expect("few")).to_string();
        let sha256 = sha256(&bytes);
        let mut artifact = json!({
            "id": name, "title": name, "ref": format!("artifacts/{}/{name}", self.task()), "artifactId": id,
            "size": bytes.len(), "sha256": sha256,
        });
        for (key, value) in more.as_object().expect("fields") {
            artifact[key] = value.clone();
        }
        self.report(&json!({ "type": "artifact", "artifact": artifact })).await;
        Thing { id, bytes, sha256 }
    }

    async fn report(&mut self, event: &Value) {
        self.tell(vec![progress(event)]).await;
    }

    async fn facts(&self, thing: &Thing) -> Value {
        self.operator.get(&format!("/api/v1/artifacts/{}", thing.id)).await.expect(200).json()
    }

    fn reader(&self, thing: &Thing, range: Option<&str>) -> tokio::task::JoinHandle<Read> {
        let mut request = self.operator.request(Method::GET, &format!("/api/v1/artifacts/{}/content", thing.id));
        if let Some(range) = range {
            request = request.header(header::RANGE, range);
        }
        tokio::spawn(read(request))
    }

    async fn offered(&mut self) -> Offer {
        self.viber
            .until("an offer", |frame| match frame {
                ToDaemon::Request { id, method, params } if method == "artifact.offer" => {
                    Some(Offer { id: *id, params: params.clone() })
                }
                _ => None,
            })
            .await
    }

    async fn answer(&mut self, offer: &Offer, outcome: Result<Value, &str>) {
        let frame = match outcome {
            Ok(result) => FromDaemon::Response { id: offer.id, ok: true, result, error: None },
            Err(why) => {
                FromDaemon::Response { id: offer.id, ok: false, result: Value::Null, error: Some(why.to_owned()) }
            }
        };
        self.viber.send(&frame).await;
    }

    async fn put(&self, thing: &Thing, bytes: Vec<u8>, range: Option<String>) -> (u16, Option<String>) {
        let url = format!("{}/api/daemon/blobs/{}", self.board.url, thing.id);
        let mut request = reqwest::Client::new()
            .put(url)
            .bearer_auth(&self.viber.credential)
            .header("x-content-sha256", &thing.sha256)
            .header(header::CONTENT_LENGTH, bytes.len());
        if let Some(range) = range {
            request = request.header(header::CONTENT_RANGE, range);
        }
        let answer = request.body(bytes).send().await.expect("an answer");
        let range = answer.headers().get(header::RANGE).map(|range| range.to_str().expect("text").to_owned());
        (answer.status().as_u16(), range)
    }

    async fn gives(&mut self, thing: &Thing) {
        let offer = self.offered().await;
        assert_eq!(offer.params["artifactId"], thing.id.as_str());
        assert_eq!(offer.params["sha256"], thing.sha256.as_str());
        self.answer(&offer, Ok(json!({ "size": thing.bytes.len() }))).await;
        assert_eq!(self.put(thing, thing.bytes.clone(), None).await.0, 201);
    }
}

/// What a reader got.
#[derive(Debug)]
struct Read {
    status: u16,
    headers: header::HeaderMap,
    /// The bytes, and whether it was all that was promised.
    bytes: Vec<u8>,
    whole: bool,
}

impl Read {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

async fn read(request: reqwest::RequestBuilder) -> Read {
    let mut answer = match request.timeout(Duration::from_secs(60)).send().await {
        Ok(answer) => answer,
        // A connection may be ended before its head is on the way: the reader has nothing, and knows it.
        Err(error) if error.is_request() && !error.is_connect() && !error.is_timeout() => {
            return Read { status: 0, headers: header::HeaderMap::new(), bytes: Vec::new(), whole: false };
        }
        Err(error) => panic!("an answer: {error:?}"),
    };
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let mut bytes = Vec::new();
    let whole = loop {
        match answer.chunk().await {
            Ok(Some(piece)) => bytes.extend_from_slice(&piece),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    Read { status, headers, bytes, whole }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that differ from place to place.
fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8 | 0x80).collect()
}
