//! Backups between the databases: every row of every table, and nothing when there is damage (F85, F86).

use std::{collections::BTreeMap, path::Path};

use board_tests::{Board, Engine, FakeDaemon, Fixture, board::HOME, eventually, tasks::id};
use futures_util::StreamExt as _;
use reqwest::Method;
use server::db::copy::Snapshot;

use super::{Asking, absent_on};

crate::on_both_databases!(
    f85_a_backup_of_either_database_restores_into_either_row_by_row,
    f86_a_damaged_backup_changes_nothing,
);

/// Every row of every table, as text and in order.
pub(super) async fn rows(url: &str) -> BTreeMap<String, Vec<String>> {
    let mut snapshot = Snapshot::open(url).await.expect("the database");
    let mut all = BTreeMap::new();
    for table in snapshot.tables().to_vec() {
        let mut rows: Vec<String> =
            snapshot.rows(&table).map(|row| serde_json::to_string(&row.expect("a row")).expect("JSON")).collect().await;
        rows.sort();
        all.insert(table.name.clone(), rows);
    }
    snapshot.close().await.expect("a clean goodbye");
    all
}

pub(super) fn same(found: &BTreeMap<String, Vec<String>>, expected: &BTreeMap<String, Vec<String>>, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (table, rows) in expected {
        // That a backup was put back is itself written down, there and nowhere else.
        let noted = |row: &&String| {
            matches!(table.as_str(), "audit" | "board")
                && ["restore", "audit.adopt"].iter().any(|word| row.contains(word))
                && !rows.contains(row)
        };
        let there: Vec<&String> = found[table].iter().filter(|row| !noted(row)).collect();
        assert!(
            there == rows.iter().collect::<Vec<_>>(),
            "{what}: {table} has {} rows, {} were expected, or others: {:?}",
            there.len(),
            rows.len(),
            there.iter().find(|row| !rows.contains(row))
        );
    }
}

/// A stopped Board with something in many tables, odd texts among it, and a file.
pub(super) async fn full(engine: Engine) -> (Fixture<FakeDaemon>, Vec<u8>) {
    let mut fixture = absent_on(engine).await;
    let talker = fixture.talker(3_000).await;
    for odd in
        ["tab\there", "back\\slash \\N \\. ", "line\nline\r\n", "\u{1}\u{7f}\u{2028}é漢字😀\u{10ffff}", "'\"`;--"]
    {
        fixture.submit(odd).await;
    }
    let huge = "ü".repeat(30_000);
    let task = fixture.submit(&huge).await;
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let path = format!("/api/v1/sessions/{}/artifacts?name=numbers.bin", id(&task, "sessionId"));
    let upload = fixture.operator.request(Method::POST, &path).header("content-type", "application/octet-stream");
    fixture.operator.send(upload.body(bytes.clone())).await.expect(201);
    // A frame of ten events is a row.
    eventually("it has said enough for some rows", || async { (talker.acked() > 52).then_some(()) }).await;
    talker.finish(&fixture.operator).await;
    fixture.board.stop().await;
    (fixture, bytes)
}

fn other(engine: Engine) -> Engine {
    match engine {
        Engine::Sqlite => Engine::Postgres,
        Engine::Postgres => Engine::Sqlite,
    }
}

pub(super) async fn backup(board: &Board, to: &Path, flags: &[&str]) -> String {
    let args: Vec<&str> = ["backup", to.to_str().expect("text")].iter().chain(flags).copied().collect();
    board.cli(&args).await.good()
}

