//! The page of a session with 1,000 messages, of which it shows the newest 80, as a signed-in operator loads it; and
//! what it and a cold home page take over the wire, compressed.

use std::{
    collections::BTreeSet,
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
const HOME_PATH: &str = "/t/home";
/// The relations of a `link` whose file a browser loads together with the page.
const LOADED_RELATIONS: &[&str] = &["stylesheet", "icon", "preload", "modulepreload"];
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
    let home = owner.page(HOME_PATH).await.expect(200).body;
    let wire = over_the_wire(&stage, &cookie, &home, &path).await.expect("pages and their files");
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
        wire,
    ]
}

/// What a browser without a cache receives for the home page, and what it receives for the session page after that.
async fn over_the_wire(stage: &Stage, cookie: &str, html: &str, session: &str) -> Result<Measured, ConnectionError> {
    let files = loaded_files(html);
    assert!(!files.is_empty(), "a page without a style sheet: {html}");
    let mut http = Http::connect(&stage.host, cookie).await?;
    http.accept_encoding("br, gzip");
    let watch = stage.watch().await;
    let (_, page) = load(&mut http, HOME_PATH).await?;
    let mut home = page;
    for file in &files {
        home += load(&mut http, file).await?.1;
    }
    let (_, session) = load(&mut http, session).await?;
    let spent = watch.stop(stage.commits().await);
    Ok(Measured::new("over the wire", "answer", files.len() + 2, spent)
        .figure("home, cold, over the wire", home as f64 / 1e3, "KB", Bound::AtMost(60.0))
        .figure("the session page itself, over the wire", session as f64 / 1e3, "KB", Bound::AtMost(40.0))
        .note(format!(
            "bodies as received by a client that accepts br and gzip; the cold home is {:.1} KB of HTML and {} files",
            page as f64 / 1e3,
            files.len()
        )))
}

/// The files of the same origin that a page names: style sheets, scripts, icons, and what is to be loaded early.
pub fn loaded_files(html: &str) -> BTreeSet<&str> {
    let tags = html.split('<').filter_map(|rest| rest.split('>').next());
    tags.filter_map(|tag| {
        let address = match tag.split_whitespace().next()? {
            "link" if LOADED_RELATIONS.contains(&attribute(tag, "rel")?) => attribute(tag, "href")?,
            "script" => attribute(tag, "src")?,
            "use" => attribute(tag, "href")?,
            _ => return None,
        };
        let path = address.split('#').next()?;
        (path.starts_with('/') && !path.starts_with("//")).then_some(path)
    })
    .collect()
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let start = format!(" {name}=\"");
    tag.split_once(start.as_str())?.1.split('"').next()
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
                times.push(load(&mut http, &path).await.expect("a page").0);
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

/// Answers the time to the first byte, and how many bytes the body has as it is received.
async fn load(http: &mut Http, path: &str) -> Result<(Duration, usize), ConnectionError> {
    let began = Instant::now();
    http.send("GET", path, "text/html,*/*;q=0.8", "").await?;
    let head = http.head().await?;
    let first = began.elapsed();
    if head.status != 200 {
        return Err(ConnectionError(format!("{path}: {}", head.status)));
    }
    let mut bytes = 0;
    http.body(head, |piece| bytes += piece.len()).await?;
    Ok((first, bytes))
}
