//! The page of a session with 1,000 messages, of which it shows the newest 80, as a signed-in operator loads it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    Scale, client,
    http::{ConnectionError, Http},
    link,
    load::{Latencies, SentEvents},
    machine::{BenchViber, TaskHandling},
    report::{Bound, Measured},
    stage::Stage,
};

const TURNS: usize = 500;
const CONNECTIONS: usize = 8;
/// Markdown with a list, inline code and a block of code, as agents answer.
const ANSWER_MARKDOWN: &str = "I changed **two files** and ran the tests:\\n\\n- `src/lib.rs` keeps the counter\\n- `src/main.rs` prints it\\n\\n```rust\\nfn main() {\\n    println!(\\\"{}\\\", counter::next());\\n}\\n```\\n\\nAll 12 tests pass.";

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let stage = Arc::new(Stage::set(1, 10).await);
    let turns = scale.count(TURNS, 20);
    let session = converse(&stage, turns).await;
    let owner = stage.board.owner().await;
    let cookie = Arc::new(format!("Cookie: {}", owner.cookie().expect("signed in")));
    let path = Arc::new(format!("/t/home/sessions/{session}"));
    let whole = owner.page(&path).await.expect(200).body;
    let shown = whole.matches("data-role=\"").count();

    run(&stage, &cookie, &path, CONNECTIONS, Duration::from_secs(1)).await;
    let watch = stage.watch().await;
    let (_, first) = run(&stage, &cookie, &path, 1, scale.seconds(4)).await;
    let alone = watch.stop(stage.commits().await);
    let watch = stage.watch().await;
    let (took, times) = run(&stage, &cookie, &path, CONNECTIONS, scale.seconds(8)).await;
    let spent = watch.stop(stage.commits().await);
    vec![
        Measured::new("session page, 1,000 messages", "page", times.len(), spent)
            .figure("rate", times.len() as f64 / took.as_secs_f64(), "/s", Bound::AtLeast(1500.0))
            .predecessor(275.0)
            .processor("Board CPU", (1.0, 1e3), "ms/page", Bound::AtMost(0.6))
            .predecessor(3.0)
            .figure("first byte p50, 1 client", first.ms(50.0), "ms", None)
            .figure("first byte p99, 1 client", first.ms(99.0), "ms", Bound::AtMost(50.0))
            .figure("first byte p99, 8", times.ms(99.0), "ms", None)
            .note(format!(
                "{} messages kept, {shown} shown, {} bytes of HTML, not compressed; alone {:.2} ms CPU a page",
                turns * 2,
                whole.len(),
                alone.board / first.len().max(1) as f64 * 1e3,
            )),
    ]
}

/// Fills a session, turn by turn, as it would fill in life.
async fn converse(stage: &Stage, turns: usize) -> String {
    let mut machine = BenchViber::connect(stage, &stage.vibers[0], TaskHandling::StartsOnly).await;
    let mut session: Option<String> = None;
    for turn in 0..turns {
        let mut http = Http::connect(&stage.host, stage.token(turn)).await.expect("the Board listens");
        let goal = format!("Turn {turn}: count the calls and show me the code.");
        let target = match &session {
            Some(session) => client::Target::Session(&machine.id, session),
            None => client::Target::Viber(&machine.id),
        };
        let asked = client::submit(&mut http, target, &goal).await;
        session = Some(asked.expect("a task").1);
        let sent = Arc::new(SentEvents::new(4));
        let (task, attempt) = machine.begun(&sent).await;
        machine
            .say(link::events(
                &task,
                attempt,
                3,
                &[link::text(3, ANSWER_MARKDOWN), link::completed(4, ANSWER_MARKDOWN)],
            ))
            .await;
        while sent.last() < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    session.expect("a turn")
}

/// Loads the page again and again; answers how long it went on, and the times to the first byte.
async fn run(
    stage: &Arc<Stage>,
    cookie: &Arc<String>,
    path: &Arc<String>,
    connections: usize,
    limit: Duration,
) -> (Duration, Latencies) {
    let began = Instant::now();
    let mut all = Vec::new();
    for _ in 0..connections {
        let (stage, cookie, path) = (stage.clone(), cookie.clone(), path.clone());
        all.push(tokio::spawn(async move {
            let mut http = Http::connect(&stage.host, &cookie).await.expect("the Board listens");
            let mut times = Latencies::default();
            while began.elapsed() < limit {
                times.push(load(&mut http, &path).await.expect("a page"));
            }
            times
        }));
    }
    let mut times = Latencies::default();
    for connection in all {
        times.extend(&connection.await.expect("a client does not panic"));
    }
    (began.elapsed(), times)
}

async fn load(http: &mut Http, path: &str) -> Result<Duration, ConnectionError> {
    let began = Instant::now();
    http.send("GET", path, "text/html", "").await?;
    let head = http.head().await?;
    let first = began.elapsed();
    if head.status != 200 {
        return Err(ConnectionError(format!("{path}: {}", head.status)));
    }
    http.body(head, |_| {}).await?;
    Ok(first)
}
