//! Whose turn it is, while some teams have much that waits.

use protocol::{SessionId, TeamId, ViberId};

use super::*;
use crate::{
    actions::teams, args, clock::Clock, config::Config, db::Db, db::DbError, db::messages::search, guard::Keys,
    secret::audit_keys::AuditKeys,
};

/// A Board on SQLite that does nothing by itself.
async fn board() -> (tempfile::TempDir, Board) {
    let folder = tempfile::tempdir().expect("a folder");
    let db = Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
    db.audit_chain().use_keys(AuditKeys::new(&[7; 32], &[]));
    let keys = Keys::kept(&folder.path().join("keys"), 1).expect("keys");
    let board = Board::new(Config::local(folder.path().into()), db, keys, Clock::default());
    (folder, board)
}

async fn team(board: &Board, slug: &str) -> TeamId {
    teams::add(board, &By::console(), slug, slug).await.expect("a team").id
}

/// Writes a statement for a team.
async fn sql(board: &Board, team: &TeamId, sql: &'static str, args: &[crate::db::Arg]) {
    let args = args.to_vec();
    let change = board.change(team, &By::board(), move |tx| {
        let args = args.clone();
        Box::pin(async move { tx.execute(sql, &args).await.map(drop) })
    });
    change.await.unwrap_or_else(|error: DbError| panic!("{sql}: {error}"));
}

/// A session of a team with so many texts.
async fn talk(board: &Board, team: &TeamId, texts: u64) {
    let (viber, session) = (ViberId::new(1), SessionId::new(1));
    let insert = "INSERT INTO vibers (team_id, viber_id, name, credential_hash, contact_since, created_at) \
                  VALUES ($1, $2, $2, $2, 1, 1)";
    sql(board, team, insert, args![&viber]).await;
    let insert = "INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, created_at, \
                  active_at) VALUES ($1, $2, $3, 'default', 'A talk', 'a talk', 'op', 1, 1)";
    sql(board, team, insert, args![&session, &viber]).await;
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3) INSERT INTO messages \
                  (team_id, session_id, seq, message_id, role, author, task_id, created_at) \
                  SELECT $1, $2, i, printf('msg_%032x', i), 'user', 'op', 'task', i FROM n";
    sql(board, team, insert, args![&session, texts]).await;
    let insert = "INSERT INTO parts (team_id, message_id, idx, kind, body, created_at) SELECT m.team_id, m.message_id, 0, \
                  'text', '{\"type\":\"text\",\"text\":\"needle ' || m.seq || '\"}', 1 FROM messages m WHERE m.team_id = $1";
    sql(board, team, insert, &[]).await;
}

/// The same, older than the index, as a migration leaves it.
async fn older_talk(board: &Board, team: &TeamId, texts: u64) {
    talk(board, team, texts).await;
    sql(board, team, "DELETE FROM unindexed_texts WHERE team_id = $1", &[]).await;
    let insert = "INSERT INTO unindexed_history (team_id, message_id, idx) VALUES ($1, 'msh', 0)";
    sql(board, team, insert, &[]).await;
}

/// How many of a team's texts are found, and whether older ones wait.
async fn found(board: &Board, team: &TeamId) -> (usize, bool) {
    let mut reader = board.db.reader_of(team).await.expect("a reader");
    let page = search::search(&mut reader, "needle", None, 1_000).await.expect("a page");
    (page.hits.len(), page.is_behind)
}

/// The next piece; says what it was.
async fn step(indexer: &mut Indexer, board: &Board) -> Option<(Unindexed, TeamId)> {
    let (what, team, _) = indexer.next(board, &[]).await.expect("an answer")?;
    piece(board, &team, what).await.expect("a piece");
    Some((what, team))
}

#[tokio::test]
async fn a_new_text_does_not_wait_for_the_history_of_another_team() {
    let (_folder, board) = board().await;
    let (ada, ben, cleo) = (team(&board, "ada").await, team(&board, "ben").await, team(&board, "cleo").await);
    older_talk(&board, &ada, 60).await;
    older_talk(&board, &cleo, 60).await;
    let mut indexer = Indexer::of_texts();
    assert_eq!(step(&mut indexer, &board).await.map(|(what, _)| what), Some(Unindexed::OlderTexts));
    talk(&board, &ben, 1).await;
    assert_eq!(step(&mut indexer, &board).await, Some((Unindexed::NewTexts, ben.clone())));
    assert_eq!(found(&board, &ben).await, (1, false), "the next piece was its own");
    assert!(found(&board, &ada).await.1 && found(&board, &cleo).await.1, "theirs still waits");
    // They take turns.
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(step(&mut indexer, &board).await.expect("more").1);
    }
    assert!(turns[0] != turns[1] && turns[0] == turns[2] && turns[1] == turns[3], "{turns:?}");
    while step(&mut indexer, &board).await.is_some() {}
    assert_eq!((found(&board, &ada).await, found(&board, &cleo).await), ((60, false), (60, false)));
}

