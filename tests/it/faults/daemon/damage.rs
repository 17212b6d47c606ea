//! What the daemon's disk lost, and what somebody put back on it (F66–F71): nothing is begun twice, what is sound is sent,
//! what is missing is said, and nothing is left behind.

use std::{
    fs,
    path::{Path, PathBuf},
};

use board_tests::{
    Engine, Fixture, Viber,
    board::{HOME, PASSWORD},
    canary::files,
    eventually,
    invariants::notes,
    llm::{Gate, Piece, Reply},
    spawns::supervisors,
    wait::EVENT_TIMEOUT,
    within,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Spawning, content, kind, lines, number, says};

crate::on_both_databases!(
    f66_a_journal_that_lost_the_beginning_begins_nothing_twice,
    f67_a_damaged_outbox_sends_all_that_is_sound_and_says_what_is_missing,
    f69_after_a_restart_nobody_is_connected_who_has_not_dialled_in,
    f70_after_a_restore_a_task_says_what_happened,
);

/// The attempts of a task that were begun, as the daemons noted them.
fn begun(fixture: &Fixture<Viber>, task: &str) -> Vec<u32> {
    let all = notes(&fixture.board.ledger().read(), "begin");
    all.into_iter().filter(|((of, _), _)| of == task).map(|((_, attempt), _)| attempt).collect()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    change(&mut bytes);
    fs::write(path, bytes).expect("written");
}

async fn f66_a_journal_that_lost_the_beginning_begins_nothing_twice(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    let state = fixture.viber.home().join("state");
    let (journal, outbox) = (state.join("journal"), state.join("outbox"));
    let ways = ["torn", "torn, no outbox", "garbage", "gone", "old", "old, no outbox", "all gone"];
    for how in ways {
        let old = fs::read(&journal).expect("a journal");
        let task = fixture.give("before it dies\nwait").await;
        eventually("its first words", || async {
            content(&fixture.events(&task).await, "text-delta").contains("dies").then_some(())
        })
        .await;
        fixture.viber.kill9();
        match how {
            "garbage" => change(&journal, |bytes| {
                let end = bytes.len() - 60;
                bytes.truncate(end);
                bytes.extend([0xa5; 500]);
            }),
            "gone" | "all gone" => fs::remove_file(&journal).expect("removed"),
            "old" | "old, no outbox" => fs::write(&journal, old).expect("put back"),
            _ => change(&journal, |bytes| bytes.truncate(bytes.len() - 5)),
        }
        if how.contains("no outbox") || how == "all gone" {
            fs::remove_dir_all(&outbox).expect("removed");
        }
        fixture.viber.run();
        let failed = fixture.over(&task).await;
        assert_eq!((&failed["state"], &failed["attempt"]), (&json!("error"), &json!(1)), "{how}: {failed}");
        assert_eq!(failed["error"]["code"], "daemon_restarted", "{how}: {failed}");
        assert_eq!(begun(&fixture, &task), [1], "{how}: not begun a second time");
    }
    // It goes on as if nothing had been.
    let next = fixture.give("hello again").await;
    assert_eq!(fixture.over(&next).await["state"], "completed");
    fixture.assert_invariants().await;
}