async fn f85_a_backup_of_either_database_restores_into_either_row_by_row(engine: Engine) {
    let (fixture, bytes) = full(engine).await;
    let expected = rows(&fixture.board.database_url).await;
    assert!(expected["events"].len() > 5 && expected["blobs"].len() == 1 && expected["audit"].len() > 2);
    let folder = tempfile::tempdir().expect("a folder");
    let (bare, whole) = (folder.path().join("bare.tar"), folder.path().join("whole.tar"));
    let said = backup(&fixture.board, &bare, &[]).await;
    assert!(said.contains("does not include: the blobs") && said.contains("keys"), "{said}");
    backup(&fixture.board, &whole, &["--blobs"]).await;
    for copy in [&bare, &whole] {
        fixture.board.cli(&["backup", "verify", copy.to_str().expect("text")]).await.good();
    }
    let mut source = whole;
    // Across, and back.
    for (n, target) in [other(engine), engine].into_iter().enumerate() {
        let mut board = Board::prepare(target, &[]).await;
        super::give_audit_keys(&fixture.board, &board);
        board.cli(&["restore", source.to_str().expect("text")]).await.good();
        same(&rows(&board.database_url).await, &expected, &format!("{engine:?} in {target:?}"));
        let said = board.cli(&["doctor"]).await;
        assert!(said.out.contains("ok    storage") && said.out.contains("ok    audit"), "{said:?}");
        source = folder.path().join(format!("copy-{n}.tar"));
        backup(&board, &source, &["--blobs"]).await;
        board.serve();
        board.ready().await;
        let person = board.token(HOME, "operator").await;
        let sessions = person.get("/api/v1/sessions").await.expect(200).json();
        let mut found = false;
        for session in sessions["items"].as_array().expect("a list") {
            let list = format!("/api/v1/sessions/{}/artifacts", id(session, "id"));
            for artifact in person.get(&list).await.expect(200).json()["items"].as_array().expect("a list") {
                let path = format!("{}/api/v1/artifacts/{}/content", board.url, id(artifact, "id"));
                let token = person.bearer().expect("a token");
                let answer = reqwest::Client::new().get(path).bearer_auth(token).send().await.expect("an answer");
                found |= answer.bytes().await.expect("bytes") == bytes;
            }
        }
        assert!(found, "the file came along");
        board.ledger().somebody_else_submits();
        board.assert_invariants().await;
    }
}

async fn f86_a_damaged_backup_changes_nothing(engine: Engine) {
    let (fixture, _) = full(engine).await;
    let folder = tempfile::tempdir().expect("a folder");
    let good = folder.path().join("good.tar");
    backup(&fixture.board, &good, &["--blobs"]).await;
    let board = Board::prepare(engine, &[]).await;
    board.cli(&["team", "add", "mine"]).await.good();
    let before = rows(&board.database_url).await;
    let whole = std::fs::read(&good).expect("the backup");
    let bad = folder.path().join("bad.tar");
    let path = bad.to_str().expect("text");
    let mut tries: Vec<(String, Vec<u8>)> = vec![
        ("nothing".into(), Vec::new()),
        ("a text".into(), b"no backup\n".repeat(1000)),
        ("half".into(), whole[..whole.len() / 2].to_vec()),
        ("without its end".into(), whole[..whole.len() - 2048].to_vec()),
    ];
    for n in 1..8 {
        let mut bytes = whole.clone();
        // In the middle of content, wherever that is: the next byte that is neither padding nor zero.
        let from = whole.len() / 8 * n;
        let at = (from..whole.len()).find(|at| bytes[*at] != 0).expect("content");
        bytes[at] ^= 1;
        tries.push((format!("a bit at {at}"), bytes));
    }
    for (what, bytes) in tries {
        std::fs::write(&bad, &bytes).expect("a file");
        assert_ne!(board.cli(&["backup", "verify", path]).await.code(), 0, "{what}: verify");
        let said = board.cli(&["restore", path, "--replace"]).await;
        assert_eq!(said.code(), 1, "{what}: {said:?}");
        same(&rows(&board.database_url).await, &before, &what);
    }
    assert_ne!(board.cli(&["restore", good.to_str().expect("text")]).await.code(), 0, "there is something in it");
    same(&rows(&board.database_url).await, &before, "without --replace");
    board.cli(&["restore", good.to_str().expect("text"), "--replace"]).await.good();
    same(&rows(&board.database_url).await, &rows(&fixture.board.database_url).await, "the whole one");
    let left: Vec<_> = std::fs::read_dir(board.data())
        .expect("a folder")
        .map(|file| file.expect("a file").file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("restoring"))
        .collect();
    assert!(left.is_empty(), "no draft stays: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f87_a_copy_of_an_sqlite_file_still_restores_into_either() {
    let (fixture, _) = full(Engine::Sqlite).await;
    let expected = rows(&fixture.board.database_url).await;
    for target in [Engine::Sqlite, Engine::Postgres] {
        let board = Board::prepare(target, &[]).await;
        super::give_audit_keys(&fixture.board, &board);
        board.cli(&["restore", super::file(&fixture.board).to_str().expect("text")]).await.good();
        same(&rows(&board.database_url).await, &expected, &format!("{target:?}"));
    }
}
