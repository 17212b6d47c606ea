//! Commands that only look: they write nothing, wherever the home lies.

use std::{collections::BTreeMap, fs, path::Path, time::SystemTime};

use board_tests::{Board, Engine, Viber, board::HOME, eventually};

/// Everything below a folder, with when it was changed.
fn below(folder: &Path, into: &mut BTreeMap<String, SystemTime>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let meta = entry.metadata().expect("metadata");
        into.insert(entry.path().display().to_string(), meta.modified().expect("a time"));
        if meta.is_dir() {
            below(&entry.path(), into);
        }
    }
}

#[tokio::test]
async fn looking_makes_no_home_and_changes_none() {
    let viber = Viber::fresh("looker");
    fs::remove_dir_all(viber.home()).ok();
    let looks: &[&[&str]] = &[&["doctor"], &["models"], &["key", "list"], &["status"], &["service", "logs"]];
    let without_home = [&["memory", "search", "rain"][..], &["config", "validate"], &["service", "status"]];
    for look in looks.iter().copied().chain(without_home) {
        let said = viber.cli(look).await;
        assert!(!viber.home().exists(), "{look:?} made a home: {said:?}");
    }
    assert_eq!(viber.cli(&["models"]).await.code(), 0);

    viber.write("config.yaml", "maxTasks: 2\n");
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    below(&viber.home(), &mut before);
    for look in looks {
        viber.cli(look).await;
    }
    below(&viber.home(), &mut after);
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_status_says_who_where_since_when_and_with_which_agents() {
    let board = Board::start(Engine::Sqlite).await;
    let viewer = board.token(HOME, "viewer").await;
    let viber = Viber::join(&board, "lighthouse").await;
    viber.connected(&viewer).await;
    // The Board knows of the connection a moment before the daemon says so.
    let said = eventually("the daemon knows of it", || async {
        let said = viber.cli(&["status"]).await.good();
        (!said.contains("not connected yet")).then_some(said)
    })
    .await;
    for words in ["lighthouse (vib_", &board.url, "connected", "(for ", "Agents: default"] {
        assert!(said.contains(words), "{words} in {said}");
    }
}