async fn f67_a_damaged_outbox_sends_all_that_is_sound_and_says_what_is_missing(engine: Engine) {
    let (gate, text) = (Gate::new(), lines(256 * 1024));
    let pieces = [vec![Piece::text("first words. "), Piece::Wait(gate.clone())], says(&text)].concat();
    let said = format!("first words. {}", text.concat());
    let mut fixture = Fixture::on(engine).scripted_model([Reply::Stream(pieces)]).with_viber().await;
    fixture.board.make_operator(HOME, "reader@example.org", "operator").await;
    let task = fixture.give("talk").await;
    eventually("its first words", || async {
        content(&fixture.events(&task).await, "text-delta").starts_with("first words").then_some(())
    })
    .await;
    fixture.board.kill9();
    gate.open();
    let log = fixture.viber.home().join(format!("state/outbox/{task}.1"));
    within(EVENT_TIMEOUT * 2, "the result is on the disk", || async {
        fixture.viber.has_result_on_disk(&task).then_some(())
    })
    .await;
    fixture.viber.kill9();
    let segment = segments(&log).into_iter().max_by_key(|file| fs::metadata(file).expect("there").len()).expect("one");
    // A page of the words, and a bit further on; the second half is the result.
    change(&segment, |bytes| {
        let (page, bit) = (bytes.len() / 5, bytes.len() * 2 / 5);
        bytes[page..page + 4096].fill(0);
        bytes[bit] ^= 0x10;
    });
    fixture.board.restart().await;
    fixture.viber.run();
    let done = fixture.over(&task).await;
    assert_eq!((&done["state"], &done["attempt"]), (&json!("completed"), &json!(1)), "{done}");
    let events = fixture.events(&task).await;
    let gaps: Vec<&Value> = events.iter().filter(|event| kind(event) == "gap").collect();
    assert!((1..=2).contains(&gaps.len()), "{gaps:?}");
    assert!(gaps.iter().all(|gap| gap["event"]["reason"] == "damaged on the viber's disk"), "{gaps:?}");
    let missing: u64 = gaps.iter().map(|gap| number(&gap["event"]["to"]) - number(&gap["event"]["from"]) + 1).sum();
    assert!(missing <= 6, "no more than what was hit: {missing}");
    let mut at = 0;
    for event in events.iter().filter(|event| kind(event) == "text-delta") {
        let piece = event["event"]["content"].as_str().expect("text");
        at += said[at..].find(piece).unwrap_or_else(|| panic!("not said, or not in this order: {event}")) + piece.len();
    }
    assert_eq!(at, said.len(), "also what came after the damage");

    // Everybody is told: the session's page, the viber's page, the API, and whoever is at the machine.
    let reader = fixture.board.anon().in_team(HOME);
    reader.sign_in("reader@example.org", PASSWORD).await;
    let session = done["sessionId"].as_str().expect("a session");
    let page = reader.page(&format!("/t/{HOME}/sessions/{session}")).await.expect(200).body;
    assert!(page.contains("are missing here: ") && page.contains("damaged on the viber"), "{page}");
    let page = reader.page(&format!("/t/{HOME}/vibers/{}", fixture.viber_id)).await.expect(200).body;
    assert!(page.contains("found damage on its disk"), "{page}");
    let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
    let damage = viber["damage"].as_array().expect("a list");
    assert_eq!(damage.len(), 1, "{viber}");
    let kept = fixture.viber.home().join(damage[0]["file"].as_str().expect("a path"));
    assert!(
        kept.starts_with(fixture.viber.home().join("state/outbox/damaged")) && kept.is_file(),
        "{}",
        kept.display()
    );
    let doctor = fixture.viber.cli(&["doctor"]).await;
    assert!(doctor.out.contains("was found damaged"), "{doctor:?}");
    assert_eq!(fixture.llm.requests().len(), 1, "begun once");
    fixture.assert_invariants().await;
}

fn segments(log: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        files(log).into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "seg")).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f68_after_a_kill_no_draft_and_no_temporary_folder_is_left() {
    let mut fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let task = fixture.give("shell echo at:$TMPDIR:; touch $TMPDIR/x; sleep 600").await;
    let scratch = eventually("its temporary folder", || async {
        let said = content(&fixture.events(&task).await, "tool-output");
        said.split(':')
            .nth(1)
            .filter(|path| path.contains("viber-") && Path::new(path).join("x").exists())
            .map(PathBuf::from)
    })
    .await;
    // Somebody else's, which looks the same.
    let other = scratch.with_file_name(format!("viber-{}", uuid::Uuid::now_v7().simple()));
    fs::create_dir(&other).expect("made");
    // So that it does not take the folder away itself when the daemon is gone.
    let supervisors = supervisors(&task);
    assert!(!supervisors.is_empty());
    let signal = |signal| supervisors.iter().for_each(|pid| rustix::process::kill_process(*pid, signal).expect("sent"));
    signal(Signal::STOP);
    fixture.viber.fail("workspace::before_exchange", "1*return(crash)").await;
    let path = format!("/api/v1/vibers/{}/workspace/notes.md", fixture.viber_id);
    fs::write(fixture.viber.home().join("workspace/notes.md"), "one\n").expect("written");
    let seen = eventually("the file", || async {
        let read = fixture.operator.get(&path).await;
        (read.status == 200).then_some(read)
    })
    .await;
    let request = fixture.operator.request(reqwest::Method::PUT, &path).header("if-match", seen.header("etag"));
    let (_, ended) = tokio::join!(fixture.operator.send(request.body("two\n")), fixture.viber.ended());
    assert!(!ended.success());
    let workspace = fixture.viber.home().join("workspace");
    let drafts = || {
        let all = files(&workspace);
        all.into_iter().filter(|file| file.to_string_lossy().contains("/.viber-")).count()
    };
    assert_eq!((drafts(), scratch.exists()), (1, true), "the kill left them");
    signal(Signal::KILL);
    fixture.viber.heal().await;
    fixture.viber.run();
    assert_eq!(fixture.over(&task).await["error"]["code"], "daemon_restarted");
    assert_eq!((scratch.exists(), other.exists()), (false, true), "only its own are gone");
    eventually("the change is made", || async {
        (fs::read_to_string(fixture.viber.home().join("workspace/notes.md")).ok()? == "two\n").then_some(())
    })
    .await;
    // The change that is made again has a draft of its own for a moment.
    eventually("no draft is left", || async { (drafts() == 0).then_some(()) }).await;
    fs::remove_dir(&other).expect("removed");
    fixture.assert_invariants().await;
}

