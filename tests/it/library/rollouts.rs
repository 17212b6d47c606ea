//! Rollouts: a version goes from label to label, no further than what the vibers reported, and whatever is restarted meanwhile.

use board_tests::{Board, Engine, FakeDaemon, Person, board::HOME, eventually, tasks::id};
use protocol::{Command, CommandDone, FromDaemon};
use serde_json::{Value, json};

use super::{
    NOTES, add, approved, archive,
    orders::{command, order_states},
};

const ROLLOUTS: &str = "/api/v1/skill-rollouts";

/// A connected viber with the label `ring`.
async fn in_ring(board: &Board, admin: &Person, name: &str, ring: &str) -> FakeDaemon {
    let daemon = FakeDaemon::connected(board, name).await;
    let labels = json!({ "labels": { "ring": ring } });
    admin.patch(&format!("/api/v1/vibers/{}", daemon.id), &labels).await.expect(200);
    daemon
}

/// The Board knows that the viber is away.
async fn cut_off(daemon: &mut FakeDaemon, admin: &Person) {
    daemon.cut();
    let path = format!("/api/v1/vibers/{}", daemon.id);
    eventually("the viber is away", async || {
        let viber = admin.get(&path).await.expect(200).json();
        (viber["contact"]["state"] != "connected").then_some(())
    })
    .await;
}

/// The order that a viber gets, once it has it on disk.
async fn ordered(daemon: &mut FakeDaemon) -> u64 {
    let (seq, Command::InstallSkill(install)) = command(daemon).await else { panic!("an installation") };
    assert_eq!(install.name, "release-notes");
    daemon.ack_command(seq).await;
    seq
}

async fn report(daemon: &mut FakeDaemon, cmd_seq: u64, error: Option<&str>) {
    let done = CommandDone { cmd_seq, ok: error.is_none(), error: error.map(str::to_owned) };
    daemon.send(&FromDaemon::CommandDone(done)).await;
}

async fn read(admin: &Person, rollout: &Value) -> Value {
    admin.get(&format!("{ROLLOUTS}/{}", id(rollout, "id"))).await.expect(200).json()
}

async fn in_state(admin: &Person, rollout: &Value, state: &str) -> Value {
    eventually(&format!("the rollout is {state}"), async || {
        Some(read(admin, rollout).await).filter(|rollout| rollout["state"] == state)
    })
    .await
}

fn wanted(skill: &Value, labels: &[&str]) -> Value {
    json!({ "skillId": skill["id"], "digest": skill["digest"], "labels": labels })
}

pub async fn a_rollout_goes_label_by_label(engine: Engine) {
    let mut board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let mut canary = in_ring(&board, &admin, "canary", "canary").await;
    let mut rest = in_ring(&board, &admin, "rest", "rest").await;
    let mut away = in_ring(&board, &admin, "away", "rest").await;
    cut_off(&mut away, &admin).await;
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    let labels = ["ring=canary", "ring=rest"];
    let begun = admin.post(ROLLOUTS, &wanted(&skill, &labels)).await.expect(201);
    let rollout = begun.json();
    assert_eq!(begun.header("location"), format!("{ROLLOUTS}/{}", id(&rollout, "id")));
    assert_eq!((&rollout["state"], &rollout["label"]), (&json!("running"), &json!("ring=canary")));
    let again = admin.post(ROLLOUTS, &wanted(&skill, &labels)).await.expect(409);
    assert_eq!(again.code(), "rolling_out");
    let first = ordered(&mut canary).await;
    // Nothing is ordered for the next label before the first has answered, also not by a Board that was restarted.
    assert!(board.stop().await.success());
    board.restart().await;
    canary.connect().await;
    rest.connect().await;
    assert_eq!(order_states(&admin, rest.id.as_str()).await, Vec::<Value>::new());
    report(&mut canary, first, None).await;
    let second = ordered(&mut rest).await;
    assert_eq!(read(&admin, &rollout).await["state"], "running");
    report(&mut rest, second, None).await;
    let done = in_state(&admin, &rollout, "done").await;
    let expected = json!([
        { "label": "ring=canary", "done": 1, "failed": 0, "queued": 0 },
        { "label": "ring=rest", "done": 1, "failed": 0, "queued": 1 },
    ]);
    assert_eq!(done["progress"], expected);
    // Whoever was away has it when it is back.
    away.connect().await;
    let third = ordered(&mut away).await;
    report(&mut away, third, None).await;
    eventually("all have it", async || {
        let progress = read(&admin, &rollout).await["progress"][1].clone();
        (progress["done"] == 2).then_some(())
    })
    .await;
    let listed = admin.get(ROLLOUTS).await.expect(200).json();
    assert_eq!(listed["items"][0]["id"], rollout["id"]);
    let audit = admin.get("/api/v1/audit").await.expect(200).json();
    let actions: Vec<_> = audit["items"].as_array().expect("rows").iter().map(|row| row["action"].clone()).collect();
    assert!(actions.contains(&json!("rollout.begin")) && actions.contains(&json!("rollout.end")), "{actions:?}");
    board.assert_invariants().await;
}

