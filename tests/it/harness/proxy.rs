//! The faulty network does what it says, and nothing else.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use board_tests::{
    Board, Engine, FakeDaemon, Person, Proxy, Viber,
    board::HOME,
    eventually,
    programs::free_port,
    proxy::{FrameKind, Hole},
    wait::{EVENT_TIMEOUT, SLACK},
};
use futures_util::{SinkExt, StreamExt};
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, tungstenite::Message};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A server that says back what it hears.
async fn echo() -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listener = tokio::net::TcpListener::bind(address).await.expect("loopback");
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("loopback");
            tokio::spawn(async move {
                let mut socket = tokio_tungstenite::accept_async(stream).await.expect("loopback");
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() && socket.send(message).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

async fn dial(proxy: &Proxy) -> Socket {
    tokio_tungstenite::connect_async(proxy.url().replacen("http", "ws", 1)).await.expect("loopback").0
}

async fn say(socket: &mut Socket, words: &[&str]) {
    for word in words {
        socket.send(Message::text(*word)).await.expect("loopback");
    }
}

/// The next text; "" when the connection is over, "-" when nothing comes for `limit`.
async fn hear_within(socket: &mut Socket, limit: Duration) -> String {
    loop {
        match tokio::time::timeout(limit, socket.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => return text.to_string(),
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return String::new(),
            Ok(Some(Ok(_))) => {}
            Err(_) => return "-".into(),
        }
    }
}

async fn hear(socket: &mut Socket, many: usize) -> Vec<String> {
    let mut heard = Vec::new();
    while heard.len() < many {
        heard.push(hear_within(socket, EVENT_TIMEOUT).await);
    }
    heard
}

/// Between two words on a connection that is closed when it is idle for [`SLACK`] times as long.
const IDLE_PAUSE: Duration = Duration::from_millis(200);
/// Long enough to say that nothing comes.
const QUIET_TIME: Duration = Duration::from_millis(300);

#[tokio::test]
async fn frames_are_passed_lost_repeated_and_reversed() {
    let proxy = Proxy::to(echo().await, 1).await;
    let mut socket = dial(&proxy).await;
    let words = ["a", "b", "c", "d"];
    say(&mut socket, &words).await;
    assert_eq!(hear(&mut socket, 4).await, words);
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.up, counts.down, counts.dropped, counts.copied), (1, 4, 4, 0, 0));

    proxy.up(|up| up.drop = Some(Arc::new(|frame| frame.kind == FrameKind::Data && frame.says("b"))));
    say(&mut socket, &words).await;
    assert_eq!(hear(&mut socket, 3).await, ["a", "c", "d"]);
    assert_eq!(proxy.counts().dropped, 1);

    proxy.heal();
    proxy.down(|down| down.copies = 2);
    say(&mut socket, &words[..2]).await;
    assert_eq!(hear(&mut socket, 6).await, ["a", "a", "a", "b", "b", "b"]);

    proxy.heal();
    proxy.up(|up| up.reversed = 4);
    say(&mut socket, &words).await;
    assert_eq!(hear(&mut socket, 4).await, ["d", "c", "b", "a"]);
    // A window that does not fill goes, too.
    say(&mut socket, &words[..3]).await;
    assert_eq!(hear(&mut socket, 3).await, ["c", "b", "a"]);

    proxy.heal();
    proxy.up(|up| up.drop_chance = 0.5);
    for _ in 0..200 {
        say(&mut socket, &["x"]).await;
    }
    eventually("the frames have passed", || async { (proxy.counts().up >= 215).then_some(()) }).await;
    let dropped = proxy.counts().dropped - 1;
    assert!((60..=140).contains(&dropped), "{dropped} of 200");
}

#[tokio::test]
async fn time_passes_as_told() {
    let proxy = Proxy::to(echo().await, 2).await;
    let mut socket = dial(&proxy).await;
    let mut round = async |proxy: &Proxy, size: usize| {
        let began = Instant::now();
        say(&mut socket, &[&"x".repeat(size)]).await;
        assert_eq!(hear(&mut socket, 1).await[0].len(), size);
        let _ = proxy;
        began.elapsed()
    };
    proxy.both(|way| way.delay = Duration::from_millis(150));
    assert!(round(&proxy, 1).await >= Duration::from_millis(300));
    proxy.heal();
    proxy.down(|down| down.rate = Some(20_000));
    assert!(round(&proxy, 10_000).await >= Duration::from_millis(480));
    proxy.heal();
    proxy.up(|up| up.loss = 1.0 / 3.0);
    let lost = || proxy.counts().lost;
    let began = Instant::now();
    for _ in 0..12 {
        round(&proxy, 1).await;
    }
    assert!(lost() > 0 && began.elapsed() >= Duration::from_millis(200), "{:?}", proxy.counts());
    proxy.heal();
    assert!(round(&proxy, 1).await < Duration::from_secs(5) * SLACK);
}

