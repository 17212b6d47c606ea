//! What commands wrote into files that are closed to them is put back, and what others wrote stands.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::home::Home;

const OWN: &str = "ses_own";

struct Stage {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let stage = Self { folder, workspace: Workspace::open(&home) };
        stage.write("MEMORY.md", "# Memory\n");
        stage.write("sessions/ses_own/notes.md", "own\n");
        stage.write("sessions/ses_other/task.md", "- [ ] theirs\n");
        stage
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join("workspace").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.folder.path().join("workspace").join(path)).ok()
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("workspace").join(path)
    }

    fn keep(&self) -> Keeper {
        let files = ["MEMORY.md", "task.md"].map(str::to_owned).to_vec();
        self.workspace.keep(Closed { files, session: Some(OWN.to_owned()) }, false).expect("kept")
    }

    fn trash(&self) -> Vec<String> {
        let entries = fs::read_dir(self.at(".trash")).into_iter().flatten().flatten();
        entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }
}

#[test]
fn what_is_closed_is_known_by_its_path() {
    let closed = Closed { files: vec!["MEMORY.md".into()], session: Some(OWN.into()) };
    for held in ["MEMORY.md", "sessions/ses_other", "sessions/ses_other/deep/file", "sessions/ses_own2/x"] {
        assert!(closed.holds(held), "{held}");
    }
    for free in
        ["MEMORY.md.bak", "sessions", "sessions/ses_own", "sessions/ses_own/task.md", "sessionsx/y", "a/MEMORY.md"]
    {
        assert!(!closed.holds(free), "{free}");
    }
}

#[test]
fn nothing_is_said_of_what_did_not_change() {
    let stage = Stage::set();
    let keeper = stage.keep();
    stage.write("sessions/ses_own/notes.md", "more\n");
    stage.write("free.md", "x");
    assert_eq!(keeper.put_back(), []);
    assert_eq!(stage.text("sessions/ses_own/notes.md").as_deref(), Some("more\n"));
}

#[test]
fn what_a_command_wrote_is_put_back_and_kept() {
    let stage = Stage::set();
    let keeper = stage.keep();
    stage.write("MEMORY.md", "# Memory\n\n- mine\n");
    stage.write("task.md", "new\n");
    stage.write("sessions/ses_other/task.md", "- [x] theirs\n");
    stage.write("sessions/ses_new/file", "x");
    fs::set_permissions(stage.at("MEMORY.md"), fs::Permissions::from_mode(0o444)).expect("its owner may");
    let over = keeper.put_back();
    let told: Vec<_> =
        over.iter().map(|one| (one.path.as_str(), one.wrote.as_deref(), one.repair == Repair::Done)).collect();
    let expected = [
        ("MEMORY.md", Some("# Memory\n\n- mine\n"), true),
        ("sessions/ses_new/file", Some("x"), true),
        ("sessions/ses_other/task.md", Some("- [x] theirs\n"), true),
        ("task.md", Some("new\n"), true),
    ];
    assert_eq!(told, expected);
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("# Memory\n"));
    assert_eq!(stage.text("sessions/ses_other/task.md").as_deref(), Some("- [ ] theirs\n"));
    assert_eq!((stage.text("task.md"), stage.text("sessions/ses_new/file")), (None, None));
    let trash = stage.trash();
    for (_, wrote, _) in expected {
        assert!(trash.iter().any(|kept| Some(kept.as_str()) == wrote), "{trash:?} lacks {wrote:?}");
    }
    let mode = fs::metadata(stage.at("MEMORY.md")).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode & 0o200, 0o200, "{mode:o}");
}

