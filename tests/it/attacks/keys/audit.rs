//! A154: whoever has the database alone changes nothing in the audit that `doctor` does not find.

use board_tests::{Board, Engine, FakeDaemon, board::HOME, eventually};

crate::on_both_databases!(a154_doctor_finds_what_was_done_to_the_audit, a154_a_cut_under_a_running_board_stays_found,);

/// Teams beside `home`.
const ELSEWHERE: &str = "elsewhere";
const FAR: &str = "far";

/// What doctor complains about; empty when it is content.
async fn complaints(board: &Board) -> String {
    let said = board.cli(&["doctor"]).await;
    let found: Vec<&str> = said.out.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert_eq!(said.status.success(), found.is_empty(), "{said:?}");
    assert!(!found.is_empty() || said.out.contains("ok    audit: every row is as it was written"), "{said:?}");
    found.join("\n")
}

/// The condition that picks the team `home`.
const OURS_SQL: &str = "team_id = (SELECT team_id FROM teams WHERE slug = 'home')";

/// A copy of a row at another place, with a hash of the attacker's own making.
fn forged(hash: &str) -> String {
    format!(
        "INSERT INTO audit SELECT team_id, seq + 1, at, actor, actor_name, address, 'team.delete', object, detail, \
         before_hash, after_hash, hash, '{hash}' FROM audit WHERE {OURS_SQL} \
         AND seq = (SELECT MAX(seq) FROM audit WHERE {OURS_SQL})"
    )
}

async fn a154_doctor_finds_what_was_done_to_the_audit(engine: Engine) {
    let mut board = Board::start(engine).await;
    board.cli(&["team", "add", ELSEWHERE]).await.good();
    for role in ["viewer", "operator", "admin"] {
        board.token(HOME, role).await;
        board.token(ELSEWHERE, role).await;
    }
    let joined = FakeDaemon::connected(&board, "lab").await;
    drop(joined);
    assert_eq!(complaints(&board).await, "", "while it serves");
    board.stop().await;
    assert_eq!(complaints(&board).await, "");
    board.sql("CREATE TABLE kept AS SELECT * FROM audit").await;
    let put_back = async || {
        board.sql("DELETE FROM audit").await;
        board.sql("INSERT INTO audit SELECT * FROM kept").await;
    };
    let ours = |rest: &str| format!("{rest} AND {OURS_SQL}");
    let newest = format!("DELETE FROM audit WHERE {OURS_SQL} AND seq = (SELECT MAX(seq) FROM audit WHERE {OURS_SQL})");
    let sha = "0".repeat(64);
    let harms: Vec<(Vec<String>, &str)> = vec![
        (vec![newest.clone()], "its end was cut off"),
        (vec![newest.clone(), newest.clone(), newest.clone()], "its end was cut off"),
        (vec![ours("DELETE FROM audit WHERE 1 = 1")], "its end was cut off: rows 1 to"),
        (vec![ours("DELETE FROM audit WHERE seq = 1")], "row 1 is missing"),
        (vec![ours("DELETE FROM audit WHERE seq IN (2, 3)")], "rows 2 to 3 are missing"),
        (vec![ours("UPDATE audit SET detail = 'nothing' WHERE seq = 2")], "row 2 was changed"),
        (vec![ours("UPDATE audit SET actor_name = 'Somebody' WHERE seq = 1")], "row 1 was changed"),
        (vec![ours("UPDATE audit SET at = at + 1 WHERE seq = 3")], "row 3 was changed"),
        (
            vec![
                ours("UPDATE audit SET seq = 1000000 WHERE seq = 2"),
                ours("UPDATE audit SET seq = 2 WHERE seq = 3"),
                ours("UPDATE audit SET seq = 3 WHERE seq = 1000000"),
            ],
            "row 2 was changed",
        ),
        // The attacker closes the hole and gives the rows behind it new numbers.
        (
            vec![
                ours("DELETE FROM audit WHERE seq = 2"),
                ours("UPDATE audit SET seq = seq + 1000000 WHERE seq > 2"),
                ours("UPDATE audit SET seq = seq - 1000001 WHERE seq > 2"),
            ],
            "row 2 was changed",
        ),
        (vec![forged(&sha)], "was changed"),
        (vec![forged(&format!("deadbeefdeadbeef.{sha}"))], "audit key deadbeefdeadbeef, which is not this Board's"),
        // The rows of another team, whose seals are genuine.
        (
            vec![
                ours("DELETE FROM audit WHERE 1 = 1"),
                format!(
                    "INSERT INTO audit SELECT (SELECT team_id FROM teams WHERE slug = 'home'), seq, at, actor, actor_name, \
                     address, action, object, detail, before_hash, after_hash, prev_hash, hash FROM audit \
                     WHERE NOT {OURS_SQL}"
                ),
            ],
            "row 1 was changed",
        ),
    ];
    for (harm, found) in &harms {
        for statement in harm {
            assert!(board.sql_text(statement.clone()).await >= 1, "{statement}");
        }
        let said = complaints(&board).await;
        assert!(said.contains(found) && said.contains("home"), "{harm:?}: {said}");
        put_back().await;
        assert_eq!(complaints(&board).await, "", "{harm:?}");
    }
    replaced_by_rows_without_a_key(&board).await;
    put_back().await;
    heads(&board).await;

    // A team that the Board deletes takes its audit along; one that is taken out by hand is missed.
    board.sql("DROP TABLE kept").await;
    board.cli(&["team", "delete", "--yes", ELSEWHERE]).await.good();
    assert_eq!(complaints(&board).await, "");
    board.cli(&["team", "add", FAR]).await.good();
    assert_eq!(complaints(&board).await, "");
    board.sql("DELETE FROM teams WHERE slug = 'far'").await;
    assert!(complaints(&board).await.contains("the team is gone with its audit"));
    let said = board.cli(&["audit", "accept", "--reason", "I deleted it by hand"]).await.good();
    assert!(said.contains("1 teams"), "{said}");
    assert_eq!(complaints(&board).await, "");
    board.restart().await;
    board.assert_invariants().await;
}

