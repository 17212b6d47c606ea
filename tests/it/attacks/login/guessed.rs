//! Passwords that are guessed: nothing is learnt by it, nobody is locked out by it, and it costs the Board little.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use board_tests::{
    Board, Engine, Person,
    bench::proc,
    board::{HOME, PASSWORD},
    person::Answer,
};
use tokio::task::JoinSet;

const ADA_EMAIL: &str = "ada@example.org";

/// An answer without what differs from request to request.
fn plain(answer: &Answer, email: &str) -> String {
    let mut headers: Vec<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| !["x-request-id", "date", "content-length"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    headers.sort();
    format!("{} {headers:?} {}", answer.status, answer.body.replace(email, "…"))
}

/// What nobody can measure over a network, seconds.
const UNMEASURABLE_SECONDS: f64 = 0.005;

/// `rounds` times ten wrong passwords for an account and for none, in turns: how long each of the account's took, and how
/// much longer than its fellow. Seconds.
async fn pairs(board: &Board, network: u8, rounds: u8) -> Vec<(f64, f64)> {
    let mut pairs = Vec::new();
    let mut seen = None;
    for round in 0..rounds {
        // From an address that is known to the account: the throttle does not count it with strangers.
        let person = Person::from_address(&board.url, [127, 0, network, round + 1]);
        person.sign_in(ADA_EMAIL, PASSWORD).await;
        let person = Person::from_address(&board.url, [127, 0, network, round + 1]);
        let nobody = format!("no{network}x{round}@example.org");
        for n in 0..10 {
            let (mut known, mut unknown) = (0.0, 0.0);
            let mut pair = [(ADA_EMAIL, &mut known), (nobody.as_str(), &mut unknown)];
            if n % 2 == 1 {
                pair.reverse();
            }
            for (email, took) in pair {
                let began = Instant::now();
                let answer = person.try_sign_in(email, "a wrong password").await;
                *took = began.elapsed().as_secs_f64();
                let told = plain(&answer, email);
                assert_eq!(answer.status, 401, "{answer:?}");
                assert_eq!(seen.get_or_insert_with(|| told.clone()), &told, "the same to the letter");
            }
            pairs.push((known, known - unknown));
        }
    }
    pairs
}

/// Pairs are compared, not two heaps: what else the machine does comes and goes over both of a pair alike. It only
/// blurs the middle, so on a busy machine more pairs decide. `alike` judges the middle of how long an account's took, and
/// of how much longer.
async fn as_slow(rounds: u8, alike: fn(f64, f64) -> bool) {
    let board = Board::start(Engine::Sqlite).await;
    board.make_operator(HOME, ADA_EMAIL, "operator").await;
    let (mut took, mut longer) = (Vec::new(), Vec::new());
    let mut middles = Vec::new();
    for network in 1..=6 {
        for (known, more) in pairs(&board, network, rounds).await {
            took.push(known);
            longer.push(more);
        }
        let middle = |all: &mut Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (took, longer) = (middle(&mut took), middle(&mut longer));
        if alike(took, longer) {
            board.assert_invariants().await;
            return;
        }
        middles.push((took, longer));
    }
    panic!("an account can be told from none: seconds, and seconds longer {middles:?}");
}

/// Both cost a hash: the one is not refused in a fraction of the other's time.
#[tokio::test]
async fn a02_an_unknown_account_is_refused_like_a_known_one() {
    as_slow(3, |took, longer| longer.abs() <= took / 4.0).await;
}

mod long {
    use super::UNMEASURABLE_SECONDS;

    /// The figure; on a machine that does nothing else.
    #[tokio::test]
    async fn a02_two_hundred_guesses_of_each_tell_nothing() {
        super::as_slow(20, |_, longer| longer.abs() <= UNMEASURABLE_SECONDS).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a04_a_minute_of_a_flood_of_logins() {
        super::flood(60).await;
    }
}

#[tokio::test]
async fn a03_a_guesser_is_slowed_down_and_locks_nobody_out() {
    let board = Board::start(Engine::Sqlite).await;
    board.make_operator(HOME, ADA_EMAIL, "operator").await;
    let at_home = Person::from_address(&board.url, [127, 0, 9, 1]);
    at_home.sign_in(ADA_EMAIL, PASSWORD).await;
    let guesser = Person::from_address(&board.url, [127, 0, 9, 2]);
    for n in 0..10 {
        guesser.try_sign_in(ADA_EMAIL, &format!("wrong password {n}")).await.expect(401);
    }
    for password in ["wrong password 10", PASSWORD] {
        let answer = guesser.try_sign_in(ADA_EMAIL, password).await.expect(429);
        let wait = answer.header("retry-after").parse::<u64>().unwrap_or_else(|_| panic!("{answer:?}"));
        assert!((1..=90).contains(&wait), "{wait}");
        assert!(answer.headers.get("set-cookie").is_none());
    }
    // The right one from somewhere else.
    Person::from_address(&board.url, [127, 0, 9, 3]).sign_in(ADA_EMAIL, PASSWORD).await;
    // A hundred addresses with one guess each are throttled together …
    let mut seen = [0, 0];
    for n in 1..=100 {
        let answer = Person::from_address(&board.url, [127, 0, 10, n]).try_sign_in(ADA_EMAIL, "a guess").await;
        match answer.status {
            401 => seen[0] += 1,
            429 => {
                assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|wait| wait > 0), "{answer:?}");
                seen[1] += 1;
            }
            _ => panic!("{answer:?}"),
        }
    }
    assert!(seen[0] <= 30 && seen[1] >= 70, "{seen:?}");
    // … and whoever the account belongs to comes in from where they were before; other accounts are not concerned.
    let again = Person::from_address(&board.url, [127, 0, 9, 1]);
    again.sign_in(ADA_EMAIL, PASSWORD).await;
    board.make_operator(HOME, "bo@example.org", "operator").await;
    Person::from_address(&board.url, [127, 0, 10, 200]).sign_in("bo@example.org", PASSWORD).await;
    board.assert_invariants().await;
}

