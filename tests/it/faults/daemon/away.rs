//! A Board that is not there, or does not know the viber (F24).

use std::time::{Duration, Instant};

use board_tests::{
    FakeBoard, Viber, eventually,
    fake_board::{Behaviour, credential},
    fixture::echo,
    programs::free_port,
    wait::EVENT_TIMEOUT,
    within,
};

/// The longest that a daemon may wait between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A daemon that has joined a Board at `url`.
fn daemon(url: &str) -> Viber {
    let mut viber = Viber::fresh("lab");
    credential(&viber, url);
    viber.write("agents/default.yaml", &echo(&viber));
    viber.run();
    viber
}

/// The waits that the daemon has announced.
fn waits(viber: &Viber) -> Vec<Duration> {
    let log = viber.log();
    let told = log.split("retry_ms").skip(1).filter_map(|rest| {
        let digits: String =
            rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        digits.parse().ok().map(Duration::from_millis)
    });
    told.collect()
}

/// Waits until it has tried and given up `n` times.
async fn gave_up(viber: &mut Viber, n: usize) -> Vec<Duration> {
    let waits = within(EVENT_TIMEOUT * 2, "some tries", || async { Some(waits(viber)).filter(|w| w.len() >= n) }).await;
    assert!(viber.alive(), "it goes on for ever");
    waits
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_a_board_that_is_not_there_at_the_start_is_found_later() {
    let port = free_port();
    let mut viber = daemon(&format!("http://127.0.0.1:{port}"));
    let waits = gave_up(&mut viber, 4).await;
    assert!(waits.iter().all(|wait| *wait <= LONGEST_PAUSE), "{waits:?}");
    let board = FakeBoard::start_on(port, Behaviour::Serve).await;
    within(LONGEST_PAUSE + EVENT_TIMEOUT, "it dials in", || async { (!board.dials().is_empty()).then_some(()) }).await;
    let attempt = board.submit("hello");
    eventually("it works", || async {
        board.events(&attempt).last().is_some_and(|event| event.body.is_terminal()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_a_name_that_nobody_knows_is_asked_for_again() {
    let mut viber = daemon("https://board.invalid");
    let waits = gave_up(&mut viber, 3).await;
    assert!(waits.iter().all(|wait| *wait <= LONGEST_PAUSE), "{waits:?}");
    let status = viber.cli(&["status"]).await;
    assert!(status.out.contains("board.invalid"), "it says what it cannot reach: {status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_a_board_that_hangs_up_sees_no_storm() {
    let board = FakeBoard::start(Behaviour::HangUp).await;
    let begin = Instant::now();
    let mut viber = daemon(&board.url);
    gave_up(&mut viber, 4).await;
    let (dials, passed) = (board.dials().len(), begin.elapsed());
    // Full jitter from half a second on, doubling: many tries in a short time are next to impossible.
    assert!(dials <= 15, "{dials} tries in {passed:?}");
    assert!(waits(&viber).iter().all(|wait| *wait <= LONGEST_PAUSE));
    board.set_behaviour(Behaviour::Serve);
    within(LONGEST_PAUSE + EVENT_TIMEOUT, "it is served", || async { (!board.beats().is_empty()).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f24_a_credential_that_is_refused_is_tried_slowly() {
    let board = FakeBoard::start(Behaviour::Refuse(401)).await;
    let mut viber = daemon(&board.url);
    let waits = gave_up(&mut viber, 1).await;
    assert!(waits[0] >= Duration::from_secs(60), "{waits:?}");
    let status = viber.cli(&["status"]).await;
    assert!(status.out.contains("credential") && status.out.contains("ew token"), "it says what to do: {status:?}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(board.dials().len(), 1, "no storm");
    assert!(viber.stop().await.success());

    // By flag it ends instead, and says so to whoever started it.
    let once = viber.cli(&["run", "--once"]).await;
    assert_eq!(once.code(), 1, "{once:?}");
    assert!(once.err.contains("credential"), "{once:?}");
    assert_eq!(board.dials().len(), 2);
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f24_three_minutes_without_a_board_are_tried_through_at_most_thirty_seconds_apart() {
        let board = FakeBoard::start(Behaviour::HangUp).await;
        let mut viber = daemon(&board.url);
        tokio::time::sleep(Duration::from_secs(180)).await;
        let dials = board.dials();
        let widest = dials.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several tries");
        assert!(widest <= LONGEST_PAUSE + Duration::from_secs(1), "{widest:?} without a try");
        assert!((10..=40).contains(&dials.len()), "{} tries in three minutes", dials.len());
        assert!(viber.alive());
        board.set_behaviour(Behaviour::Serve);
        within(LONGEST_PAUSE + EVENT_TIMEOUT, "it is served", || async { (!board.beats().is_empty()).then_some(()) })
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f24_a_credential_that_is_refused_is_tried_once_a_minute_until_it_is_good() {
        let board = FakeBoard::start(Behaviour::Refuse(401)).await;
        let mut viber = daemon(&board.url);
        tokio::time::sleep(Duration::from_secs(150)).await;
        let dials = board.dials();
        assert!((2..=3).contains(&dials.len()), "{} tries", dials.len());
        assert!(dials.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(60)));
        assert!(viber.alive());
        board.set_behaviour(Behaviour::Serve);
        within(Duration::from_secs(75), "it is served", || async { (!board.beats().is_empty()).then_some(()) }).await;
    }
}
