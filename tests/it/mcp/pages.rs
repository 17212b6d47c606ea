//! The MCP servers on a viber's page, without a script: what is allowed and tried there, by whom, and what is refused.

use board_tests::{Board, Engine, FakeDaemon, board::HOME};
use protocol::{Command, CommandDone, FromDaemon, McpChange, McpState, ToDaemon};
use serde_json::{Value, json};

use super::orders::{change, changed, hash};

crate::on_both_databases!(
    tools_are_allowed_on_the_page_as_they_were_shown,
    a_server_is_tried_on_the_page,
    what_the_page_does_not_do_it_says,
);

fn page_of(daemon: &FakeDaemon) -> String {
    format!("/t/{HOME}/vibers/{}", daemon.id)
}

/// The order to allow these tools arrives, and this comes of it.
async fn carried_out(daemon: &mut FakeDaemon, error: Option<&str>) {
    let told = daemon.command_unacked().await;
    assert_eq!(told.command, Command::AllowMcp { name: "fs".to_owned(), hash: hash() });
    daemon.ack_command(told.cmd_seq).await;
    let done = CommandDone { cmd_seq: told.cmd_seq, ok: error.is_none(), error: error.map(str::to_owned) };
    daemon.send(&FromDaemon::CommandDone(done)).await;
}

/// The viber is asked to try its server, and answers this.
async fn tried(daemon: &mut FakeDaemon, result: Value, error: Option<&str>) {
    let pick = |frame: &ToDaemon| match frame {
        ToDaemon::Request { id, method, params } if method == "mcp.test" => Some((*id, params.clone())),
        _ => None,
    };
    let (id, params) = daemon.until("it is asked to try its server", pick).await;
    assert_eq!(params, json!({ "name": "fs" }));
    let (ok, error) = (error.is_none(), error.map(str::to_owned));
    daemon.send(&FromDaemon::Response { id, ok, result, error }).await;
}

async fn tools_are_allowed_on_the_page_as_they_were_shown(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.operator(HOME, "admin@example.org", "admin").await;
    let (mut daemon, _) = changed(&board, &admin, change()).await;
    let (page, form) = (page_of(&daemon), format!("{}/mcp", page_of(&daemon)));
    let hash = hash();
    let fields = [("name", "fs"), ("hash", hash.as_str())];
    let shown = admin.page(&page).await.expect(200).body;
    assert!(shown.contains("Allow these tools") && shown.contains(&hash) && shown.contains("+rm"), "{shown}");
    // Its tools changed once more meanwhile: what was seen is not meant.
    let refused = Some("its tools are others by now than the ones that were seen");
    let (answer, ()) = tokio::join!(admin.post_form(&form, &fields), carried_out(&mut daemon, refused));
    assert!(answer.expect(303).header("location").ends_with("#mcp"));
    let shown = admin.page(&page).await.expect(200).body;
    assert!(shown.contains("Allow the tools of fs") && shown.contains("others by now"), "{shown}");
    let (answer, ()) = tokio::join!(admin.post_form(&form, &fields), carried_out(&mut daemon, None));
    answer.expect(303);
    let shown = admin.page(&page).await.expect(200).body;
    assert!(!shown.contains("others by now"), "it is done: {shown}");
    let trail = admin.page(&format!("/t/{HOME}/settings/audit")).await.expect(200).body;
    assert!(trail.contains("allowed the tools of an MCP server on"), "{trail}");
    // While it is away, the order waits, and the page says so.
    daemon.cut();
    admin.post_form(&form, &fields).await.expect(303);
    let shown = admin.page(&page).await.expect(200).body;
    assert!(shown.contains("Queued") && shown.contains("Allow the tools of fs"), "{shown}");
    daemon.connect().await;
    carried_out(&mut daemon, None).await;
    board.assert_invariants().await;
}

