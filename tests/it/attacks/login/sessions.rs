//! Sign-ins: planted ones are worth nothing, ended ones end everything that hangs on them.

use std::time::{Duration, Instant};

use board_tests::{
    Board, Browser, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    browser::Scripts,
    person::EventStream,
    tasks::id,
    wait::SLACK,
};
use reqwest::{Method, header};
use serde_json::{Value, json};

const BO_EMAIL: &str = "bo@example.org";

crate::on_both_databases!(a09_who_is_shut_out_is_out_everywhere_at_once);

/// The two kinds of stream that somebody may have open.
async fn streams(bo: &Person, task: &str) -> [EventStream; 2] {
    let page = bo.stream("/t/home/live?view=rail", None).await;
    let api = bo.stream(&format!("/api/v1/tasks/{task}/events"), None).await;
    [page, api]
}

/// Both end five seconds after `began`, or a busy machine's time for it, whatever they still say.
async fn both_end(mut open: [EventStream; 2], began: Instant, how: &str) {
    let [one, two] = &mut open;
    let ends = async {
        tokio::join!(async { while one.next().await.is_some() {} }, async { while two.next().await.is_some() {} });
    };
    let left = (Duration::from_secs(5) * SLACK).saturating_sub(began.elapsed());
    tokio::time::timeout(left, ends).await.unwrap_or_else(|_| panic!("{how}: streams are still open"));
}

async fn a09_who_is_shut_out_is_out_everywhere_at_once(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let viber = FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "watch me").await;
    let task = id(&task, "id").to_owned();
    board.make_operator(HOME, BO_EMAIL, "operator").await;
    let members = owner.get("/api/v1/members").await.expect(200).json();
    let member = members["items"].as_array().expect("members").iter().find(|member| member["email"] == BO_EMAIL);
    let member = format!("/api/v1/members/{}", id(member.expect("bo"), "id"));
    let come_in = async || {
        let bo = board.anon().in_team(HOME);
        board_tests::eventually("bo is let in", || async {
            (bo.try_sign_in(BO_EMAIL, PASSWORD).await.status == 303).then_some(())
        })
        .await;
        bo
    };
    for how in [
        "a logout",
        "a sign-out from another device",
        "a password change",
        "a disabled account",
        "a lower role",
        "no member any more",
    ] {
        let bo = come_in().await;
        let phone = come_in().await;
        let open = streams(&bo, &task).await;
        // What a thief would keep: the cookie before it is taken away.
        let cookie = bo.cookie().expect("signed in");
        let thief = |method: Method, path: &str| {
            let request = board.anon().request(method, path).header(header::COOKIE, &cookie).header("x-team", HOME);
            request
                .header(header::ORIGIN, &board.url)
                .header(header::ACCEPT, if path.starts_with("/api/") { "*/*" } else { "text/html" })
        };
        match how {
            "a logout" => {
                let gone = bo.post_form("/logout", &[]).await.expect(303);
                assert!(gone.header("set-cookie").contains("Max-Age=0"), "{gone:?}");
            }
            "a sign-out from another device" => {
                phone.post_form("/account/devices/others", &[]).await.expect(303);
            }
            "a password change" => {
                phone
                    .post_form("/account/password", &[("old", PASSWORD), ("new", "another long password")])
                    .await
                    .expect(303);
            }
            "a disabled account" => {
                board.cli(&["operator", "disable", "--email", BO_EMAIL]).await.good();
            }
            "a lower role" => {
                owner.patch(&member, &json!({"role": "viewer"})).await.expect(200);
            }
            _ => assert!([200, 204].contains(&owner.delete(&member).await.status)),
        }
        let began = Instant::now();
        // The console is another process: what it did is known at most two seconds later. All others bite at once.
        if how == "a disabled account" {
            board_tests::eventually(how, || async {
                (thief(Method::GET, "/t/home").send().await.expect("an answer").status() == 303).then_some(())
            })
            .await;
        }
        let api = thief(Method::POST, "/api/v1/tasks").json(&json!({"goal": "x"})).send().await.expect("an answer");
        let page = thief(Method::GET, "/t/home").send().await.expect("an answer");
        let expected = match how {
            "a lower role" => (403, 200),
            // A team that one is not in does not exist.
            "no member any more" => (404, 404),
            _ => (401, 303),
        };
        assert_eq!((api.status().as_u16(), page.status().as_u16()), expected, "{how}");
        if expected.0 == 401 {
            for answer in [&api, &page] {
                assert!(!answer.headers().contains_key(header::SET_COOKIE), "{how}: nothing is renewed");
            }
            assert_eq!(thief(Method::GET, "/account").send().await.expect("an answer").status(), 303, "{how}");
        }
        both_end(open, began, how).await;
        match how {
            "a password change" => {
                board.anon().try_sign_in(BO_EMAIL, PASSWORD).await.expect(401);
                phone
                    .post_form("/account/password", &[("old", "another long password"), ("new", PASSWORD)])
                    .await
                    .expect(303);
            }
            "a disabled account" => {
                board.cli(&["operator", "disable", "--email", BO_EMAIL, "--enable"]).await.good();
            }
            "a lower role" => {
                owner.patch(&member, &json!({"role": "operator"})).await.expect(200);
            }
            _ => {}
        }
    }
    board.assert_invariants().await;
}

