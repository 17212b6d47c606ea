//! Beginnings: keys, the first owner, the first connection of a machine. Races have one winner.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _};

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    person::Answer,
    programs::run,
};
use futures_util::future::join_all;

crate::on_both_databases!(a14_one_of_twenty_makes_the_first_owner, a15_one_of_twenty_joins_with_a_token);

/// How many answers had each status.
fn statuses(answers: &[Answer]) -> BTreeMap<u16, usize> {
    answers.iter().fold(BTreeMap::new(), |mut all, answer| {
        *all.entry(answer.status).or_default() += 1;
        all
    })
}

/// Tries with more patience than the Board has places for hashing at once.
async fn patiently(person: &Person, path: &str, fields: &[(&str, &str)]) -> Answer {
    board_tests::eventually("a place for hashing", || async {
        let answer = person.post_form(path, fields).await;
        (answer.status != 429).then_some(answer)
    })
    .await
}

async fn a14_one_of_twenty_makes_the_first_owner(engine: Engine) {
    let board = Board::start(engine).await;
    // Nobody is there yet, under no name and password that anybody would try.
    for (email, password) in [
        ("admin@example.org", "admin"),
        ("admin", "admin"),
        ("root", "root"),
        ("owner@example.org", "password"),
        ("", ""),
    ] {
        let answer = board.anon().post_form("/login", &[("email", email), ("password", password)]).await;
        assert_eq!(answer.status, 401, "{email}");
    }
    assert_eq!(board.cli(&["operator", "list", "--team", HOME]).await.good(), "");
    let path = board.setup_path().await;
    board.anon().page(&path).await.expect(200);
    board.anon().page("/setup/guess").await.expect(410);
    let form = [("name", "Ada"), ("email", "ada"), ("password", PASSWORD), ("team", "F")];
    board.anon().post_form(&path, &form).await.expect(422);
    let people: Vec<_> = (0..20).map(|n| (board.anon(), format!("p{n}@example.org"))).collect();
    let tries = people.iter().map(|(person, email)| async {
        let form = [("name", "P"), ("email", email), ("password", PASSWORD), ("team", "Fernworks")];
        patiently(person, &path, &form).await
    });
    let answers = join_all(tries).await;
    // A form's 201 is the way to the page that it made.
    assert_eq!(statuses(&answers), [(303, 1), (410, 19)].into());
    board.anon().page(&path).await.expect(410);
    let owner = people.iter().find(|(person, _)| person.cookie().is_some()).expect("the one");
    assert_eq!(people.iter().filter(|(person, _)| person.cookie().is_some()).count(), 1);
    assert_eq!(owner.0.page("/").await.expect(303).header("location"), "/t/fernworks");
    owner.0.page("/t/fernworks/settings/audit").await.expect(200);
    let said = board.cli(&["operator", "list", "--team", "fernworks"]).await.good();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_ne!(board.cli(&["setup-link"]).await.code(), 0, "the code died with the first owner");
    board.assert_invariants().await;
}

async fn a15_one_of_twenty_joins_with_a_token(engine: Engine) {
    let board = Board::start(engine).await;
    let token = board.join_token(HOME).await;
    let people: Vec<Person> = (0..20).map(|_| board.anon()).collect();
    let tries = people.iter().enumerate().map(|(n, person)| {
        let (token, name) = (token.clone(), format!("lab-{n}"));
        async move { FakeDaemon::join(person, &token, &name).await }
    });
    let answers = join_all(tries).await;
    assert_eq!(statuses(&answers), [(201, 1), (401, 19)].into());
    let vibers = board.token(HOME, "viewer").await.get("/api/v1/vibers").await.expect(200).json();
    assert_eq!(vibers["items"].as_array().map(Vec::len), Some(1), "{vibers:#}");
    let won = answers.iter().find(|answer| answer.status == 201).expect("one").json();
    assert_eq!(vibers["items"][0]["id"], won["viberId"]);
    let mut viber = FakeDaemon::enrolled(&board, &won, "lab");
    viber.connect().await;
    FakeDaemon::join(&board.anon(), &token, "late").await.expect(401);
    board.assert_invariants().await;
}

#[tokio::test]
async fn a08_a_bad_signing_key_is_refused_before_anything_listens() {
    let board = Board::prepare(Engine::Sqlite, &[]).await;
    let key = board.data().join("key");
    let file = key.to_str().expect("text");
    let port = board_tests::programs::free_port();
    let serve = async |file: &str| {
        let said =
            run(board.command(&["serve", "--listen", &format!("127.0.0.1:{port}"), "--signing-key-file", file]), "")
                .await;
        assert_eq!(said.code(), 78, "{said:?}");
        assert!(said.err.contains("--signing-key-file") && said.err.contains(file), "the setting is named: {said:?}");
        assert!(!said.err.contains("serving"), "nothing listened: {said:?}");
        said
    };
    for (text, mode, why) in [
        ("abc-too-little", 0o600, "shorter than 32 bytes"),
        ("0123456789abcdef0123456789abcde", 0o600, "shorter than 32 bytes"),
        ("", 0o600, "shorter than 32 bytes"),
        ("0123456789abcdef0123456789abcdef0123", 0o644, "others"),
        ("0123456789abcdef0123456789abcdef0123", 0o640, "others"),
        (server::guard::keys::SAMPLE_KEY, 0o600, "sample"),
    ] {
        std::fs::write(&key, text).expect("a key");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let said = serve(file).await;
        assert!(said.err.contains(why), "{why}: {said:?}");
        assert!(text.is_empty() || !format!("{said:?}").contains(text), "the value is not shown: {said:?}");
    }
    std::fs::remove_file(&key).expect("a key");
    serve(file).await;
    serve(board.data().to_str().expect("text")).await;
}

#[tokio::test]
async fn a08_a_board_without_a_configured_key_makes_a_closed_one_and_keeps_it() {
    let mut board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let folder = board.data().join("keys");
    assert_eq!(mode(&folder), 0o700);
    let keys = || -> Vec<_> {
        std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    };
    let made = keys();
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(mode(&made[0]), 0o600);
    let other = Board::start(Engine::Sqlite).await;
    let content = std::fs::read(&made[0]).expect("a key");
    let others: Vec<_> = std::fs::read_dir(other.data().join("keys"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(content.len() >= 32 && content != std::fs::read(&others[0]).expect("a key"), "each Board has its own");
    board.stop().await;
    board.restart().await;
    assert_eq!(keys(), made);
    owner.page("/t/home").await.expect(200);
    board.assert_invariants().await;
}
