//! What `doctor` says of addresses: of the Board about its own configuration, of a viber about the Board that it calls.

use board_tests::{Board, Engine, Viber, board::HOME, eventually, programs::run};

/// The line about the configuration, and the exit code.
async fn configuration(board: &Board, environment: &[(&str, &str)]) -> (String, i32) {
    let mut command = board.command(&["doctor"]);
    command.envs(environment.iter().copied());
    let said = run(command, "").await;
    let line = said.out.lines().find_map(|line| line.split_once("configuration: "));
    (line.unwrap_or_else(|| panic!("{said:?}")).1.to_owned(), said.code())
}

#[tokio::test]
async fn it_says_where_the_board_is_reached_in_a_container_too() {
    let mut board = Board::start(Engine::Sqlite).await;
    // The settings of a Board that serves may be on its own command line alone.
    let (said, code) = configuration(&board, &[]).await;
    assert_eq!((said.starts_with(&format!("a Board serves at {};", board.url)), code), (true, 0), "{said}");
    assert!(board.stop().await.success());
    // What the compose files set.
    let container = [
        ("VIBER_BOARD_LISTEN", "0.0.0.0:7400"),
        ("VIBER_BOARD_PUBLISHED_ON_LOOPBACK", "true"),
        ("VIBER_BOARD_PUBLIC_URL", ""),
    ];
    assert_eq!(configuration(&board, &container).await, ("for a Board at http://localhost:7400".into(), 0));
    let named = [container[0], container[1], ("VIBER_BOARD_PUBLIC_URL", "https://board.example.org")];
    assert_eq!(configuration(&board, &named).await, ("for a Board at https://board.example.org".into(), 0));
    // What serve would refuse.
    let (said, code) = configuration(&board, &container[..1]).await;
    assert!(said.starts_with("--listen 0.0.0.0:7400: ") && code == 1, "{said}");
}

#[tokio::test]
async fn a_viber_of_a_board_that_got_another_address_says_so_and_goes_on_under_the_new_one() {
    let mut board = Board::start(Engine::Sqlite).await;
    let viewer = board.token(HOME, "viewer").await;
    let mut viber = Viber::join(&board, "mover").await;
    let id = viber.id(&viewer).await;
    let old = board.url.clone();
    let new = old.replace("127.0.0.1", "localhost");
    board.set("VIBER_BOARD_PUBLIC_URL", &new);
    assert!(board.stop().await.success());
    board.restart().await;
    eventually("status says that the address is another", || async {
        let said = viber.cli(&["status"]).await.out;
        (said.contains("not served under this address (421)") && said.contains("boardUrl")).then_some(())
    })
    .await;
    let said = viber.cli(&["doctor"]).await;
    assert!(said.code() == 1 && said.out.contains(&format!("{old}/: the Board is not served under this")), "{said:?}");

    // What it says helps.
    assert!(viber.stop().await.success());
    let credential = viber.home().join("state/credential");
    let text = std::fs::read_to_string(&credential).expect("a credential");
    std::fs::write(&credential, text.replace(&old, &new)).expect("written");
    viber.run();
    board.url.clone_from(&new);
    let viewer = board.token(HOME, "viewer").await;
    viber.connected(&viewer).await;
    assert_eq!(viber.id(&viewer).await, id);
    let said = viber.cli(&["doctor"]).await;
    assert!(said.out.contains(&format!("the Board at {new}/ answers")), "{said:?}");
}
