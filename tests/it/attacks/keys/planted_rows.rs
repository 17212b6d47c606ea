//! A172: rows that somebody put below the first one are found, and stop nobody who reads the audit.

use board_tests::{Board, Engine, board::HOME};
use serde_json::json;

crate::on_both_databases!(a172_forged_rows_below_the_first_one_are_found_and_stop_nobody);

/// A row with a number of the attacker's own choice, otherwise like the first one.
fn forged(seq: i64) -> String {
    format!(
        "INSERT INTO audit SELECT team_id, {seq}, at, actor, 'Mallory', address, 'team.forged', object, 'forged row', \
         before_hash, after_hash, prev_hash, hash FROM audit WHERE seq = 1 AND team_id = \
         (SELECT team_id FROM teams WHERE slug = '{HOME}')"
    )
}

async fn a172_forged_rows_below_the_first_one_are_found_and_stop_nobody(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let program = board.token(HOME, "admin").await;
    let folder = tempfile::tempdir().expect("a folder");
    let before = program.get("/api/v1/audit?limit=200").await.expect(200).json()["items"].clone();
    for seq in [0, -3, i64::MIN] {
        board.sql_text(forged(seq)).await;
        let said = board.cli(&["doctor"]).await;
        assert!(!said.status.success(), "{seq}: {said:?}");
        let told = format!("FAIL  audit: of team {HOME}: row {seq} was added behind the Board's back");
        assert!(said.out.contains(&told), "{seq}: {said:?}");
        // Those who read see what the Board wrote, page by page.
        let read = program.get("/api/v1/audit?limit=200").await.expect(200).json();
        assert_eq!(read["items"], before, "{seq}");
        let page = owner.page(&format!("/t/{HOME}/settings/audit")).await.expect(200).body;
        assert!(!page.contains("forged row"), "{seq}");
        owner.page(&format!("/t/{HOME}/settings/audit?before=2")).await.expect(200);
        // A backup of it is none.
        let copy = folder.path().join(format!("{seq}.tar"));
        let copy = copy.to_str().expect("text");
        board.cli(&["backup", copy]).await.good();
        let other = Board::prepare(engine, &[]).await;
        let said = other.cli(&["restore", copy]).await;
        assert_eq!(said.code(), 1, "{seq}: {said:?}");
        assert!(said.err.contains(&format!("row {seq} was added behind")), "{seq}: {said:?}");
        board.sql_text(format!("DELETE FROM audit WHERE seq = {seq}")).await;
    }
    // With nothing but such a row, work goes on too; that all others are gone is what doctor has to say.
    board.sql_text(forged(-1)).await;
    program.post("/api/v1/tokens", &json!({"name": "more", "role": "viewer"})).await.expect(201);
    board.sql("DELETE FROM audit WHERE seq = -1").await;
    board.cli(&["doctor"]).await.good();
    board.assert_invariants().await;
}