#[tokio::test]
async fn each_of_very_many_teams_has_its_turn() {
    let (_folder, board) = board().await;
    let mut teams = Vec::new();
    for n in 0..120 {
        teams.push(team(&board, &format!("team-{n}")).await);
    }
    let gone = teams.pop().expect("a team");
    sql(&board, &gone, "UPDATE teams SET deleted_at = 1 WHERE team_id = $1", &[]).await;
    let waits = "INSERT INTO unindexed_history (team_id, message_id, idx) SELECT team_id, 'msh', 0 FROM teams \
                 WHERE team_id <> 'nobody' OR team_id = $1";
    sql(&board, &gone, waits, &[]).await;
    let mut indexer = Indexer::of_texts();
    // None of them ever has less.
    for round in 0..2 {
        let mut served = Vec::new();
        for _ in 0..teams.len() {
            served.push(indexer.next(&board, &[]).await.expect("an answer").expect("a turn").1);
        }
        served.sort();
        served.dedup();
        assert_eq!(served.len(), teams.len(), "round {round}: each once");
        assert!(!served.contains(&gone));
    }
}

#[tokio::test]
async fn what_is_older_has_its_turn_while_more_comes_than_is_indexed() {
    let (_folder, board) = board().await;
    let (ada, ben) = (team(&board, "ada").await, team(&board, "ben").await);
    talk(&board, &ada, 5).await;
    older_talk(&board, &ben, 5).await;
    let mut indexer = Indexer::of_texts();
    let mut turns = Vec::new();
    // What is new never ends: nothing of it is indexed here.
    for _ in 0..42 {
        turns.push(indexer.next(&board, &[]).await.expect("an answer").expect("a turn").0);
    }
    let older: Vec<usize> =
        turns.iter().enumerate().filter(|(_, what)| **what == Unindexed::OlderTexts).map(|(n, _)| n).collect();
    assert_eq!(older, [20, 41]);
}

#[tokio::test]
async fn of_large_texts_a_piece_reads_one() {
    let (_folder, board) = board().await;
    let ada = team(&board, "ada").await;
    talk(&board, &ada, 3).await;
    // One endless word, which no index has.
    let large = "UPDATE parts SET body = '{\"type\":\"text\",\"text\":\"needle ' || $2 || '\"}' WHERE team_id = $1";
    sql(&board, &ada, large, args!["x".repeat(70_000)]).await;
    let mut indexer = Indexer::of_texts();
    for n in 1..=3 {
        step(&mut indexer, &board).await.expect("a piece");
        assert_eq!(found(&board, &ada).await.0, n);
    }
    assert_eq!(step(&mut indexer, &board).await, None);
}

#[tokio::test]
async fn a_team_that_fails_keeps_nobody_from_the_index() {
    let (_folder, board) = board().await;
    let (ada, ben) = (team(&board, "ada").await, team(&board, "ben").await);
    talk(&board, &ada, 25).await;
    talk(&board, &ben, 25).await;
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON indexed_texts WHEN NEW.team_id = (SELECT team_id FROM teams \
                 WHERE slug = 'ada') BEGIN SELECT RAISE(ABORT, 'a test'); END";
    let made = board.db.write(move |tx| Box::pin(async move { tx.execute(fails, &[]).await.map(drop) }));
    made.await.unwrap_or_else(|error: DbError| panic!("{error}"));
    let mut indexer = Indexer::of_texts();
    assert!(indexer.round(&board).await.is_err(), "somebody is told");
    assert_eq!((found(&board, &ada).await.0, found(&board, &ben).await.0), (0, 25));
    let mended = board.db.write(|tx| Box::pin(async move { tx.execute("DROP TRIGGER fails", &[]).await.map(drop) }));
    mended.await.unwrap_or_else(|error: DbError| panic!("{error}"));
    indexer.round(&board).await.expect("a round");
    assert_eq!(found(&board, &ada).await.0, 25);
}