#[tokio::test]
async fn a10_a_planted_session_is_never_anybodys() {
    let board = Board::start(Engine::Sqlite).await;
    let attacker = board.operator("elsewhere", "eve@example.org", "owner").await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let own = attacker.cookie().expect("signed in");
    let ask = async |cookie: &str| {
        let request = board.anon().request(Method::GET, "/t/home").header(header::ACCEPT, "text/html");
        request.header(header::COOKIE, cookie).send().await.expect("an answer").status().as_u16()
    };
    let mut made = Vec::new();
    // An attacker's invention, an attacker's own session, and one of each.
    for planted in
        ["vb=planted-by-eve".to_owned(), own.clone(), format!("vb=planted; {own}"), format!("{own}; vb=planted")]
    {
        assert_ne!(ask(&planted).await, 200, "{planted}");
        let fields = format!("email=ada%40example.org&password={}", PASSWORD.replace(' ', "+"));
        let request = board
            .anon()
            .request(Method::POST, "/login")
            .header(header::COOKIE, &planted)
            .header(header::ORIGIN, &board.url);
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(fields);
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 303, "{planted}");
        let cookies: Vec<_> =
            answer.headers().get_all(header::SET_COOKIE).iter().map(|one| one.to_str().expect("text")).collect();
        let [cookie] = cookies.as_slice() else { panic!("one cookie: {cookies:?}") };
        let cookie = cookie.split(';').next().expect("a pair").to_owned();
        assert!(
            cookie.starts_with("vb=") && !planted.contains(cookie.trim_start_matches("vb=")),
            "a new one: {cookie}"
        );
        assert_eq!(ask(&cookie).await, 200);
        assert_ne!(ask(&planted).await, 200, "{planted} is as good for nothing as before");
        made.push(cookie);
    }
    let ada = board.anon();
    ada.sign_in("ada@example.org", PASSWORD).await;
    let first = ada.cookie();
    ada.sign_in("ada@example.org", PASSWORD).await;
    made.extend([first.expect("signed in"), ada.cookie().expect("signed in")]);
    let different: std::collections::BTreeSet<_> = made.iter().collect();
    assert_eq!(different.len(), made.len(), "each sign-in has a token of its own");
    board.assert_invariants().await;
}

#[tokio::test]
async fn a11_over_https_the_cookie_is_bound_to_the_host() {
    let board = Board::start_with(Engine::Sqlite, &["--public-url", "https://board.test"]).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let fields = format!("email=ada%40example.org&password={}", PASSWORD.replace(' ', "+"));
    let request = board.anon().request(Method::POST, "/login").header(header::HOST, "board.test");
    let request = request
        .header(header::ORIGIN, "https://board.test")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let answer = request.body(fields).send().await.expect("an answer");
    assert_eq!(answer.status(), 303);
    let cookies: Vec<_> =
        answer.headers().get_all(header::SET_COOKIE).iter().map(|one| one.to_str().expect("text").to_owned()).collect();
    let [cookie] = cookies.as_slice() else { panic!("one cookie: {cookies:?}") };
    let (pair, attributes) = cookie.split_once("; ").expect("attributes");
    let mut attributes: Vec<&str> = attributes.split("; ").collect();
    attributes.sort_unstable();
    assert!(pair.starts_with("__Host-vb="), "{pair}");
    assert_eq!(attributes, ["HttpOnly", "Max-Age=2592000", "Path=/", "SameSite=Lax", "Secure"]);
    // The plain name, which a neighbour could set over http, is not read here.
    let value = pair.split_once('=').expect("a value").1;
    for (cookie, status) in [(format!("__Host-vb={value}"), 200), (format!("vb={value}"), 303)] {
        let request = board.anon().request(Method::GET, "/t/home").header(header::HOST, "board.test");
        let answer = request
            .header(header::ACCEPT, "text/html")
            .header(header::COOKIE, &cookie)
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), status, "{}", &cookie[..10]);
    }
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a11_no_page_body_address_or_store_holds_the_session() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let answer = board.anon().try_sign_in("owner@example.org", PASSWORD).await.expect(303);
    let cookie = answer.header("set-cookie");
    assert!(
        cookie.starts_with("vb=") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000"),
        "{cookie}"
    );
    let value = owner.cookie().expect("signed in").split_once('=').expect("a value").1.to_owned();
    let signature = value.rsplit_once('.').expect("a signature").1.to_owned();
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "look around").await;
    viber.submitted().await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&owner).await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    for path in [
        "/t/home",
        "/t/home/sessions",
        session.as_str(),
        "/t/home/vibers",
        "/t/home/settings",
        "/t/home/settings/audit",
        "/account",
    ] {
        let page = owner.page(path).await.expect(200);
        assert!(!page.body.contains(&signature), "{path} tells the session");
        browser.go(&format!("{}{path}", board.url)).await;
        browser.find("main").await;
        let seen = browser
            .run(
                "return JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}, location.href, document.referrer,
                   window.name, document.documentElement.outerHTML, performance.getEntries().map((entry) => entry.name)])",
                Value::Null,
            )
            .await;
        assert!(!seen.as_str().expect("text").contains(&signature), "{path} has the session within reach of a script");
        assert_eq!(browser.run("return document.cookie", Value::Null).await, "");
    }
    board.assert_invariants().await;
}
