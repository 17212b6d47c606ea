//! Reading over the shoulder: by another origin, in a frame, under another name, and being led away.

use std::io::{Read as _, Write as _};

use board_tests::{
    Board, Engine,
    board::{HOME, PASSWORD},
    hostile_site::HostileSite,
    wait::EVENT_TIMEOUT,
};
use reqwest::{Method, header};
use serde_json::{Value, json};
use server::web::authority::{Access, ROUTES};

use super::{HOSTS, forms::answered, victim};
use crate::authority::Callers;

/// The owner who signed in.
fn owner(callers: &Callers) -> &board_tests::Person {
    let owner = callers.roles.iter().find(|(who, person)| *who == Access::Owner && person.bearer().is_none());
    &owner.expect("an owner").1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a22_no_other_origin_reads_an_answer() {
    let callers = Callers::make().await;
    let board = &callers.board;
    let hostile_site = HostileSite::start().await;
    let cross = [
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "access-control-allow-methods",
        "access-control-allow-headers",
        "access-control-expose-headers",
        "access-control-allow-private-network",
        "timing-allow-origin",
    ];
    let mut wrong = Vec::new();
    let mut seen = 0;
    let owners: Vec<_> =
        callers.roles.iter().filter(|(who, _)| *who == Access::Owner).map(|(_, person)| person).collect();
    let mut pages = Vec::new();
    for route in ROUTES {
        let Some(path) = callers.path(route, &callers.ours) else { continue };
        let path = if route.path.ends_with("/live") { format!("{path}?view=rail") } else { path };
        if route.method == "GET" {
            pages.push(format!("{}{path}", board.url));
        }
        for origin in
            [hostile_site.url(HOSTS[0], ""), "null".to_owned(), board.url.clone(), format!("{}.evil.test", board.url)]
        {
            for person in &owners {
                // What would change something is only asked about: whether one may, as browsers do.
                let methods =
                    if route.method == "GET" { vec![Method::GET, Method::OPTIONS] } else { vec![Method::OPTIONS] };
                for method in methods {
                    let mut request = person.request(method.clone(), &path).header(header::ORIGIN, &origin);
                    if method == Method::OPTIONS {
                        request = request.header("access-control-request-method", route.method);
                        request =
                            request.header("access-control-request-headers", "authorization, content-type, x-team");
                        request = request.header("access-control-request-private-network", "true");
                    }
                    // A stream's body has no end.
                    let answer = request.send().await.expect("an answer");
                    seen += 1;
                    let granted = cross.iter().filter(|name| answer.headers().contains_key(**name)).collect::<Vec<_>>();
                    let preflight = method == Method::OPTIONS && answer.status().is_success();
                    if !granted.is_empty() || preflight || answer.status().is_server_error() {
                        wrong.push(format!("{method} {path} for {origin}: {} {granted:?}", answer.status()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty() && seen > 800, "{} of {seen}:\n{}", wrong.len(), wrong.join("\n"));

    // And in a browser that has the operator's cookie.
    let browser = victim(&hostile_site, owner(&callers)).await;
    let script = "const ways = [
          (url) => fetch(url, {credentials: 'include'}).then((a) => a.text()),
          (url) => fetch(url, {credentials: 'include', mode: 'no-cors'}).then((a) => `opaque ${a.type}`),
          (url) => fetch(url, {credentials: 'include', headers: {'x-team': 'home'}}).then((a) => a.text()),
          (url) => new Promise((done, fail) => {
            const source = new EventSource(url, {withCredentials: true});
            source.onopen = () => { source.close(); done('stream'); };
            source.onerror = () => { source.close(); fail(); };
          }),
          (url) => new Promise((done, fail) => {
            const script = document.createElement('script');
            script.onload = () => done('script'); script.onerror = fail; script.src = url;
            document.head.append(script);
          }),
        ];
        return Promise.all(arguments[0].flatMap((url) => ways.map((way, n) => way(url).then((got) => `${n} ${url}: ${got}`.slice(0, 200), () => ''))))
          .then((all) => all.filter(Boolean))";
    for host in HOSTS {
        hostile_site.page("/empty", "<!doctype html><head></head><body>");
        browser.go(&hostile_site.url(host, "/empty")).await;
        let got = browser.run(script, json!(pages)).await;
        let got: Vec<&str> = got.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert!(got.is_empty(), "{host} got {}:\n{}", got.len(), got.join("\n"));
    }
    board.assert_invariants().await;
}

/// The answer to bytes that no client library would send: its head and body.
fn raw(board: &Board, request: &str) -> String {
    let mut line = std::net::TcpStream::connect(board.url.trim_start_matches("http://")).expect("a connection");
    line.set_read_timeout(Some(EVENT_TIMEOUT)).expect("a limit");
    line.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    // A connection that stays open says no more within the limit; what came is what counts.
    let _ = line.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a26_only_our_own_names_are_answered() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let cookie = owner.cookie().expect("signed in");
    let host = board.url.trim_start_matches("http://").to_owned();
    let port = host.rsplit_once(':').expect("a port").1.to_owned();
    let end = "Connection: close\r\n\r\n";
    let mut requests = Vec::new();
    for other in [
        "evil.test".to_owned(),
        format!("evil.test:{port}"),
        "127.0.0.1".into(),
        "127.0.0.1:1".into(),
        format!("127.0.0.1.evil.test:{port}"),
        format!("127.0.0.1:{port}.evil.test"),
        format!("127.0.0.1:{port}@evil.test"),
        format!("evil.test@127.0.0.1:{port}"),
        format!("127.0.0.1:0{port}"),
        format!("localhost.:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("2130706433:{port}"),
        "".into(),
        " ".into(),
        format!("{host},evil.test"),
        format!("{host} evil.test"),
        "\u{e9}vil.test".into(),
        format!("http://{host}"),
        format!("{host}/"),
        format!("0.0.0.0:{port}"),
    ] {
        for path in ["/login", "/t/home", "/api/v1/vibers", "/api/v1/openapi.json", "/install.sh", "/no/such/page"] {
            requests.push(format!("GET {path} HTTP/1.1\r\nHost: {other}\r\nCookie: {cookie}\r\nX-Team: home\r\n{end}"));
        }
        requests.push(format!("POST /login HTTP/1.1\r\nHost: {other}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n{end}"));
    }
    for line in [
        format!("GET /login HTTP/1.1\r\nHost: {host}\r\nHost: evil.test\r\n{end}"),
        format!("GET /login HTTP/1.1\r\nHost: evil.test\r\nHost: {host}\r\n{end}"),
        format!("GET /login HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n{end}"),
        format!("GET /login HTTP/1.1\r\n{end}"),
        format!("GET /login HTTP/1.0\r\n{end}"),
        format!("GET http://evil.test/login HTTP/1.1\r\nHost: {host}\r\n{end}"),
        format!("GET http://{host}/login HTTP/1.1\r\nHost: evil.test\r\n{end}"),
        format!("GET http://evil.test/login HTTP/1.1\r\nHost: evil.test\r\n{end}"),
        format!("GET http://u@{host}/login HTTP/1.1\r\nHost: {host}\r\n{end}"),
        format!("GET //evil.test/login HTTP/1.1\r\nHost: evil.test\r\n{end}"),
        format!("CONNECT evil.test:80 HTTP/1.1\r\nHost: evil.test\r\n{end}"),
    ] {
        requests.push(line);
    }
    for request in &requests {
        let answer = raw(&board, request);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(["421", "400"].contains(&status), "{request}\n{answer}");
        let lower = answer.to_lowercase();
        assert!(
            !lower.contains("set-cookie") && !answer.contains("<form") && !lower.contains("location:"),
            "{request}\n{answer}"
        );
    }
    for own in [host.clone(), format!("localhost:{port}"), format!("LocalHost:{port}")] {
        let answer = raw(&board, &format!("GET /login HTTP/1.1\r\nHost: {own}\r\n{end}"));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<form"), "{own}: {answer}");
    }
    let absolute = raw(&board, &format!("GET http://{host}/login HTTP/1.1\r\nHost: {host}\r\n{end}"));
    assert!(absolute.starts_with("HTTP/1.1 200"), "{absolute}");
    // Other names cannot be given by headers that proxies use.
    for name in ["x-forwarded-host", "forwarded", "x-host", "x-original-url", "x-rewrite-url"] {
        let request = board
            .anon()
            .request(Method::GET, "/t/home")
            .header(name, "host=evil.test")
            .header(header::ACCEPT, "text/html");
        let answer = board.anon().send(request).await.expect(303);
        assert!(answer.header("location").starts_with("/login"), "{name}: {answer:?}");
    }
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a28_nobody_is_led_away_after_signing_in() {
    let board = Board::start(Engine::Sqlite).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let hostile_site = HostileSite::start().await;
    let away = format!("evil.test:{}", hostile_site.port);
    let foreign = [
        format!("//{away}"),
        format!("///{away}"),
        format!("/\\{away}"),
        format!("\\\\{away}"),
        format!("/\\/{away}"),
        format!("\\/{away}"),
        format!("https:{away}"),
        format!("https:/{away}"),
        format!("http://{away}"),
        format!("HTTP://{away}"),
        away.clone(),
        "javascript:pwn(1)".into(),
        "JaVaScRiPt:pwn(1)".into(),
        "data:text/html,pwn".into(),
        "javascript://%0apwn(1)".into(),
        format!("/\t/{away}"),
        format!("/\n/{away}"),
        format!("/\r\n/{away}"),
        format!("/\r\nLocation: http://{away}"),
        "/\r\nSet-Cookie: vb=x".into(),
        format!("\t//{away}"),
        format!(" //{away}"),
        format!("\u{a0}//{away}"),
        format!("/\u{ff0f}{away}"),
        format!("\u{ff0f}/{away}"),
        format!("/\0/{away}"),
        "".into(),
        ".".into(),
        "t/home".into(),
        "?x".into(),
        "#x".into(),
        format!("/{}", "x".repeat(4000)),
        format!("@{away}"),
        format!("/.\\{away}"),
    ];
    let ours = ["/", "/t/home/vibers", "/t/home/sessions?q=a%20b", "/account"];
    let person = board.anon();
    person.sign_in("ada@example.org", PASSWORD).await;
    for (next, lands) in foreign.iter().map(|next| (next.as_str(), "/")).chain(ours.iter().map(|next| (*next, *next))) {
        // Whoever is signed in already is sent on by the page itself.
        let page = person.page(&format!("/login?next={}", board_tests::person::escape(next))).await.expect(303);
        assert_eq!(page.header("location"), lands, "{next:?}");
        assert!(page.headers.get("set-cookie").is_none(), "{next:?}: {page:?}");
    }
    // The form brings it back in a field; each sign-in costs a hash, so the trickiest ones stand for all.
    for (next, lands) in [
        (&*foreign[0], "/"),
        (&*foreign[2], "/"),
        (&*foreign[6], "/"),
        (&*foreign[16], "/"),
        (&*foreign[18], "/"),
        (&*foreign[11], "/"),
        ("/t/home/vibers", "/t/home/vibers"),
    ] {
        let fields = [("email", "ada@example.org"), ("password", PASSWORD), ("next", next)];
        let answer = board.anon().post_form("/login", &fields).await.expect(303);
        assert_eq!(answer.header("location"), lands, "{next:?}");
        assert_eq!(answer.headers.get_all("location").iter().count(), 1);
        assert!(answer.header("set-cookie").starts_with("vb=ey"), "{next:?}: {answer:?}");
    }
    for raw in ["/%0d%0aSet-Cookie:%20vb=x", "/%5cevil.test", "/%2f%2fevil.test", "/%09/evil.test"] {
        let page = person.page(&format!("/login?next={raw}")).await.expect(303);
        assert_eq!(page.header("location"), "/", "{raw}");
    }
    // A browser that reads addresses its own way ends where it began.
    let browser = victim(&hostile_site, &board.operator(HOME, "bo@example.org", "viewer").await).await;
    hostile_site.page("/", "<title>led away</title>");
    for next in &foreign {
        browser.go(&format!("{}/login?next={}", board.url, board_tests::person::escape(next))).await;
        let here = browser.page.current_url().await.expect("an address");
        assert!(here.as_str().starts_with(&board.url), "{next:?} leads to {here}");
    }
    let away = board.anon().page("/t/home/vibers").await.expect(303);
    assert_eq!(away.header("location"), "/login?next=/t/home/vibers");
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a25_no_page_shows_in_a_frame() {
    let callers = Callers::make().await;
    let board = &callers.board;
    let hostile_site = HostileSite::start().await;
    let mut pages = vec!["/login".to_owned(), "/no/such/page".into(), "/t/home/nowhere".into()];
    for route in ROUTES.iter().filter(|route| route.method == "GET" && route.path != "/") {
        let endless =
            route.path.ends_with("/live") || route.path.ends_with("/events") || route.path.starts_with("/ws/");
        pages.extend(callers.path(route, &callers.ours).filter(|_| !endless));
    }
    assert!(pages.len() > 30, "{}", pages.len());
    for path in &pages {
        // The body may be a whole program; only what stands before it counts.
        let request = owner(&callers).request(Method::GET, path).header(header::ACCEPT, "text/html");
        let answer = request.send().await.expect("an answer");
        let policy = answer.headers().get(header::CONTENT_SECURITY_POLICY).and_then(|policy| policy.to_str().ok());
        let policy = policy.unwrap_or_default();
        // What an artifact's page frames may stand on that page alone, without scripts and without an origin.
        let framed = path.ends_with("/sandbox") && policy.starts_with("sandbox; default-src 'none'");
        let ancestors = if framed { "frame-ancestors 'self'" } else { "frame-ancestors 'none'" };
        assert!(policy.contains(ancestors), "{path}: {policy}");
    }
    // In a browser: a page that showed would fetch its style sheet, its scripts, its stream.
    let some = ["/login", "/t/home", "/account", &format!("/t/home/sessions/{}", callers.ours["sessions"])];
    let urls: Vec<String> = some.iter().map(|path| format!("{}{path}", board.url)).collect();
    let add = "const left = new Set(URLS);
        setTimeout(() => { for (const url of URLS) {
          const frame = document.createElement('iframe');
          frame.onload = () => { left.delete(url); if (!left.size) fetch('BOARD/api/v1/openapi.json', {mode: 'no-cors'}).catch(() => {}); };
          frame.src = url;
          document.body.append(frame);
        } }, 100)";
    let add = add.replace("URLS", &json!(urls).to_string()).replace("BOARD", &board.url);
    hostile_site.page("/frames", format!("<!doctype html><body><script>{add}</script>"));
    let shown =
        |from: usize| ["/static/{hash}/{name}", "/t/{team}/live"].map(|route| answered(board, from, "GET", route, 200));
    for host in HOSTS {
        // A browser of its own: nothing is in its cache, and its frames are never waited for.
        let browser = victim(&hostile_site, owner(&callers)).await;
        let from = board.log().len();
        browser.go(&hostile_site.url(host, "/frames")).await;
        board_tests::eventually("every frame has ended somehow", || async {
            (answered(board, from, "GET", "/api/v1/openapi.json", 200) > 0).then_some(())
        })
        .await;
        let asked = board.log()[from..].lines().filter(|line| line.contains("answered status=200")).count();
        assert!(asked >= some.len(), "they were asked for:\n{}", &board.log()[from..]);
        assert_eq!(shown(from), [0, 0], "{host} shows something:\n{}", &board.log()[from..]);
    }
    // In the whole tab it does all of that.
    let browser = victim(&hostile_site, owner(&callers)).await;
    let from = board.log().len();
    browser.go(&format!("{}/t/home", board.url)).await;
    browser.find("body[data-live=on]").await;
    assert!(shown(from)[0] > 0, "{}", &board.log()[from..]);
    board.assert_invariants().await;
}
