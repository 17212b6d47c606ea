//! A149 to A151: a cookie that was copied ends its login; one that was lost on its way ends nobody's; every login ends.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    eventually,
    tasks::id,
    wait::SLACK,
};
use futures_util::future::join_all;
use reqwest::{Method, header};
use serde_json::Value;

use super::with_cookie;

crate::on_both_databases!(
    a149_a_copied_cookie_ends_its_login_everywhere,
    a150_a_cookie_that_was_lost_on_its_way_ends_nobodys_login,
    a151_a_login_ends_at_its_own_time,
);

/// Its cookie is old enough for the next one.
const ROTATION_DUE_SQL: &str = "UPDATE logins SET rotated_at = 0";
/// It is long ago that the newest one came back.
const CONFIRMED_LONG_AGO_SQL: &str = "UPDATE logins SET confirmed_at = 0";

/// Another device of the owner.
async fn another_device(board: &Board) -> Person {
    let person = board.anon().in_team(HOME);
    person.sign_in("owner@example.org", PASSWORD).await;
    person
}

/// Goes on until the Board has given the next cookie; nothing is refused meanwhile.
async fn next_cookie(board: &Board, person: &Person) -> String {
    let before = person.cookie().expect("signed in");
    board.sql(ROTATION_DUE_SQL).await;
    eventually("the next cookie", || async {
        person.page("/t/home").await.expect(200);
        person.cookie().filter(|cookie| *cookie != before)
    })
    .await
}

/// The rows of this action in the audit, as a program reads it.
async fn audited(program: &Person, action: &str) -> Vec<Value> {
    let page = program.get("/api/v1/audit?limit=200").await.expect(200).json();
    let rows = page["items"].as_array().expect("rows").iter().filter(|row| row["action"] == action);
    rows.cloned().collect()
}

async fn a149_a_copied_cookie_ends_its_login_everywhere(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let phone = another_device(&board).await;
    board.make_operator("elsewhere", "owner@example.org", "viewer").await;
    let [home, elsewhere] = [board.token(HOME, "admin").await, board.token("elsewhere", "admin").await];
    let viber = FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "be watched").await;
    let stolen = owner.cookie().expect("signed in");
    let mut stream = owner.stream(&format!("/api/v1/tasks/{}/events", id(&task, "id")), None).await;
    let next = next_cookie(&board, &owner).await;
    owner.page("/t/home").await.expect(200);
    // A request that was on its way when the next one came.
    let late = with_cookie(&board, &stolen, "/t/home").await.expect(200);
    assert_eq!(late.header("set-cookie"), "", "the copy is not exchanged for a new one");
    assert!(audited(&home, "login.reused").await.is_empty());

    board.sql(CONFIRMED_LONG_AGO_SQL).await;
    eventually("the copy is refused", || async {
        (with_cookie(&board, &stolen, "/t/home").await.status == 303).then_some(())
    })
    .await;
    for cookie in [&stolen, &next] {
        let answer = with_cookie(&board, cookie, "/t/home").await.expect(303);
        assert!(answer.header("location").starts_with("/login"), "{answer:?}");
        let page = with_cookie(&board, cookie, "/login").await.expect(200);
        assert!(page.body.contains("somebody may have copied it"), "{}", page.body);
        let api = board.anon();
        let request = api.request(Method::GET, "/api/v1/vibers").header(header::COOKIE, cookie).header("x-team", HOME);
        api.send(request).await.expect(401);
    }
    let ends = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(5) * SLACK, ends).await.expect("its streams end");
    for program in [&home, &elsewhere] {
        let rows = audited(program, "login.reused").await;
        assert_eq!(rows.len(), 1, "{rows:#?}");
        assert!(rows[0]["detail"].as_str().expect("text").contains("127.0.0.1"), "{rows:#?}");
    }
    // Another device of the same person, and who comes without a cookie, hear nothing of it.
    phone.page("/t/home").await.expect(200);
    assert!(!board.anon().page("/login").await.expect(200).body.contains("copied"));
    // It is the thief who was first: the owner's older cookie ends the login as well.
    let own = phone.cookie().expect("signed in");
    let thief = board.anon();
    let first = thief.request(Method::GET, "/t/home").header(header::COOKIE, &own).header(header::ACCEPT, "text/html");
    board.sql(ROTATION_DUE_SQL).await;
    eventually("the thief has the next cookie", || async {
        let again = first.try_clone().expect("a request");
        thief.send(again).await.header("set-cookie").starts_with("vb=").then_some(())
    })
    .await;
    with_cookie(&board, &thief.cookie().expect("it was kept"), "/t/home").await.expect(200);
    board.sql(CONFIRMED_LONG_AGO_SQL).await;
    eventually("both are out", || async { (phone.page("/t/home").await.status == 303).then_some(()) }).await;
    with_cookie(&board, &thief.cookie().expect("it was kept"), "/t/home").await.expect(303);
    assert_eq!(audited(&home, "login.reused").await.len(), 2);
    board.assert_invariants().await;
}

