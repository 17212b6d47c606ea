//! What a measure plays on: a Board with a fleet and tokens that were written into its database at once, because joining
//! and signing in by the thousand is not what is measured.

use std::collections::BTreeMap;

use protocol::{Instant, TokenId, ViberId};
use server::{
    db::{self, Db},
    domain::{By, Role, Token},
    secret,
};

use super::proc::Watch;
use crate::board::{Board, Engine, HOME};

/// Whoever has it may read `/metrics`.
const METRICS_TOKEN: &str = "figures-of-the-bench";
/// When everything was made; no measure depends on it.
const MADE: Instant = Instant(1_790_000_000_000);

/// A running Board.
#[derive(Debug)]
pub struct Stage {
    pub board: Board,
    /// `127.0.0.1:port`.
    pub host: String,
    /// The process id of the PostgreSQL server.
    pub server: Option<u32>,
    pub vibers: Vec<EnrolledViber>,
    /// `Authorization: Bearer …`, of operators.
    pub tokens: Vec<String>,
}

/// An enrolled viber.
#[derive(Clone, Debug)]
pub struct EnrolledViber {
    pub id: String,
    pub credential: String,
    pub boot: String,
}

impl Stage {
    /// A Board on SQLite with `vibers` and `tokens`.
    pub async fn set(vibers: usize, tokens: usize) -> Self {
        Self::set_on(Engine::Sqlite, vibers, tokens).await
    }

    /// The same on either database.
    pub async fn set_on(engine: Engine, vibers: usize, tokens: usize) -> Self {
        let board = Board::start_with(engine, &["--metrics-token", METRICS_TOKEN]).await;
        let host = board.url.trim_start_matches("http://").to_owned();
        let server = match engine {
            Engine::Sqlite => None,
            Engine::Postgres => Some(crate::postgres::server_pid(&board.database_url).await),
        };
        let mut stage = Self { board, host, server, vibers: Vec::new(), tokens: Vec::new() };
        stage.vibers = (0..vibers).map(enrolled).collect();
        let secrets: Vec<String> = (0..tokens).map(|n| format!("vbt_bench{n:038}")).collect();
        stage.write(&secrets).await;
        stage.tokens = secrets.iter().map(|secret| format!("Authorization: Bearer {secret}")).collect();
        stage
    }

    async fn write(&self, tokens: &[String]) {
        let db = Db::connect(&self.board.database_url).await.expect("the Board's database");
        let (fleet, tokens) = (self.vibers.clone(), tokens.to_vec());
        let written: Result<(), db::DbError> = db
            .write(move |tx| {
                let (fleet, tokens) = (fleet.clone(), tokens.clone());
                Box::pin(async move {
                    let team = db::teams::by_slug(tx, HOME).await?.expect("the first team").id;
                    for (n, enrolled) in fleet.iter().enumerate() {
                        let viber = db::vibers::NewViber {
                            id: &enrolled.id.parse().expect("an id"),
                            name: &format!("viber {n}"),
                            labels: &BTreeMap::new(),
                            hostname: "lab",
                            platform: "linux/x86_64",
                            version: "0.1.0",
                            credential_hash: &secret::hash(&enrolled.credential),
                        };
                        db::vibers::insert(&mut tx.change(&team, &By::board(), MADE), viber).await?;
                    }
                    for (n, token) in tokens.iter().enumerate() {
                        let kept = Token {
                            id: TokenId::new(MADE.0),
                            name: format!("bench {n}"),
                            role: Role::Operator,
                            created_by: "console".into(),
                            created_at: MADE,
                            seen_at: None,
                            revoked_at: None,
                        };
                        db::tokens::insert(&mut tx.of(&team), &kept, &secret::hash(token)).await?;
                    }
                    Ok(())
                })
            })
            .await;
        db.close().await;
        written.expect("a fleet and tokens");
    }

    /// A token for the `n`th client.
    pub fn token(&self, n: usize) -> &str {
        &self.tokens[n % self.tokens.len()]
    }

    /// Begins to watch the Board's process, and its database server.
    pub async fn watch(&self) -> Watch {
        Watch::start(self.board.pid(), self.commits().await).with_server(self.server)
    }

    /// Commits up to now: each is one fsync of the write-ahead log.
    pub async fn commits(&self) -> u64 {
        let credential = format!("Authorization: Bearer {METRICS_TOKEN}");
        let mut http = super::http::Http::connect(&self.host, &credential).await.expect("the Board listens");
        let (status, body) = http.ask("GET", "/metrics", "").await.expect("figures");
        assert_eq!(status, 200, "/metrics");
        let text = String::from_utf8_lossy(&body);
        let line = text.lines().find_map(|line| line.strip_prefix("viber_board_db_commit_seconds_count "));
        line.and_then(|count| count.trim().parse::<f64>().ok()).map_or(0, whole)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
fn whole(count: f64) -> u64 {
    count as u64
}

fn enrolled(n: usize) -> EnrolledViber {
    EnrolledViber {
        id: ViberId::new(MADE.0).to_string(),
        credential: format!("vbv_bench{n:038}"),
        boot: protocol::BootId::new(MADE.0).to_string(),
    }
}
