//! `daemon-agent service` and `logs`, with stand-ins for the service manager and its journal.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use board_tests::{
    Board, Engine, Viber, eventually,
    programs::{Process, ProgramOutput, run},
};

/// Programs that note how they were called; `systemctl is-active` says what the file `state` has.
fn stand_ins(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    let note = format!("echo \"$(basename \"$0\") $*\" >>'{}/calls'\n", folder.display());
    let active = format!("case \"$*\" in *is-active*) cat '{}/state';; esac\n", folder.display());
    for (name, does) in
        [("systemctl", active.as_str()), ("loginctl", ""), ("journalctl", "echo 'a line of the journal'\n")]
    {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{note}{does}")).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    fs::write(folder.join("state"), "inactive\n").expect("a state");
}

fn command(viber: &Viber, args: &[&str]) -> Command {
    let mut command = viber.command(args);
    let path = std::env::var("PATH").expect("a PATH");
    command.env("PATH", format!("{}:{path}", viber.root().join("stand-ins").display()));
    command
}

async fn cli(viber: &Viber, args: &[&str]) -> ProgramOutput {
    run(command(viber, args), "").await
}

#[tokio::test]
async fn a_service_is_installed_asked_restarted_and_removed() {
    let board = Board::start(Engine::Sqlite).await;
    let viber = Viber::fresh("served");
    viber.enrol(&board).await;
    let folder = viber.root().join("stand-ins");
    stand_ins(&folder);
    let none = cli(&viber, &["service", "restart"]).await;
    assert!(none.code() == 1 && none.err.contains("service install"), "{none:?}");
    cli(&viber, &["service", "install"]).await.good();
    let unit = viber.root().join(".config/systemd/user/openviber-daemon.service");
    assert!(unit.exists());
    let idle = cli(&viber, &["service", "status"]).await;
    assert!(idle.code() == 1 && idle.out.contains("does not run"), "{idle:?}");
    fs::write(folder.join("state"), "active\n").expect("a state");
    let busy = cli(&viber, &["service", "status", "--json"]).await;
    assert!(busy.code() == 0 && busy.out.contains("\"running\":true"), "{busy:?}");
    cli(&viber, &["service", "restart"]).await.good();
    let logs = cli(&viber, &["logs", "-n", "5"]).await.good();
    assert!(logs.contains("a line of the journal"), "{logs}");
    for (verb, step) in [
        ("install", "Wrote "),
        ("restart", "Ran systemctl --user restart"),
        ("uninstall", "Ran systemctl --user disable"),
    ] {
        let said = cli(&viber, &["service", verb, "--json"]).await.good();
        let done: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert_eq!(done["file"], unit.display().to_string(), "{done}");
        assert!(done["steps"][0].as_str().is_some_and(|first| first.starts_with(step)), "{done}");
    }
    assert!(!unit.exists() && viber.home().join("state/credential").exists());
    let calls = fs::read_to_string(folder.join("calls")).expect("calls");
    for call in
        ["restart openviber-daemon", "disable --now openviber-daemon", "journalctl --user --unit openviber-daemon"]
    {
        assert!(calls.contains(call), "{call} in {calls}");
    }
}

#[tokio::test]
async fn the_log_is_shown_from_its_end_and_followed() {
    let viber = Viber::fresh("logged");
    viber.write("state/daemon.log", "one\ntwo\nthree\n");
    assert_eq!(cli(&viber, &["logs", "-n", "2"]).await.good(), "two\nthree\n");
    let json = cli(&viber, &["service", "logs", "-n", "1", "--json"]).await.good();
    assert_eq!(json.trim(), r#"{"MESSAGE":"three"}"#);
    let shown = viber.root().join("shown.log");
    let follower = Process::start(command(&viber, &["logs", "-f", "-n", "1"]), &shown);
    eventually("the last line", || async { follower.log().contains("three").then_some(()) }).await;
    let mut file = fs::OpenOptions::new().append(true).open(viber.home().join("state/daemon.log")).expect("the log");
    std::io::Write::write_all(&mut file, b"four\x1b[2J\n").expect("written");
    eventually("what is new", || async { follower.log().contains("four").then_some(()) }).await;
    assert!(!follower.log().contains('\x1b') && !follower.log().contains("two"), "{}", follower.log());
}
