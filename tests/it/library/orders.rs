//! Orders: durable commands to a viber's daemon, and what it answers.

use board_tests::{Board, Engine, FakeDaemon, Person, board::HOME, tasks::id};
use protocol::{Command, CommandDone, FromDaemon, ToDaemon};
use serde_json::{Value, json};

use super::{NOTES, add, approved, archive};

/// What became of a viber's orders, the newest first.
pub async fn order_states(admin: &Person, viber: &str) -> Vec<Value> {
    let skills = admin.get(&format!("/api/v1/vibers/{viber}/skills")).await.expect(200).json();
    let orders = skills["orders"].as_array().expect("orders").clone();
    orders.into_iter().map(|order| order["state"].clone()).collect()
}

/// The next command with its number, not acknowledged.
pub async fn command(daemon: &mut FakeDaemon) -> (u64, Command) {
    let numbered = daemon.command_unacked().await;
    (numbered.cmd_seq, numbered.command)
}

pub async fn an_order_waits_for_its_viber_and_is_recorded_once(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let mut daemon = FakeDaemon::connected(&board, "lab").await;
    let (viber, skill) = (daemon.id.to_string(), approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await);
    daemon.cut();
    let skills = format!("/api/v1/vibers/{viber}/skills");
    let install = json!({ "skillId": skill["id"], "digest": skill["digest"], "agents": ["default"] });
    let queued = admin.post(&skills, &install).await.expect(202).json();
    assert_eq!(
        (&queued["op"], &queued["state"], &queued["version"]),
        (&json!("install"), &json!("queued"), &json!("1.3.0"))
    );
    daemon.connect().await;
    let (seq, Command::InstallSkill(command)) = command(&mut daemon).await else { panic!("an installation") };
    assert_eq!((command.name.as_str(), json!(command.digest)), ("release-notes", skill["digest"].clone()));
    assert_eq!((command.agents.clone(), command.version.as_deref()), (Some(vec!["default".to_owned()]), Some("1.3.0")));
    daemon.ack_command(seq).await;
    // It is answered again after each connection, until the Board has it.
    for (ok, error) in [(false, Some("the disk is full".to_owned())), (true, None)] {
        daemon.send(&FromDaemon::CommandDone(CommandDone { cmd_seq: seq, ok, error })).await;
        let acked = daemon
            .until("the outcome is acknowledged", |frame| match frame {
                ToDaemon::AckDone { cmd_seqs } => Some(cmd_seqs.clone()),
                _ => None,
            })
            .await;
        assert_eq!(acked, [seq]);
    }
    let listed = admin.get(&skills).await.expect(200).json();
    let order = &listed["orders"][0];
    assert_eq!((&order["state"], &order["error"]), (&json!("failed"), &json!("the disk is full")), "the first answer");
    // While it is connected, whoever orders waits for the answer.
    let installed = format!("{skills}/release-notes");
    let (answer, ()) = tokio::join!(admin.delete(&installed), async {
        let (seq, removal) = self::command(&mut daemon).await;
        assert!(matches!(removal, Command::RemoveSkill { name } if name == "release-notes"));
        daemon.ack_command(seq).await;
        daemon.send(&FromDaemon::CommandDone(CommandDone { cmd_seq: seq, ok: true, error: None })).await;
    });
    assert_eq!(answer.expect(200).json()["state"], "done");
    board.assert_invariants().await;
}

pub async fn an_order_that_a_lost_disk_took_along_is_told_again(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let mut daemon = FakeDaemon::connected(&board, "lab").await;
    daemon.cut();
    let path = format!("/api/v1/vibers/{}/skills/notes", daemon.id);
    for agents in [json!(["default"]), json!([])] {
        admin.patch(&path, &json!({ "agents": agents })).await.expect(202);
    }
    daemon.connect().await;
    let (first, told) = command(&mut daemon).await;
    let (second, _) = command(&mut daemon).await;
    daemon.ack_command(second).await;
    let acked = |frame: &ToDaemon| matches!(frame, ToDaemon::AckDone { .. }).then_some(());
    daemon.send(&FromDaemon::CommandDone(CommandDone { cmd_seq: second, ok: true, error: None })).await;
    daemon.until("the outcome is acknowledged", acked).await;
    // Its disk is gone, and with it the order that was still to be carried out.
    daemon.cut();
    daemon.last_cmd = 0;
    assert_eq!(daemon.connect().await.cmds_from, first);
    assert_eq!(command(&mut daemon).await, (first, told));
    // What was done is not done again: nothing has this name.
    let (number, done) = command(&mut daemon).await;
    assert_eq!((number, done), (second, Command::RemoveSkill { name: String::new() }));
    let refused = CommandDone { cmd_seq: second, ok: false, error: Some("there is no such skill".to_owned()) };
    daemon.send(&FromDaemon::CommandDone(refused)).await;
    daemon.until("the outcome is acknowledged", acked).await;
    assert_eq!(order_states(&admin, daemon.id.as_str()).await, [json!("done"), json!("queued")]);
    board.assert_invariants().await;
}

