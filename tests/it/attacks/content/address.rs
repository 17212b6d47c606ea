//! Addresses and stored names that would like to lead the page's own connections elsewhere.

use board_tests::{
    Board, Engine, FakeDaemon,
    fake_daemon::{accepted, progress, started, text},
    hostile_site::Collector,
    tasks::id,
};
use serde_json::json;

use crate::attacks::page_watch::PageWatch;

/// What other boards take the address of their gateway from.
const PARAMETERS: &[&str] = &[
    "gatewayUrl",
    "gateway",
    "api",
    "apiUrl",
    "base",
    "baseUrl",
    "url",
    "ws",
    "wsUrl",
    "stream",
    "cursor",
    "last",
    "view",
    "token",
    "next",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a27_nothing_in_an_address_or_store_redirects_the_page() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let collector = Collector::start([127, 0, 0, 2]).await;
    let far = collector.address;
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), &format!("<base href=http://{far}/pwn/>")).await;
    let submit = viber.submitted().await;
    let base = format!("<base href=\"http://{far}/pwn/\">");
    let artifact = progress(&json!({"type": "artifact", "artifact": {"id": "a", "title": base, "ref": base}}));
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text(&base), artifact]).await;
    let watch = PageWatch::open(&board, &owner, &far.to_string()).await;
    watch.go("/t/home").await;
    // Whatever a script of another time may have left behind: every parameter's name, and what our own scripts keep.
    let stored = json!({"names": PARAMETERS, "value": format!("ws://{far}"), "session": id(&task, "sessionId")});
    let store = "const {names, value, session} = arguments[0];
        for (const store of [localStorage, sessionStorage]) {
          for (const name of [...names, 'sent', 'htmx-history-cache', 'settings', 'moltbot.control.settings']) store.setItem(name, value);
          store.setItem('sent', JSON.stringify([value, value]));
          store.setItem(`draft:${session}`, `<img src=${value} onerror=pwn(1)>`);
          store.setItem('draft:new:home', `<img src=${value} onerror=pwn(2)>`);
        }
        window.name = value;";
    watch.browser.run(store, stored).await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let all: Vec<String> = PARAMETERS.iter().map(|name| format!("{name}=ws://{far}")).collect();
    let each: Vec<String> = PARAMETERS.iter().map(|name| format!("{name}=http%3A%2F%2F{far}%2Fpwn")).collect();
    for path in ["/t/home", session.as_str(), "/t/home/vibers", "/t/home/sessions", "/account"] {
        for query in [all.join("&"), each.join("&")] {
            for address in [
                format!("{path}?{query}"),
                format!("{path}?{query}#{query}"),
                format!("{path}#api=http://{far}&{query}"),
            ] {
                watch.go(&address).await;
                watch.clean(&address).await;
            }
        }
    }
    watch.browser.go(&format!("{}/login?{}#{}", board.url, all.join("&"), all.join("&"))).await;
    assert_eq!(collector.heard(), Vec::<String>::new());
    board.assert_invariants().await;
}