pub async fn a_rollout_ends_at_the_first_failure(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let mut canary = in_ring(&board, &admin, "canary", "canary").await;
    let mut away = in_ring(&board, &admin, "away", "canary").await;
    cut_off(&mut away, &admin).await;
    let mut rest = in_ring(&board, &admin, "rest", "rest").await;
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    let rollout = admin.post(ROLLOUTS, &wanted(&skill, &["ring=canary", "ring=rest"])).await.expect(201).json();
    let first = ordered(&mut canary).await;
    report(&mut canary, first, Some("the disk is full")).await;
    let failed = in_state(&admin, &rollout, "failed").await;
    assert_eq!(failed["why"], "canary: the disk is full");
    assert_eq!(order_states(&admin, rest.id.as_str()).await, Vec::<Value>::new());
    // Nor does a viber get it that is away until then.
    eventually("the order is withdrawn", async || {
        (order_states(&admin, away.id.as_str()).await == [json!("failed")]).then_some(())
    })
    .await;
    away.connect().await;
    assert_eq!(command(&mut away).await.1, Command::RemoveSkill { name: String::new() });
    // One that nobody answers is stopped by a person; what a viber may have stays ordered.
    let rollout = admin.post(ROLLOUTS, &wanted(&skill, &["ring=rest", "ring=canary"])).await.expect(201).json();
    ordered(&mut rest).await;
    let stop = format!("{ROLLOUTS}/{}/stop", id(&rollout, "id"));
    for _ in 0..2 {
        assert_eq!(admin.post(&stop, &json!({})).await.expect(200).json()["state"], "stopped");
    }
    assert_eq!(order_states(&admin, rest.id.as_str()).await, [json!("queued")]);
    assert_eq!(order_states(&admin, canary.id.as_str()).await, [json!("failed")]);
    board.assert_invariants().await;
}

pub async fn a_rollout_is_of_what_was_approved_and_of_labels_that_are_there(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, operator) = (board.token(HOME, "admin").await, board.token(HOME, "operator").await);
    let mut canary = in_ring(&board, &admin, "canary", "canary").await;
    let rest = in_ring(&board, &admin, "rest", "rest").await;
    let later = NOTES.replace("1.3.0", "1.4.0");
    let unread = add(&admin, archive(&[("SKILL.md", 0o644, &later)])).await.expect(201).json();
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    operator.post(ROLLOUTS, &wanted(&skill, &["ring=canary"])).await.expect(403);
    assert_eq!(admin.post(ROLLOUTS, &wanted(&unread, &["ring=canary"])).await.expect(409).code(), "not_reviewed");
    let other = json!({ "id": skill["id"], "digest": "0".repeat(64) });
    assert_eq!(admin.post(ROLLOUTS, &wanted(&other, &["ring=canary"])).await.expect(409).code(), "other_files");
    for (labels, code) in [("", "bad_labels"), ("ring=x ring=x", "bad_labels"), ("ring=canary ring=none", "no_viber")] {
        let labels: Vec<&str> = labels.split_whitespace().collect();
        assert_eq!(admin.post(ROLLOUTS, &wanted(&skill, &labels)).await.expect(422).code(), code);
    }
    // A version that is rejected meanwhile goes no further.
    let rollout = admin.post(ROLLOUTS, &wanted(&skill, &["ring=canary", "ring=rest"])).await.expect(201).json();
    let first = ordered(&mut canary).await;
    let reject = json!({ "decision": "reject", "digest": skill["digest"] });
    admin.post(&format!("/api/v1/skills/{}/review", id(&skill, "id")), &reject).await.expect(200);
    report(&mut canary, first, None).await;
    let failed = in_state(&admin, &rollout, "failed").await;
    assert_eq!(failed["why"], "nobody has approved these files");
    assert_eq!(order_states(&admin, rest.id.as_str()).await, Vec::<Value>::new());
    board.assert_invariants().await;
}

pub async fn the_page_of_a_version_follows_its_rollout(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, owner) = (board.token(HOME, "admin").await, board.owner().await);
    let mut canary = in_ring(&board, &admin, "canary", "canary").await;
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    let page = owner.page(&format!("/t/{HOME}/skills/{}", id(&skill, "id"))).await.expect(200).body;
    assert!(page.contains(&format!("view=skill:{}:", id(&skill, "id"))), "{page}");
    let mut live = owner.stream(&format!("/t/{HOME}/live?view=skill:{}:", id(&skill, "id")), None).await;
    let rollout = admin.post(ROLLOUTS, &wanted(&skill, &["ring=canary"])).await.expect(201).json();
    let first = ordered(&mut canary).await;
    report(&mut canary, first, None).await;
    in_state(&admin, &rollout, "done").await;
    // It says so without a reload.
    loop {
        let told = live.next().await.expect("a frame").data;
        if told.contains("skill-rollouts") && told.contains("data-state=\"done\"") {
            break;
        }
    }
    board.assert_invariants().await;
}
