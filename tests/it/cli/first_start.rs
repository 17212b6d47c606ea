//! The first start of a Board: its log has the link that makes the first account, until there is one.

use board_tests::{Board, Engine, eventually};

/// The links in a log.
fn links(log: &str) -> Vec<String> {
    let said = log.split("Open this once to make the first account: ").skip(1);
    said.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_the_setup_link_until_there_is_an_owner() {
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    board.serve();
    board.ready().await;
    let link = eventually("a link in the log", || async { links(&board.log()).pop() }).await;
    let path = link.strip_prefix(&board.url).unwrap_or_else(|| panic!("{link} leads elsewhere")).to_owned();
    assert!(path.starts_with("/setup/"), "{path}");
    let page = board.anon().page(&path).await.expect(200).body;
    assert!(page.contains("name=\"password\""), "{page}");
    board.owner().await;
    board.anon().page(&path).await.expect(410);
    // Somebody who reads a later log finds nothing in it.
    let before = board.log().len();
    board.stop().await;
    board.restart().await;
    board.stop().await;
    let later = board.log()[before..].to_owned();
    assert!(later.contains("serving") && links(&later).is_empty(), "{later}");
    board.restart().await;
    board.assert_invariants().await;
}