#[tokio::test]
async fn a_hole_tells_nobody_and_a_stall_loses_nothing() {
    let proxy = Proxy::to(echo().await, 3).await;
    let mut socket = dial(&proxy).await;
    proxy.down(|down| down.hole = Hole::All);
    say(&mut socket, &["gone"]).await;
    assert_eq!(hear_within(&mut socket, QUIET_TIME).await, "-");
    proxy.heal();
    say(&mut socket, &["back"]).await;
    assert_eq!(hear(&mut socket, 1).await, ["back"]);

    proxy.up(|up| up.stall = true);
    say(&mut socket, &["later"]).await;
    assert_eq!(hear_within(&mut socket, QUIET_TIME).await, "-");
    proxy.heal();
    assert_eq!(hear(&mut socket, 1).await, ["later"]);

    proxy.make_half_open();
    say(&mut socket, &["never"]).await;
    assert_eq!(hear_within(&mut socket, QUIET_TIME).await, "-", "neither an answer nor an end");
    let mut other = dial(&proxy).await;
    say(&mut other, &["new"]).await;
    assert_eq!(hear(&mut other, 1).await, ["new"]);
    proxy.heal();
    assert_eq!(hear_within(&mut socket, QUIET_TIME).await, "-", "lost for good");
}

#[tokio::test]
async fn connections_end_as_told() {
    let proxy = Proxy::to(echo().await, 4).await;
    let mut socket = dial(&proxy).await;
    proxy.reset();
    let error = socket.next().await.expect("an end").expect_err("a reset");
    assert!(error.to_string().to_lowercase().contains("reset"), "{error}");

    proxy.refuse(true);
    assert!(tokio_tungstenite::connect_async(proxy.url().replacen("http", "ws", 1)).await.is_err());
    proxy.refuse(false);
    assert_eq!(proxy.counts().refused, 1);

    let mut socket = dial(&proxy).await;
    let so_far = 500;
    proxy.down(|down| down.cut_at = Some(so_far));
    say(&mut socket, &[&"x".repeat(1000)]).await;
    assert_eq!(hear(&mut socket, 1).await, [""], "cut in the middle of a frame");
    proxy.heal();

    proxy.close_idle(IDLE_PAUSE * SLACK);
    let mut socket = dial(&proxy).await;
    for _ in 0..4 {
        tokio::time::sleep(IDLE_PAUSE).await;
        say(&mut socket, &["still here"]).await;
        assert_eq!(hear(&mut socket, 1).await, ["still here"]);
    }
    assert_eq!(hear(&mut socket, 1).await, [""], "idle for too long");
    assert_eq!(proxy.counts().idled, 1);
}

#[tokio::test]
async fn the_board_is_reached_through_it_by_programs_and_daemons() {
    let board = Board::start(Engine::Sqlite).await;
    let proxy = Proxy::before(&board, 5).await;
    let operator = board.token(HOME, "operator").await;
    let through = Person::with_token(&proxy.url(), operator.bearer().expect("a token"));
    assert!(through.get("/api/v1/vibers").await.expect(200).json()["items"].is_array());
    let mut fake = FakeDaemon::enrol(&board, "fake").await;
    fake.dial_at(&proxy.url());
    fake.connect().await;
    let mut viber = Viber::fresh("real");
    viber.enrol_at(&board, &proxy.url()).await;
    viber.run();
    viber.connected(&operator).await;
    // The Board knows a viber before the viber has its welcome.
    let before = eventually("both said hello and were welcomed through it", || async {
        Some(proxy.counts()).filter(|counts| counts.up >= 2 && counts.down >= 2)
    })
    .await;
    proxy.reset();
    assert_eq!(fake.closed().await.0, 1006);
    // It may be back before a look at the list could see that it was away.
    eventually("the daemon has dialled in through it again", || async {
        (proxy.counts().connections > before.connections).then_some(())
    })
    .await;
    viber.connected(&operator).await;
}