async fn a_server_is_tried_on_the_page(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.operator(HOME, "operator@example.org", "operator").await;
    let (mut daemon, _) = changed(&board, &operator, change()).await;
    let (page, form) = (page_of(&daemon), format!("{}/mcp/test", page_of(&daemon)));
    let shown = operator.page(&page).await.expect(200).body;
    assert!(shown.contains(&form) && !shown.contains("Allow these tools"), "an operator tries, and allows nothing");
    let info = json!({ "name": "fs", "kind": "stdio", "state": McpState::Ready, "tools": [] });
    let posting = operator.post_form(&form, &[("name", "fs")]);
    let (answer, ()) = tokio::join!(posting, tried(&mut daemon, info, None));
    assert!(answer.expect(303).header("location").ends_with("#mcp"));
    let posting = operator.post_form(&form, &[("name", "fs")]);
    let (answer, ()) = tokio::join!(posting, tried(&mut daemon, Value::Null, Some("its <b>program</b> is gone")));
    let refused = answer.expect(422).body;
    assert!(
        refused.contains("role=\"alert\"") && refused.contains("MCP servers"),
        "the page, with the reason: {refused}"
    );
    assert!(
        refused.contains("program&lt;/b&gt; is gone") || refused.contains("program&#60;/b&#62; is gone"),
        "{refused}"
    );
    let posting = operator.post_form(&form, &[("name", "other")]);
    let unknown = async {
        let pick = |frame: &ToDaemon| match frame {
            ToDaemon::Request { id, method, .. } if method == "mcp.test" => Some(*id),
            _ => None,
        };
        let id = daemon.until("it is asked to try its server", pick).await;
        let error = Some("not_found: there is no MCP server other on this viber".to_owned());
        daemon.send(&FromDaemon::Response { id, ok: false, result: Value::Null, error }).await;
    };
    let (answer, ()) = tokio::join!(posting, unknown);
    answer.expect(404);
    daemon.cut();
    daemon_is_away(&board, &page).await;
    let away = operator.post_form(&form, &[("name", "fs")]).await.expect(409).body;
    assert!(away.contains("the viber is away"), "{away}");
    board.assert_invariants().await;
}

/// Waits until the Board knows that the viber of this page is away.
async fn daemon_is_away(board: &Board, page: &str) {
    let viewer = board.token(HOME, "viewer").await;
    let id = page.rsplit('/').next().expect("an id").to_owned();
    board_tests::eventually("it is away", async || {
        let viber = viewer.get(&format!("/api/v1/vibers/{id}")).await.expect(200).json();
        (viber["contact"]["state"] != "connected").then_some(())
    })
    .await;
}

async fn what_the_page_does_not_do_it_says(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.operator(HOME, "admin@example.org", "admin").await;
    let operator = board.operator(HOME, "operator@example.org", "operator").await;
    let viewer = board.operator(HOME, "viewer@example.org", "viewer").await;
    let long = McpChange { is_cut: true, ..change() };
    let (daemon, path) = changed(&board, &admin, long).await;
    let (page, form) = (page_of(&daemon), format!("{}/mcp", page_of(&daemon)));
    let hash = hash();
    let fields = [("name", "fs"), ("hash", hash.as_str())];
    let shown = admin.page(&page).await.expect(200).body;
    assert!(!shown.contains("Allow these tools") && shown.contains("daemon-agent mcp allow fs"), "{shown}");
    let refused = admin.post_form(&form, &fields).await.expect(409).body;
    assert!(refused.contains("role=\"alert\"") && refused.contains("on the machine"), "{refused}");
    let bad = admin.post_form(&form, &[("name", "fs"), ("hash", "x")]).await.expect(422).body;
    assert!(bad.contains("a hash is 64 hexadecimal digits"), "{bad}");
    admin.post_form(&form, &[("name", "other"), ("hash", hash.as_str())]).await.expect(404);
    admin.post_form(&form, &[]).await.expect(404);
    operator.post_form(&form, &fields).await.expect(403);
    viewer.post_form(&format!("{form}/test"), &fields[..1]).await.expect(403);
    let shown = viewer.page(&page).await.expect(200).body;
    assert!(shown.contains("Its tools have changed") && !shown.contains(&format!("{form}/test")), "{shown}");
    let listed = viewer.get(&path).await.expect(200).json();
    assert_eq!(listed["orders"], json!([]), "nothing was ordered");
    drop(daemon);
    board.assert_invariants().await;
}