/// The whole table is made anew by somebody who knows how rows were hashed when there was no key.
async fn replaced_by_rows_without_a_key(board: &Board) {
    let db = server::db::Db::connect(&board.database_url).await.expect("the database");
    let team = server::db::teams::by_slug(&mut db.reader().await.expect("a reader"), HOME).await;
    let team = team.expect("an answer").expect("a team").id;
    db.close().await;
    board.sql_text(format!("DELETE FROM audit WHERE {OURS_SQL}")).await;
    old_rows(board, team.as_str(), 30).await;
    let said = complaints(board).await;
    assert!(said.contains("home") && (said.contains("was replaced") || said.contains("none of its rows")), "{said}");
}

/// Rows as a Board without a key wrote them.
pub async fn old_rows(board: &Board, team: &str, rows: u64) {
    let mut prev = String::new();
    for seq in 1..=rows {
        let (number, at) = (seq.to_string(), "1700000000000");
        let fields = [team, &number, at, "console", "Console", "", "team.add", "x", "", "", "", &prev];
        let hash = server::secret::hash(&fields.map(|field| format!("{}:{field}", field.len())).join("\n"));
        board
            .sql_text(format!(
                "INSERT INTO audit VALUES ('{team}', {seq}, {at}, 'console', 'Console', '', 'team.add', 'x', '', '', '', \
                 '{prev}', '{hash}')"
            ))
            .await;
        prev = hash;
    }
}

/// The heads themselves: gone, changed, from somebody else's hand.
async fn heads(board: &Board) {
    let file = board.data().join("audit/head");
    let text = std::fs::read_to_string(&file).expect("the heads");
    // Moved, not made anew: others must not be able to read it.
    let away = file.with_extension("away");
    std::fs::rename(&file, &away).expect("the heads");
    assert!(complaints(board).await.contains("is missing"));
    std::fs::rename(&away, &file).expect("the heads");
    for (from, to) in [("head 1\n", "head 1\n\n"), (" 1 ", " 2 "), ("seal ", "seal 0")] {
        let changed = text.replacen(from, to, 1);
        if changed != text {
            std::fs::write(&file, changed).expect("a file");
            assert!(complaints(board).await.contains("audit"), "{from:?}");
        }
    }
    std::fs::write(&file, &text).expect("a file");
    assert_eq!(complaints(board).await, "");
}

async fn a154_a_cut_under_a_running_board_stays_found(engine: Engine) {
    let mut board = Board::start(engine).await;
    let program = board.token(HOME, "admin").await;
    for n in 0..3 {
        let made = serde_json::json!({"name": format!("t{n}"), "role": "viewer"});
        program.post("/api/v1/tokens", &made).await.expect(201);
    }
    let rows =
        program.get("/api/v1/audit?limit=1").await.expect(200).json()["items"][0]["seq"].as_u64().expect("a row");
    let at = format!(" {rows} ");
    let head = || std::fs::read_to_string(board.data().join("audit/head")).unwrap_or_default();
    eventually("the head has followed", || async { head().contains(&at).then_some(()) }).await;
    board.sql_text(format!("DELETE FROM audit WHERE {OURS_SQL} AND seq >= {}", rows - 1)).await;
    assert!(complaints(&board).await.contains("its end was cut off"));
    // The Board writes on where the rows were, and as many as there were; nothing of that hides it.
    for n in 0..4 {
        let made = serde_json::json!({"name": format!("u{n}"), "role": "viewer"});
        program.post("/api/v1/tokens", &made).await.expect(201);
    }
    // Reading gives every row its number.
    program.get("/api/v1/audit?limit=1").await.expect(200);
    let told = "changed behind the Board's back";
    eventually("the Board says so itself", || async { board.log().contains(told).then_some(()) }).await;
    let said = complaints(&board).await;
    assert!(said.contains("was replaced"), "{said}");
    board.kill9();
    board.restart().await;
    assert!(complaints(&board).await.contains("was replaced"));
    board.stop().await;
    assert!(complaints(&board).await.contains("was replaced"));
}