pub async fn nothing_is_installed_that_nobody_approved(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, operator) = (board.token(HOME, "admin").await, board.token(HOME, "operator").await);
    let daemon = FakeDaemon::connected(&board, "lab").await;
    let skills = format!("/api/v1/vibers/{}/skills", daemon.id);
    let skill = add(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await.expect(201).json();
    let install = |digest: &Value| json!({ "skillId": skill["id"], "digest": digest });
    assert_eq!(admin.post(&skills, &install(&skill["digest"])).await.expect(409).code(), "not_reviewed");
    let review = format!("/api/v1/skills/{}/review", id(&skill, "id"));
    let decide = |decision: &str| json!({ "decision": decision, "digest": skill["digest"] });
    admin.post(&review, &decide("reject")).await.expect(200);
    assert_eq!(admin.post(&skills, &install(&skill["digest"])).await.expect(409).code(), "not_reviewed");
    admin.post(&review, &decide("approve")).await.expect(200);
    assert_eq!(admin.post(&skills, &install(&json!("0".repeat(64)))).await.expect(409).code(), "other_files");
    operator.post(&skills, &install(&skill["digest"])).await.expect(403);
    assert_eq!(order_states(&admin, daemon.id.as_str()).await, Vec::<Value>::new());
    // A daemon that does not know these commands is not given any.
    let old = FakeDaemon::enrol(&board, "never-seen").await;
    let refused =
        admin.post(&format!("/api/v1/vibers/{}/skills", old.id), &install(&skill["digest"])).await.expect(409);
    assert_eq!(refused.code(), "no_skills");
}

pub async fn a_viber_fetches_what_its_team_approved_and_nothing_else(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    board.cli(&["team", "add", "beside"]).await.good();
    let (ours, theirs) =
        (FakeDaemon::enrol(&board, "ours").await, FakeDaemon::enrol_in(&board, "beside", "theirs").await);
    let bundle = archive(&[("b.sh", 0o755, "echo\n"), ("SKILL.md", 0o644, NOTES)]);
    let skill = add(&admin, bundle).await.expect(201).json();
    let path = format!("/api/daemon/skills/{}", id(&skill, "digest"));
    let as_viber = |daemon: &FakeDaemon| Person::with_token(&board.url, &daemon.credential);
    as_viber(&ours).get(&path).await.expect(404);
    let review = format!("/api/v1/skills/{}/review", id(&skill, "id"));
    let decide = |decision: &str| json!({ "decision": decision, "digest": skill["digest"] });
    admin.post(&review, &decide("approve")).await.expect(200);
    let fetched = as_viber(&ours).get(&path).await.expect(200);
    assert!(fetched.body.starts_with("SKILL.md\0"), "sorted by path");
    as_viber(&theirs).get(&path).await.expect(404);
    admin.get(&path).await.expect(401);
    admin.post(&review, &decide("reject")).await.expect(200);
    as_viber(&ours).get(&path).await.expect(404);
}

pub async fn a_hostile_viber_ends_no_order_of_another_one(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let mut good = FakeDaemon::connected(&board, "good").await;
    let mut bad = FakeDaemon::connected(&board, "bad").await;
    good.cut();
    let order = json!({ "agents": ["default"] });
    let path = format!("/api/v1/vibers/{}/skills/notes", good.id);
    let queued = admin.patch(&path, &order).await.expect(202).json();
    assert_eq!(queued["state"], "queued");
    let long = "x".repeat(200_000);
    for cmd_seq in (0..300).chain([u64::MAX]) {
        let done =
            CommandDone { cmd_seq, ok: true, error: Some(if cmd_seq == 7 { long.clone() } else { String::new() }) };
        bad.send(&FromDaemon::CommandDone(done)).await;
    }
    bad.beat().await;
    assert_eq!(order_states(&admin, good.id.as_str()).await, [json!("queued")]);
    board.assert_invariants().await;
}

pub async fn the_version_to_put_back_is_known_after_many_other_orders(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let mut daemon = FakeDaemon::connected(&board, "lab").await;
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    let skills = format!("/api/v1/vibers/{}/skills", daemon.id);
    let install = json!({ "skillId": skill["id"], "digest": skill["digest"] });
    let (answer, ()) = tokio::join!(admin.post(&skills, &install), async {
        let (seq, _) = command(&mut daemon).await;
        daemon.ack_command(seq).await;
        daemon.send(&FromDaemon::CommandDone(CommandDone { cmd_seq: seq, ok: true, error: None })).await;
    });
    assert_eq!(answer.expect(200).json()["state"], "done");
    daemon.cut();
    let many = "INSERT INTO skill_orders (team_id, viber_id, cmd_seq, op, name, state, ordered_by, orderer, ordered_at) \
                WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) \
                SELECT o.team_id, o.viber_id, 1000 + n.i, 'enable', 'other', 'done', 'x', 'x', 0 FROM skill_orders o, n";
    assert_eq!(board.sql(many).await, 600);
    // The next order forgets old ones.
    admin.patch(&format!("{skills}/other"), &json!({ "agents": [] })).await.expect(202);
    let restored = admin.post(&format!("{skills}/release-notes/restore"), &json!({})).await.expect(202).json();
    assert_eq!((&restored["op"], &restored["digest"]), (&json!("install"), &skill["digest"]));
}

pub async fn orders_that_wait_are_bounded_and_counted(engine: Engine) {
    let board = Board::start(engine).await;
    let (owner, admin) = (board.owner().await, board.token(HOME, "admin").await);
    let mut daemon = FakeDaemon::connected(&board, "lab").await;
    daemon.cut();
    let skills = format!("/api/v1/vibers/{}/skills", daemon.id);
    for n in 0..200 {
        admin.delete(&format!("{skills}/skill-{n}")).await.expect(202);
    }
    assert_eq!(admin.delete(&format!("{skills}/another")).await.expect(409).code(), "too_many_orders");
    let page = owner.page(&format!("/t/{HOME}/vibers/{}", daemon.id)).await.expect(200).body;
    assert!(page.contains("Remove skill-199") && page.contains("And 190 more that wait or failed."), "{page}");
    board.assert_invariants().await;
}