/// Memory of one hash, MiB.
const HASH_MIB: f64 = 19.0;

/// Sign-ins a second: more than fifty, because a fast machine hashes that many two at a time and refuses nobody.
const LOGINS_EACH_SECOND: u32 = 125;

/// Sign-ins, one after the other, that show what one costs.
const WARM_UP_LOGINS: usize = 30;

/// How often a sign-in is sent before its connection has to hold.
const LOGIN_ATTEMPTS: usize = 5;

/// So many sign-ins a second for `seconds`, with the right password: nothing else than places for hashing can refuse them.
async fn flood(seconds: u32) {
    let board = Board::start(Engine::Sqlite).await;
    board.make_operator(HOME, ADA_EMAIL, "operator").await;
    board.anon().page("/login").await.expect(200);
    // Connections cost more than refusals: they are there before any clock starts.
    let mut connected = JoinSet::new();
    for _ in 0..seconds.min(4) * LOGINS_EACH_SECOND {
        let person = Arc::new(board.anon());
        connected.spawn(async move {
            person.get("/healthz").await.expect(200);
            person
        });
    }
    let people = connected.join_all().await;
    // So are the caches of the database and of the allocator: one hash at a time fills them, and shows what one costs.
    let spent = proc::processor(board.pid());
    for person in people.iter().take(WARM_UP_LOGINS) {
        person.try_sign_in(ADA_EMAIL, PASSWORD).await.expect(303);
    }
    let each = (proc::processor(board.pid()) - spent) / WARM_UP_LOGINS as f64;
    let (before, _) = proc::memory(board.pid());
    let spent = proc::processor(board.pid());
    let mut tick = tokio::time::interval(Duration::from_secs(1) / LOGINS_EACH_SECOND);
    let mut open = JoinSet::new();
    let began = Instant::now();
    for person in people.iter().cycle().take((seconds * LOGINS_EACH_SECOND) as usize) {
        tick.tick().await;
        let person = Arc::clone(person);
        open.spawn(async move {
            // The Board closes a connection on which nothing comes for nine seconds. On a busy machine that may hit a
            // new one, too; a browser asks again then.
            for _ in 0..LOGIN_ATTEMPTS {
                let form = person.form("/login", &[("email", ADA_EMAIL), ("password", PASSWORD)]);
                if let Ok(answer) = person.try_send(form).await {
                    return answer;
                }
            }
            person.try_sign_in(ADA_EMAIL, PASSWORD).await
        });
    }
    let (mut served, mut refused) = (0_u32, 0_u32);
    while let Some(done) = open.join_next().await {
        let answer = done.expect("no panic");
        if answer.status == 303 {
            served += 1;
        } else {
            assert_eq!((answer.status, answer.header("retry-after")), (429, "1"), "{answer:?}");
            refused += 1;
        }
    }
    let spent = proc::processor(board.pid()) - spent;
    println!(
        "{served} served in {:?}, {refused} refused, {spent:.2} s of processor, {each:.3} s each",
        began.elapsed()
    );
    assert!(served > 0, "nobody is let in");
    assert!(refused > 0, "a machine that hashes {LOGINS_EACH_SECOND} times a second needs a larger flood");
    let peak = proc::memory(board.pid()).1 - before;
    assert!(peak <= 2.0 * HASH_MIB + 15.0, "more than two hashes at once: {peak:.1} MiB more");
    // Nothing is hashed for those who are refused: they cost far less than those who are let in. However busy the machine
    // is, it shows in the Board's own time alone.
    let due = each * (f64::from(served) * 1.5 + f64::from(refused) * 0.5);
    assert!(spent <= due, "{spent:.2} s of processor for {served} served and {refused} refused, at {each:.3} s each");
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a04_a_flood_of_logins_hashes_two_at_once_and_nothing_for_the_rest() {
    flood(2).await;
}

#[tokio::test]
async fn a05_a_password_counts_to_its_last_byte_and_no_further_than_1024() {
    let board = Board::start(Engine::Sqlite).await;
    let ada = board.operator(HOME, ADA_EMAIL, "operator").await;
    let mut now = PASSWORD.to_owned();
    // Guesses from one address would soon have to wait.
    let mut address = 0;
    let mut stranger = || {
        address += 1;
        Person::from_address(&board.url, [127, 0, 20, address])
    };
    let kinds: [fn(usize) -> String; 2] = [
        |n| "x".repeat(n),
        |n| {
            "pässwörter"
                .chars()
                .cycle()
                .scan(0, |used, c| {
                    *used += c.len_utf8();
                    (*used <= n).then_some(c)
                })
                .collect()
        },
    ];
    let long: Vec<String> =
        [65, 72, 73, 128, 1024].iter().zip(kinds.iter().cycle()).map(|(n, kind)| kind(*n)).collect();
    for next in long {
        ada.post_form("/account/password", &[("old", &now), ("new", &next)]).await.expect(303);
        board.anon().sign_in(ADA_EMAIL, &next).await;
        let mut shorter = vec![protocol::text::head(&next, 64)];
        if next.len() > 72 {
            shorter.push(protocol::text::head(&next, 72));
        }
        shorter.retain(|shorter| shorter.len() < next.len());
        for shorter in shorter {
            stranger().try_sign_in(ADA_EMAIL, shorter).await.expect(401);
        }
        let longer = format!("{next}x");
        let status = stranger().try_sign_in(ADA_EMAIL, &longer).await.status;
        assert_eq!(status, if longer.len() > 1024 { 422 } else { 401 });
        now = next;
    }
    // A NUL ends no password early: no text with one is taken, to sign in or to be kept.
    for nul in ["\0", "eight ok\0", "before\0after, with a NUL"] {
        stranger().try_sign_in(ADA_EMAIL, nul).await.expect(422);
    }
    for nul in ["before\0after, with a NUL", "eight ok\0"] {
        ada.post_form("/account/password", &[("old", &now), ("new", nul)]).await.expect(422);
        stranger().try_sign_in(ADA_EMAIL, nul.split('\0').next().unwrap_or_default()).await.expect(401);
    }
    // Beyond 1024 bytes nothing is hashed: a hundred of them cost less than ten hashes would.
    let too_long = "x".repeat(1025);
    let before = proc::processor(board.pid());
    for _ in 0..100 {
        board.anon().try_sign_in(ADA_EMAIL, &too_long).await.expect(422);
    }
    let spent = proc::processor(board.pid()) - before;
    assert!(spent < 0.5, "{spent} s of processor for 100 refusals");
    let huge = "x".repeat(1024 * 1024);
    board.anon().try_sign_in(ADA_EMAIL, &huge).await.expect(422);
    ada.post_form("/account/password", &[("old", &now), ("new", &too_long)]).await.expect(422);
    ada.post_form("/account/password", &[("old", &too_long), ("new", PASSWORD)]).await.expect(422);
    let inviter = board.token(HOME, "owner").await;
    let invitation = serde_json::json!({"role": "viewer", "email": ""});
    let invited = inviter.post("/api/v1/invitations", &invitation).await.expect(201).json();
    let link = invited["link"].as_str().expect("a link").to_owned();
    let path = &link[link.find("/invite/").expect("a path")..];
    let form = [("name", "Bo"), ("email", "bo@example.org"), ("password", huge.as_str())];
    board.anon().post_form(path, &form).await.expect(422);
    board.anon().sign_in(ADA_EMAIL, &now).await;
    board.assert_invariants().await;
}
