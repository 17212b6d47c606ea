//! A library at its bounds: a store that is damaged, senders that are slow, and fleets that are large.

use std::{path::PathBuf, time::Duration};

use board_tests::{Board, Engine, FakeDaemon, Person, RawConnection, board::HOME, tasks::id};
use protocol::SKILLS_CAPABILITY;
use serde_json::json;
use tokio::time::timeout;

use super::{NOTES, add, approved, archive};

crate::on_both_databases!(
    what_is_damaged_in_the_store_is_told_and_handed_to_nobody,
    slow_senders_hold_up_nobody,
    a_label_names_its_vibers,
    a_large_fleet_stays_a_small_page,
);

/// The only blob of a Board's store.
fn blob(board: &Board) -> PathBuf {
    let folders = std::fs::read_dir(board.data().join("artifacts")).expect("a store");
    let teams = folders.map(|folder| folder.expect("a folder")).filter(|folder| folder.file_name() != ".staging");
    let blobs = teams.flat_map(|team| std::fs::read_dir(team.path()).expect("a team's"));
    let blobs: Vec<_> = blobs.map(|blob| blob.expect("a blob").path()).collect();
    let [blob] = blobs.as_slice() else { panic!("{blobs:?}") };
    blob.clone()
}

async fn what_is_damaged_in_the_store_is_told_and_handed_to_nobody(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, owner) = (board.token(HOME, "admin").await, board.owner().await);
    let daemon = FakeDaemon::enrol(&board, "lab").await;
    let viber = Person::with_token(&board.url, &daemon.credential);
    let bundle = || archive(&[("SKILL.md", 0o644, NOTES), ("run.sh", 0o755, "echo 1\n")]);
    let skill = approved(&admin, bundle()).await;
    let path = format!("/api/v1/skills/{}", id(&skill, "id"));
    let (script, diff) = (format!("{path}/files/run.sh"), format!("{path}/diff?from={}", id(&skill, "id")));
    let fetched = format!("/api/daemon/skills/{}", id(&skill, "digest"));
    let read = admin.get(&script).await.expect(200);
    assert_eq!((read.body.as_str(), read.header("content-length")), ("echo 1\n", "7"));
    let (blob, whole) = (blob(&board), std::fs::read(blob(&board)).expect("readable"));

    // A byte of one file: the others are still what was added.
    let mut changed = whole.clone();
    let at = memchr::memmem::find(&changed, b"echo 1").expect("there");
    changed[at + 5] = b'2';
    std::fs::write(&blob, &changed).expect("written");
    assert_eq!(admin.get(&script).await.expect(410).code(), "gone");
    assert_eq!(admin.get(&format!("{path}/files/SKILL.md")).await.expect(200).body, NOTES);
    admin.get(&diff).await.expect(410);
    let page = owner.page(&format!("/t/{HOME}/skills/{}", id(&skill, "id"))).await.expect(200).body;
    assert!(page.contains("They cannot be shown: its files in the object store are damaged"), "{page}");

    // A byte between the files, and an end that is missing.
    let mut torn = whole.clone();
    torn[0] ^= 1;
    std::fs::write(&blob, &torn).expect("written");
    admin.get(&diff).await.expect(410);
    std::fs::write(&blob, &whole[..600]).expect("written");
    for gone in [&script, &diff] {
        admin.get(gone).await.expect(410);
    }
    viber.get(&fetched).await.expect(410);

    // The same files once more mend it.
    assert_eq!(add(&admin, bundle()).await.expect(201).json()["id"], skill["id"]);
    assert_eq!(admin.get(&script).await.expect(200).body, "echo 1\n");
    viber.get(&fetched).await.expect(200);
}

async fn slow_senders_hold_up_nobody(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let head = format!(
        "POST /api/v1/skills HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/x-tar\r\n\
         content-length: 1000000\r\n\r\nbegun",
        board.url.trim_start_matches("http://"),
        admin.bearer().expect("a token")
    );
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut sender = RawConnection::open(&board).await;
        assert!(sender.say(head.as_bytes()).await);
        slow.push(sender);
    }
    // Before the Board gives them up, which takes nine seconds.
    let added = timeout(Duration::from_secs(6), add(&admin, archive(&[("SKILL.md", 0o644, NOTES)]))).await;
    added.expect("nobody waits for them").expect(201);
    drop(slow);
}

