//! Forms that send themselves.

use std::collections::BTreeMap;

use board_tests::{
    Browser, Engine,
    board::{Board, HOME, PASSWORD},
    hostile_site::HostileSite,
    invariants::{Dump, dump},
};
use reqwest::{Method, header};
use serde_json::{Value, json};
use server::web::authority::{Access, ROUTES, Route};

use super::{HOSTILE_HOST, HOSTS, victim};
use crate::authority::Callers;

/// What the Board fills by itself while nobody does anything: its indexes of titles and texts.
const INDEXES: [&str; 11] = [
    "session_titles",
    "session_title_trigrams",
    "session_title_trigrams_data",
    "session_title_trigrams_idx",
    "unindexed_titles",
    "indexed_texts",
    "text_words",
    "text_words_data",
    "text_words_docsize",
    "text_words_idx",
    "unindexed_texts",
];

/// Everything that the database holds, but for when something was last seen and the indexes.
pub(super) async fn contents(board: &Board) -> BTreeMap<String, Vec<String>> {
    let dump = Dump::of(board).await.expect("the Board's database");
    let rows = |rows: &Vec<dump::Row>| {
        let plain = rows.iter().map(|row| {
            let mut row = row.clone();
            row.retain(|column, _| column != "seen_at");
            serde_json::to_string(&row).expect("JSON")
        });
        plain.collect()
    };
    let kept = dump.0.iter().filter(|(table, _)| !INDEXES.contains(&table.as_str()));
    let all: BTreeMap<String, Vec<String>> = kept.map(|(table, all)| (table.to_string(), rows(all))).collect();
    assert!(all.len() > 15, "{:?}", all.keys());
    all
}

/// Panics with what is different from `before`.
pub(super) async fn unchanged(board: &Board, before: &BTreeMap<String, Vec<String>>) {
    let now = contents(board).await;
    for (table, rows) in &now {
        let then = &before[table];
        let new: Vec<_> = rows.iter().filter(|row| !then.contains(row)).collect();
        let gone: Vec<_> = then.iter().filter(|row| !rows.contains(row)).collect();
        assert!(new.is_empty() && gone.is_empty(), "{table} has {new:#?} and no longer {gone:#?}");
    }
}

/// A world whose machines have hung up, so that nothing in it changes by itself.
pub(super) async fn still_callers() -> Callers {
    let callers = Callers::make().await;
    let viewer = &callers.roles[1].1;
    board_tests::eventually("nobody is connected", || async {
        let vibers = viewer.get("/api/v1/vibers").await.expect(200).body;
        (!vibers.contains("\"connected\"") && !callers.board.log().is_empty()).then_some(())
    })
    .await;
    board_tests::eventually("the other team's machine is gone", || async {
        let closed = callers.board.log().matches("a viber's connection ended").count();
        (closed >= 2).then_some(())
    })
    .await;
    callers
}

/// How often the log says, from `from` on, that a route was answered with this status.
pub(super) fn answered(board: &Board, from: usize, method: &str, route: &str, status: u16) -> usize {
    let (route, status) = (format!("method={method} route={route}}}"), format!("status={status} "));
    board.log()[from..].lines().filter(|line| line.contains(&route) && line.contains(&status)).count()
}

fn mutating() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(|route| route.method != "GET")
}