#[test]
fn a_file_that_took_the_place_of_a_walled_one_stays_and_is_told() {
    let stage = Stage::set();
    let walled = || {
        let files = vec!["MEMORY.md".to_owned()];
        stage.workspace.keep(Closed { files, session: None }, true).expect("kept")
    };
    assert_eq!(walled().put_back(), []);
    let keeper = walled();
    stage.write("new", "# Saved\n");
    fs::rename(stage.at("new"), stage.at("MEMORY.md")).expect("replaced");
    let told = [Overstep { path: "MEMORY.md".to_owned(), wrote: None, repair: Repair::Left }];
    assert_eq!(keeper.put_back(), told);
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("# Saved\n"));
    // Under two names, one of them in nobody's wall: it is a file of its own from now on.
    fs::hard_link(stage.at("MEMORY.md"), stage.at("other")).expect("linked");
    let keeper = walled();
    stage.write("other", "slipped in");
    assert_eq!(keeper.put_back(), []);
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("# Saved\n"));
}

#[test]
fn links_folders_and_holes_give_way() {
    let stage = Stage::set();
    let elsewhere = stage.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    let keeper = stage.keep();
    fs::remove_file(stage.at("MEMORY.md")).expect("removed");
    std::os::unix::fs::symlink(elsewhere.join("stolen"), stage.at("MEMORY.md")).expect("linked");
    fs::create_dir(stage.at("task.md")).expect("made");
    fs::rename(stage.at("sessions/ses_other"), stage.at("hidden")).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, stage.at("sessions/ses_other")).expect("linked");
    let over = keeper.put_back();
    assert!(over.len() == 4 && over.iter().all(|one| one.repair == Repair::Done), "{over:?}");
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("# Memory\n"));
    assert_eq!(stage.text("sessions/ses_other/task.md").as_deref(), Some("- [ ] theirs\n"));
    assert!(!stage.at("task.md").exists());
    assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0, "nothing is written over a link");
}

#[test]
fn a_second_name_does_not_help() {
    let stage = Stage::set();
    fs::hard_link(stage.at("MEMORY.md"), stage.at("alias.md")).expect("linked");
    let keeper = stage.keep();
    stage.write("alias.md", "written by another name\n");
    assert_eq!(keeper.put_back(), []);
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("# Memory\n"));
}

#[test]
fn what_those_who_may_write_meanwhile_stands() {
    let stage = Stage::set();
    let keeper = stage.keep();
    let base = hash::hex(b"# Memory\n");
    let saved = b"# Memory\n\n- an operator's\n";
    stage.workspace.put("MEMORY.md", Some(&base), saved, By::Board).expect("written");
    stage.workspace.put("task.md", None, b"from the Board\n", By::Board).expect("written");
    // Over it the command writes its own.
    stage.write("task.md", "the command's\n");
    let over = keeper.put_back();
    assert_eq!(over.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["task.md"]);
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("# Memory\n\n- an operator's\n"));
    assert_eq!(stage.text("task.md").as_deref(), Some("from the Board\n"));
}

#[test]
fn behind_a_wall_only_what_was_not_there_is_looked_at() {
    let stage = Stage::set();
    let closed = Closed { files: vec!["MEMORY.md".into(), "task.md".into()], session: Some(OWN.into()) };
    let keeper = stage.workspace.keep(closed, true).expect("kept");
    // A person saves; the command could not.
    stage.write("MEMORY.md", "a person's\n");
    stage.write("sessions/ses_other/task.md", "a person's\n");
    stage.write("task.md", "new\n");
    let over = keeper.put_back();
    assert_eq!(over.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["task.md"]);
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("a person's\n"));
    assert_eq!(stage.trash(), ["new\n"]);
}

#[test]
fn what_another_command_may_write_is_left_to_it() {
    let stage = Stage::set();
    let keeper = stage.keep();
    let closed = Closed { files: vec!["task.md".into()], session: Some("ses_other".into()) };
    let other = stage.workspace.keep(closed, false).expect("kept");
    stage.write("sessions/ses_other/task.md", "- [x] theirs\n");
    stage.write("MEMORY.md", "open to the other\n");
    stage.write("task.md", "closed to both\n");
    assert_eq!(other.put_back().iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["task.md"]);
    assert_eq!(keeper.put_back(), []);
    assert_eq!(stage.text("sessions/ses_other/task.md").as_deref(), Some("- [x] theirs\n"));
    assert_eq!(stage.text("MEMORY.md").as_deref(), Some("open to the other\n"));
    assert_eq!(stage.text("task.md"), None);
}