async fn a_label_names_its_vibers(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, owner) = (board.token(HOME, "admin").await, board.owner().await);
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    let mut vibers = Vec::new();
    for (name, pool) in [("one", "large"), ("two", "large"), ("three", "small")] {
        let mut daemon = FakeDaemon::connected(&board, name).await;
        daemon.cut();
        let labels = json!({ "labels": { "pool": pool } });
        admin.patch(&format!("/api/v1/vibers/{}", daemon.id), &labels).await.expect(200);
        vibers.push(daemon.id.to_string());
    }
    // Its daemon never said that it takes such orders.
    let old = FakeDaemon::enrol(&board, "old").await;
    admin.patch(&format!("/api/v1/vibers/{}", old.id), &json!({ "labels": { "pool": "large" } })).await.expect(200);
    let install = format!("/t/{HOME}/skills/{}/install", id(&skill, "id"));
    let form = |label: &'static str| [("digest", id(&skill, "digest").to_owned()), ("label", label.to_owned())];
    let send = async |label: &'static str| {
        let fields = form(label);
        let fields: Vec<_> = fields.iter().map(|(key, value)| (*key, value.as_str())).collect();
        owner.post_form(&install, &fields).await
    };
    assert!(send("pool=none").await.expect(422).body.contains("name a label that one has"));
    let done = send("pool=large").await.expect(303);
    let told = done.header("location").to_owned();
    assert!(!told.contains("/install"), "a reload installs nothing again: {told}");
    for _ in 0..2 {
        let page = owner.page(&told).await.expect(200).body;
        assert!(page.contains("What came of it") && page.matches("Queued").count() >= 2, "{page}");
    }
    // What an address names of other vibers and orders is not shown.
    let other = format!("/t/{HOME}/skills/{}?ordered=vib_x.1-{}.999-more.x", id(&skill, "id"), vibers[0]);
    assert!(!owner.page(&other).await.expect(200).body.contains("What came of it"));
    let mut ordered = Vec::new();
    for viber in &vibers {
        let skills = admin.get(&format!("/api/v1/vibers/{viber}/skills")).await.expect(200).json();
        ordered.push(skills["orders"].as_array().expect("orders").len());
    }
    assert_eq!(ordered, [1, 1, 0]);
    board.assert_invariants().await;
}

/// Vibers that each have a skill of the library and two hundred of their own: more than are looked at.
const LARGE_FLEET_SIZE: usize = 520;

async fn a_large_fleet_stays_a_small_page(engine: Engine) {
    let board = Board::start(engine).await;
    let (admin, owner) = (board.token(HOME, "admin").await, board.owner().await);
    let skill = approved(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await;
    let reported = |name: &str, digest: &str, kind: &str| {
        json!({ "name": name, "digest": digest, "source": { "kind": kind }, "state": "ready", "calls": 1,
            "description": "Does this and that. ".repeat(10) })
    };
    let mut skills: Vec<_> = (0..200).map(|n| reported(&format!("own-{n}"), "0", "local")).collect();
    skills.push(reported("release-notes", id(&skill, "digest"), "library"));
    let skills = serde_json::to_string(&skills).expect("JSON");
    let viber = match engine {
        Engine::Sqlite => "printf('vib_%032x', i)",
        Engine::Postgres => "'vib_' || lpad(to_hex(i), 32, '0')",
    };
    let vibers = format!(
        "INSERT INTO vibers (team_id, viber_id, name, capabilities, skills, credential_hash, contact_since, created_at) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {LARGE_FLEET_SIZE}) \
         SELECT (SELECT team_id FROM teams WHERE slug = '{HOME}'), {viber}, 'Machine ' || i, \
         '[\"{SKILLS_CAPABILITY}\"]', '{skills}', 'hash ' || i, 1, 1 FROM n"
    );
    board.sql_text(vibers).await;
    let page = owner.page(&format!("/t/{HOME}/skills")).await.expect(200).body;
    assert!(page.contains("500 of 520") && page.contains("more vibers than are looked at"), "{page}");
    assert!(page.len() < 150_000, "{}", page.len());
    let review = owner.page(&format!("/t/{HOME}/skills/{}", id(&skill, "id"))).await.expect(200).body;
    assert!(review.contains("on 500 vibers") && review.contains("There are more: name a label"), "{review}");
    assert!(review.len() < 150_000, "{}", review.len());
    let drifting = owner.page(&format!("/t/{HOME}/skills?show=drift")).await.expect(200).body;
    assert!(drifting.contains("No skill matches"), "{drifting}");
    // Another version is approved: all of them are behind.
    approved(&admin, archive(&[("SKILL.md", 0o644, &NOTES.replace("1.3.0", "1.4.0"))])).await;
    let drifting = owner.page(&format!("/t/{HOME}/skills?show=drift&q=RELEASE")).await.expect(200).body;
    assert!(drifting.contains("500 behind"), "{drifting}");
}
