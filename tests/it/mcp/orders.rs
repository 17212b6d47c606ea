//! What people allow is a durable command: it waits for an absent viber, and is answered once.

use board_tests::{Board, Engine, FakeDaemon, Person, board::HOME, eventually};
use protocol::{Command, CommandDone, FromDaemon, McpChange, McpKind, McpServerInfo, McpState, ToDaemon};
use serde_json::{Value, json};

crate::on_both_databases!(an_allowed_list_waits_for_its_viber_and_is_recorded_once, what_nobody_may_allow_is_refused,);

/// A hash as servers' lists have it.
pub(super) fn hash() -> String {
    "ab".repeat(32)
}

/// Another list of tools than the one that people know.
pub(super) fn change() -> McpChange {
    let (added, diff) = (vec!["rm".to_owned()], "+rm\n".to_owned());
    McpChange { hash: hash(), added, diff, ..McpChange::default() }
}

/// A connected viber whose server `fs` has other tools than people know, and its path.
pub(super) async fn changed(board: &Board, viewer: &Person, change: McpChange) -> (FakeDaemon, String) {
    let mut daemon = FakeDaemon::enrol(board, "lab").await;
    daemon.mcp = vec![McpServerInfo {
        name: "fs".to_owned(),
        kind: McpKind::Stdio,
        state: McpState::Changed,
        change: Some(change),
        ..McpServerInfo::default()
    }];
    daemon.connect().await;
    let path = format!("/api/v1/vibers/{}/mcp", daemon.id);
    eventually("its servers are known", async || {
        let listed = viewer.get(&path).await.expect(200).json();
        (listed["items"][0]["change"]["added"] == json!(["rm"])).then_some(())
    })
    .await;
    (daemon, path)
}

async fn newest(person: &Person, path: &str) -> Value {
    person.get(path).await.expect(200).json()["orders"][0].clone()
}

async fn an_allowed_list_waits_for_its_viber_and_is_recorded_once(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let (mut daemon, path) = changed(&board, &admin, change()).await;
    daemon.cut();
    let allow = format!("{path}/fs/allow");
    let queued = admin.post(&allow, &json!({ "hash": hash() })).await.expect(202).json();
    assert_eq!((&queued["state"], &queued["name"]), (&json!("queued"), &json!("fs")), "{queued:#}");
    daemon.connect().await;
    let told = daemon.command_unacked().await;
    assert_eq!(told.command, Command::AllowMcp { name: "fs".to_owned(), hash: hash() });
    // It has the command and forgets it: the Board tells it again.
    daemon.cut();
    daemon.connect().await;
    assert_eq!(daemon.command_unacked().await, told);
    daemon.ack_command(told.cmd_seq).await;
    for (ok, error) in [(true, None), (false, Some("its tools are others by now".to_owned()))] {
        daemon.send(&FromDaemon::CommandDone(CommandDone { cmd_seq: told.cmd_seq, ok, error })).await;
        let acked = daemon
            .until("the outcome is acknowledged", |frame| match frame {
                ToDaemon::AckDone { cmd_seqs } => Some(cmd_seqs.clone()),
                _ => None,
            })
            .await;
        assert_eq!(acked, [told.cmd_seq]);
    }
    let order = newest(&admin, &path).await;
    assert_eq!((&order["state"], &order["hash"], &order["error"]), (&json!("done"), &json!(hash()), &Value::Null));
    board.assert_invariants().await;
}

async fn what_nobody_may_allow_is_refused(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, operator) = (board.token(HOME, "admin").await, board.token(HOME, "operator").await);
    let (daemon, path) = changed(&board, &admin, McpChange { is_cut: true, ..change() }).await;
    let seen = json!({ "hash": hash() });
    operator.post(&format!("{path}/fs/allow"), &seen).await.expect(403);
    admin.post(&format!("{path}/other/allow"), &seen).await.expect(404);
    let bad = admin.post(&format!("{path}/fs/allow"), &json!({ "hash": "AB" })).await.expect(422);
    assert_eq!(bad.code(), "bad_hash");
    let unseen = admin.post(&format!("{path}/fs/allow"), &seen).await.expect(409);
    assert_eq!(unseen.code(), "not_all_shown", "nobody has seen all of it here");
    let old = FakeDaemon::enrol(&board, "never-seen").await;
    let refused = admin.post(&format!("/api/v1/vibers/{}/mcp/fs/allow", old.id), &seen).await.expect(409);
    assert_eq!(refused.code(), "no_mcp");
    assert_eq!(newest(&admin, &path).await, Value::Null);
    drop(daemon);
    board.assert_invariants().await;
}