async fn f69_after_a_restart_nobody_is_connected_who_has_not_dialled_in(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    let task = fixture.give("wait").await;
    fixture.operator.task_in(&task, "running").await;
    fixture.board.make_operator(HOME, "reader@example.org", "operator").await;
    // It works on and cannot dial in.
    fixture.viber.signal(Signal::STOP);
    fixture.board.kill9();
    fixture.board.restart().await;
    let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
    assert_eq!(viber["contact"]["state"], "unheard", "{viber}");
    let shown = fixture.operator.task(&task).await;
    assert_eq!((&shown["state"], &shown["contact"]["state"]), (&json!("running"), &json!("unheard")));
    let reader = fixture.board.anon().in_team(HOME);
    reader.sign_in("reader@example.org", PASSWORD).await;
    let page = reader.page(&format!("/t/{HOME}/vibers/{}", fixture.viber_id)).await.expect(200).body;
    assert!(page.contains("Not heard since the restart"), "{page}");
    let session = shown["sessionId"].as_str().expect("a session");
    let page = reader.page(&format!("/t/{HOME}/sessions/{session}")).await.expect(200).body;
    assert!(page.contains("has not been heard from since the Board restarted"), "{page}");
    fixture.viber.signal(Signal::CONT);
    fixture.viber.connected(&fixture.operator).await;
    assert_eq!(fixture.operator.task(&task).await["contact"]["state"], "connected");
    fixture.operator.post(&format!("/api/v1/tasks/{task}/stop"), &json!({})).await;
    assert_eq!(fixture.over(&task).await["state"], "stopped");
    fixture.assert_invariants().await;
}

async fn f70_after_a_restore_a_task_says_what_happened(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    let task = fixture.give("before the backup\nstream 30 every 100").await;
    fixture.operator.task_in(&task, "running").await;
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy");
    fixture.board.cli(&["backup", copy.to_str().expect("text")]).await.good();
    assert_eq!(fixture.over(&task).await["state"], "completed");
    // The viber has delivered the result and let go of it when the backup is put back.
    let log = fixture.viber.home().join(format!("state/outbox/{task}.1"));
    eventually("the viber has let go", || async { (!log.exists()).then_some(()) }).await;
    fixture.board.stop().await;
    fixture.board.cli(&["restore", "--replace", copy.to_str().expect("text")]).await.good();
    fixture.board.restart().await;
    let failed = fixture.over(&task).await;
    assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("error"), &json!("board_restored")), "{failed}");
    assert!(failed["error"]["message"].as_str().is_some_and(|words| words.contains("restored from a backup")));
    assert_eq!(begun(&fixture, &task), [1]);
    // A task of the time after it is told as always.
    let next = fixture.give("wait").await;
    fixture.operator.task_in(&next, "running").await;
    fixture.viber.kill9();
    fixture.viber.run();
    assert_eq!(fixture.over(&next).await["error"]["code"], "daemon_restarted");
}

/// Garbage in each file of `state/`: the daemon works, or says which file and what to do, and ends. It never begins twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f71_garbage_in_any_file_of_the_state_is_worked_with_or_named() {
    let mut fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let first = fixture.give("hello").await;
    assert_eq!(fixture.over(&first).await["state"], "completed");
    let state = fixture.viber.home().join("state");
    let garbage: [(&str, &[u8]); 3] = [("noise", &[0xd3; 900]), ("zeros", &[0; 900]), ("nothing", &[])];
    for name in ["lock", "journal", "outbox/reserve", "outbox/damaged/x", "heads/x.json", "leftovers/x"] {
        for (what, bytes) in garbage {
            let task = fixture.give("wait").await;
            fixture.operator.task_in(&task, "running").await;
            fixture.viber.kill9();
            let file = state.join(name);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(&file, bytes).expect("written");
            fixture.viber.run();
            assert_eq!(fixture.over(&task).await["state"], "error", "{what} in {name}");
            assert_eq!(begun(&fixture, &task), [1], "{what} in {name}");
        }
    }
    fixture.viber.stop().await;
    // What it cannot work without is named.
    let credential = state.join("credential");
    let good = fs::read(&credential).expect("a credential");
    for (what, bytes) in garbage {
        fs::write(&credential, bytes).expect("written");
        let said = fixture.viber.cli(&["run"]).await;
        assert_eq!(said.code(), 78, "{what}: {said:?}");
        assert!(said.err.contains("state/credential") && said.err.contains("join"), "{what}: {said:?}");
        assert!(!said.err.contains("panicked"), "{what}: {said:?}");
    }
    fs::write(&credential, good).expect("written");
    for name in ["outbox", "lock"] {
        let place = state.join(name);
        let aside = state.join("aside");
        fs::rename(&place, &aside).expect("moved");
        match name {
            "lock" => fs::create_dir(&place).expect("made"),
            _ => fs::write(&place, "garbage").expect("written"),
        }
        let said = fixture.viber.cli(&["run"]).await;
        assert!(said.code() != 0 && said.err.contains(&format!("state/{name}")), "{name}: {said:?}");
        if name == "lock" { fs::remove_dir(&place) } else { fs::remove_file(&place) }.expect("removed");
        fs::rename(&aside, &place).expect("moved back");
    }
    fixture.viber.run();
    let last = fixture.give("hello").await;
    assert_eq!(fixture.over(&last).await["state"], "completed");
    assert!(!fixture.viber.log().contains("panicked"), "{}", fixture.viber.log());
    fixture.assert_invariants().await;
}
