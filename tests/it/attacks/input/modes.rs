//! A100: who may read the files, after an install, a backup, a restore and an upgrade; whatever the umask was.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use board_tests::{
    Board, Engine, Viber,
    board::HOME,
    llm::{Llm, Reply},
    programs::{ProgramOutput, run},
    tasks::id,
};

/// Everything below a folder that others than its owner may touch.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.file_type().is_symlink() {
            continue;
        }
        if meta.mode() & 0o077 != 0 {
            wrong.push(format!("{} {:o}", path.display(), meta.mode() & 0o7777));
        }
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    wrong
}

/// The same command under a umask that hides nothing.
fn careless(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

async fn board_says(board: &Board, args: &[&str]) -> ProgramOutput {
    run(careless(&board.command(args)), "").await
}

#[tokio::test]
async fn a100_a_boards_files_are_its_owners_alone() {
    // Made and served by a harness process with an ordinary umask first: its folder stands for an older installation.
    let mut board = Board::prepare(Engine::Sqlite, &[]).await;
    fs::set_permissions(board.data(), Permissions::from_mode(0o755)).expect("a mode");
    board_says(&board, &["migrate"]).await.good();
    board.serve();
    board.ready().await;
    let owner = board.owner().await;
    owner.get("/api/v1/vibers").await.expect(200);
    let of_ours = |wrong: Vec<String>| -> Vec<String> {
        // The log and the orders to failpoints are the harness's own.
        wrong.into_iter().filter(|path| !path.contains("/board.log") && !path.contains("/faults")).collect()
    };
    let check = |board: &Board, when: &str| {
        let wrong = of_ours(open_to_others(board.data()));
        assert!(wrong.is_empty(), "after {when}: {wrong:#?}");
        assert_eq!(fs::metadata(board.data()).expect("a folder").mode() & 0o777, 0o700, "after {when}");
    };
    check(&board, "the first start");

    let copy = board.data().join("copy");
    board_says(&board, &["backup", copy.to_str().expect("text")]).await.good();
    assert_eq!(fs::metadata(&copy).expect("a copy").mode() & 0o777, 0o600);
    check(&board, "a backup");

    // As an older version, or a careless hand, might have left them.
    board.stop().await;
    for file in ["board.db", "board.db-wal", "board.db-shm"] {
        let path = board.data().join(file);
        if path.exists() {
            fs::set_permissions(path, Permissions::from_mode(0o644)).expect("a mode");
        }
    }
    fs::set_permissions(board.data(), Permissions::from_mode(0o755)).expect("a mode");
    board_says(&board, &["migrate"]).await.good();
    board.restart().await;
    check(&board, "an upgrade");

    board.stop().await;
    board_says(&board, &["restore", copy.to_str().expect("text"), "--replace"]).await.good();
    check(&board, "a restore");
    board.restart().await;
    board.anon().sign_in("owner@example.org", board_tests::board::PASSWORD).await;
    check(&board, "a restart");
    board.assert_invariants().await;
}

#[tokio::test]
async fn a100_a_vibers_files_are_its_owners_alone() {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let llm = Llm::start([
        Reply::call("shell", serde_json::json!({"command": "umask; seq 1 100000; echo x > by-command.txt"})),
        Reply::text("done"),
    ])
    .await;
    let mut viber = Viber::fresh("lab");
    let token = board.join_token(HOME).await;
    let space = viber.space().display().to_string();
    let join = viber.command(&["join", &board.url, &token, "--name", "lab", "--space", &space]);
    run(careless(&join), "").await.good();
    let key = viber.command(&["key", "set", "openai"]);
    run(careless(&key), "sk-a-key\n").await.good();
    // What was just written is closed, whatever the umask; the harness's own files come after.
    let wrong = open_to_others(&viber.home());
    assert!(wrong.is_empty(), "after joining: {wrong:#?}");
    viber.use_scripted_model(&llm, "openai");
    viber.run();
    viber.connected(&operator).await;
    let task = operator.submit(&viber.id(&operator).await, "work").await;
    operator.task_that(id(&task, "id"), "ended", |task| task["endedAt"].is_string()).await;
    for folder in ["state", "secrets"] {
        let wrong = open_to_others(&viber.home().join(folder));
        assert!(wrong.is_empty(), "{folder} after a task: {wrong:#?}");
    }
    let home = fs::metadata(viber.home()).expect("a home");
    assert_eq!(home.mode() & 0o777, 0o700);
    for folder in ["workspace", "agents", "artifacts"] {
        assert_eq!(fs::metadata(viber.home().join(folder)).expect("a folder").mode() & 0o077, 0, "{folder}");
    }
    let socket = fs::metadata(viber.home().join("state/daemon.sock")).expect("a socket");
    assert!(socket.file_type().is_socket() && socket.mode() & 0o077 == 0, "{:o}", socket.mode());
    viber.stop().await;

    // A credential that others can read may be somebody else's by now.
    let credential = viber.home().join("state/credential");
    for mode in [0o640, 0o604, 0o644, 0o660, 0o666] {
        fs::set_permissions(&credential, Permissions::from_mode(mode)).expect("a mode");
        let said = viber.cli(&["run", "--once"]).await;
        assert_eq!(said.code(), 78, "{mode:o}: {said:?}");
        assert!(said.err.contains("can be read by others") && said.err.contains("chmod 600"), "{mode:o}: {said:?}");
    }
    fs::set_permissions(&credential, Permissions::from_mode(0o600)).expect("a mode");
    // Folders that somebody opened are closed again.
    for folder in ["state", "secrets"] {
        fs::set_permissions(viber.home().join(folder), Permissions::from_mode(0o755)).expect("a mode");
    }
    viber.run();
    viber.connected(&operator).await;
    for folder in ["state", "secrets"] {
        assert_eq!(fs::metadata(viber.home().join(folder)).expect("a folder").mode() & 0o777, 0o700, "{folder}");
    }
    viber.stop().await;
    board.assert_invariants().await;
}