/// A page that sends every form in it as soon as it is there, each into a frame of its own.
fn page(board: &str, paths: &[(&str, String)]) -> String {
    let fields = [
        ("name", "evil"),
        ("email", "evil@example.org"),
        ("password", PASSWORD),
        ("old", PASSWORD),
        ("new", "an evil password"),
        ("role", "owner"),
        ("title", "evil"),
        ("content", "evil"),
        ("goal", "evil"),
        ("theme", "dark"),
        ("slug", "evil"),
        ("team", "evil"),
        ("labels", "evil"),
        ("provider", "demo"),
        ("lost_after_minutes", "1"),
        ("retention_days", "1"),
    ];
    let fields: String = fields.iter().map(|(name, value)| format!("<input name={name} value='{value}'>")).collect();
    let forms = paths.iter().enumerate().flat_map(|(n, (_, path))| {
        // JSON in a form: the name is its beginning, the value its end.
        let json = r#"<input name='{"goal":"evil","name":"evil","role":"owner","title":"evil","x":"' value='"}'>"#;
        let (action, frame) =
            (format!("{board}{path}"), format!("<iframe name=f{n}></iframe><iframe name=g{n}></iframe>"));
        [
            format!("{frame}<form method=post target=f{n} action='{action}'>{fields}</form>"),
            format!("<form method=post target=g{n} enctype=text/plain action='{action}'>{json}</form>"),
        ]
    });
    let script = "for (const form of document.forms) form.submit();";
    format!("<!doctype html><body>{}<script>{script}</script>", forms.collect::<String>())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a16_no_form_of_another_site_changes_anything() {
    let callers = still_callers().await;
    let board = &callers.board;
    let (_, owner) = callers
        .roles
        .iter()
        .find(|(who, person)| *who == Access::Owner && person.bearer().is_none())
        .expect("an owner");
    let hostile_site = HostileSite::start().await;
    let browser = victim(&hostile_site, owner).await;
    // A code is a secret of its own; what comes after it is guarded the same way.
    let filled = |route: &Route| {
        callers.path(route, &callers.ours).unwrap_or_else(|| route.path.replace("{code}", "vbi_0").replace("{id}", "0"))
    };
    let posts: Vec<(&str, String)> =
        mutating().filter(|route| route.method == "POST").map(|route| (route.path, filled(route))).collect();
    assert!(posts.len() > 35, "{}", posts.len());
    let (before, from) = (contents(board).await, board.log().len());
    for (n, host) in HOSTS.iter().enumerate() {
        hostile_site.page("/forms", page(&board.url, &posts));
        browser.go(&hostile_site.url(host, "/forms")).await;
        for (route, path) in &posts {
            board_tests::eventually(&format!("two answers to {path} from {host}"), || async {
                (answered(board, from, "POST", route, 403) == 2 * (n + 1)).then_some(())
            })
            .await;
        }
    }
    // Methods that no form has: a script asks first, and nobody answers that it may.
    for host in HOSTS {
        let others: Vec<Value> =
            mutating().map(|route| json!([route.method, format!("{}{}", board.url, filled(route))])).collect();
        browser.go(&hostile_site.url(host, "/empty")).await;
        let script = "const all = arguments[0].flatMap(([method, url]) => ['application/json', 'text/plain'].map((type) =>
            fetch(url, {method, body: '{}', credentials: 'include', headers: {'content-type': type}}).then((a) => `${method} ${url} ${a.status}`, () => '')));
            const beacons = arguments[0].map(([, url]) => navigator.sendBeacon(url, new Blob(['{}'], {type: 'text/plain'})));
            return Promise.all(all).then((all) => all.filter(Boolean))";
        let read = browser.run(script, json!(others)).await;
        assert_eq!(read, json!([]), "{host} could read an answer");
    }
    unchanged(board, &before).await;
    for route in mutating() {
        for status in [200, 201, 202, 204, 303, 400, 404, 409, 410, 415, 422] {
            let n = answered(board, from, route.method, route.path, status);
            assert_eq!(n, 0, "{} {} was answered {status} {n} times", route.method, route.path);
        }
    }
    // What the operator sees when such a page takes the whole tab.
    for host in HOSTS {
        for path in ["/logout", "/t/home/tasks"] {
            hostile_site.page("/top", format!("<form method=post action='{}{path}'><input name=goal value=evil></form><script>document.forms[0].submit()</script>", board.url));
            browser.go(&hostile_site.url(host, "/top")).await;
            browser.sees("body", "did not come from this Board's own pages").await;
            let status = "return performance.getEntriesByType('navigation')[0].responseStatus";
            assert_eq!(browser.run(status, Value::Null).await, 403, "{host} {path}");
        }
    }
    owner.page("/t/home").await.expect(200);
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a29_no_other_site_signs_somebody_in() {
    let board = Board::start(Engine::Sqlite).await;
    board.make_operator(HOME, "eve@example.org", "operator").await;
    let hostile_site = HostileSite::start().await;
    let browser = Browser::open_where(&[(HOSTILE_HOST, &format!("127.0.0.1:{}", hostile_site.port))]).await;
    for host in HOSTS {
        let form = format!(
            "<form method=post action='{}/login'><input name=email value=eve@example.org><input name=password value='{PASSWORD}'></form><script>document.forms[0].submit()</script>",
            board.url
        );
        hostile_site.page("/login", form);
        browser.go(&hostile_site.url(host, "/login")).await;
        browser.sees("body", "did not come from this Board's own pages").await;
        browser.go(&format!("{}/t/home", board.url)).await;
        assert_eq!(browser.path().await, "/login", "nobody is signed in");
        let forged = [("origin", hostile_site.url(host, "")), ("sec-fetch-site", "cross-site".to_owned())];
        for (name, value) in forged {
            let body = format!("email=eve%40example.org&password={}", PASSWORD.replace(' ', "+"));
            let request = board.anon().request(Method::POST, "/login").header(name, value);
            let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
            let answer = request.send().await.expect("an answer");
            assert_eq!(answer.status(), 403);
            assert!(!answer.headers().contains_key(header::SET_COOKIE));
        }
    }
    board.assert_invariants().await;
}