async fn a150_a_cookie_that_was_lost_on_its_way_ends_nobodys_login(engine: Engine) {
    let mut board = Board::start(engine).await;
    let owner = board.owner().await;
    let home = board.token(HOME, "admin").await;
    let own = owner.cookie().expect("signed in");
    // The Board dies with the next cookie made and not given.
    board.sql(ROTATION_DUE_SQL).await;
    board.fail("cookies::rotated", "1*return(crash)").await;
    eventually("the Board dies of it", || async {
        let request = owner.request(Method::GET, "/t/home").header(header::ACCEPT, "text/html");
        owner.try_send(request).await.err().map(drop)
    })
    .await;
    assert!(!board.ended().await.success());
    board.heal().await;
    board.restart().await;
    assert_eq!(owner.cookie().as_ref(), Some(&own));
    // The answer that holds it never arrives, however often and however late.
    board.sql(CONFIRMED_LONG_AGO_SQL).await;
    for _ in 0..3 {
        let answer = with_cookie(&board, &own, "/t/home").await.expect(200);
        assert!(answer.header("set-cookie").starts_with("vb="), "{answer:?}");
    }
    // Tabs that ask at once have all of them answers, and end with the same cookie.
    let before = next_cookie(&board, &owner).await;
    board.sql(ROTATION_DUE_SQL).await;
    let tabs: Vec<Person> = (0..8).map(|_| board.anon()).collect();
    let given = eventually("a tab has the next one", || async {
        let asked = tabs.iter().map(|tab| {
            let request = tab.request(Method::GET, "/t/home").header(header::ACCEPT, "text/html");
            tab.send(request.header(header::COOKIE, &before))
        });
        let answers = join_all(asked).await;
        assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
        tabs.iter().find_map(Person::cookie)
    })
    .await;
    with_cookie(&board, &given, "/t/home").await.expect(200);
    for _ in &tabs {
        with_cookie(&board, &before, "/t/home").await.expect(200);
    }
    // The row comes from a backup, and the cookie is newer than it knows.
    board.sql("UPDATE logins SET generation = 0, seen_generation = 0, confirmed_at = 0").await;
    board.stop().await;
    board.restart().await;
    for _ in 0..2 {
        with_cookie(&board, &given, "/t/home").await.expect(200);
    }
    assert!(audited(&home, "login.reused").await.is_empty());
    board.assert_invariants().await;
}

/// What the Board has written so far, as its figures say.
async fn writes(board: &Board) -> u64 {
    let figures = Person::with_token(&board.url, "a-token-of-the-metrics").get("/metrics").await.expect(200).body;
    let lines = figures.lines().filter(|line| line.contains("write") && line.contains("committed"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

async fn a151_a_login_ends_at_its_own_time(engine: Engine) {
    let board = Board::start_with(engine, &["--metrics-token", "a-token-of-the-metrics"]).await;
    let owner = board.owner().await;
    // Reading pages writes nothing.
    owner.page("/t/home").await.expect(200);
    let before = writes(&board).await;
    for _ in 0..100 {
        owner.page("/t/home/settings/audit").await.expect(200);
    }
    let after = writes(&board).await;
    assert!(before > 0 && after - before < 5, "{before} {after}");
    let out = async |person: &Person, sql: &'static str| {
        assert_eq!(board.sql(sql).await, 1);
        eventually(sql, || async { (person.page("/t/home").await.status == 303).then_some(()) }).await;
        let api = person.request(Method::GET, "/api/v1/vibers").header("x-team", HOME);
        person.send(api).await.expect(401);
        board.sql("DELETE FROM logins").await;
    };
    out(&owner, "UPDATE logins SET expires_at = 1").await;
    let busy = another_device(&board).await;
    busy.page("/t/home").await.expect(200);
    out(&busy, "UPDATE logins SET ends_at = 1").await;
    // Use moves the one end, and never beyond the other.
    let used = another_device(&board).await;
    board.sql("UPDATE logins SET seen_at = 1, ends_at = expires_at - 86400000").await;
    eventually("its use is noted", || async {
        used.page("/t/home").await.expect(200);
        (board.sql("UPDATE logins SET seen_at = seen_at WHERE seen_at > 1 AND expires_at = ends_at").await == 1)
            .then_some(())
    })
    .await;
    board.assert_invariants().await;
}
