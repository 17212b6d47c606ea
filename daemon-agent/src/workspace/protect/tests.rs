//! What commands wrote into protected files is put back, and what others wrote stays.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::home::Home;

const OWN_SESSION: &str = "ses_own";

struct Fixture {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Fixture {
    fn set() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let fixture = Self { folder, workspace: Workspace::open(&home) };
        fixture.write("MEMORY.md", "# Memory\n");
        fixture.write("sessions/ses_own/notes.md", "own\n");
        fixture.write("sessions/ses_other/task.md", "- [ ] theirs\n");
        fixture
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

    fn keep(&self) -> ProtectedFiles {
        let files = ["MEMORY.md", "task.md"].map(str::to_owned).to_vec();
        self.workspace.keep(ProtectedPaths { files, session: Some(OWN_SESSION.to_owned()) }, false, None).expect("kept")
    }

    fn trash(&self) -> Vec<String> {
        let entries = fs::read_dir(self.at(".trash")).into_iter().flatten().flatten();
        entries.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }
}

#[test]
fn what_is_closed_is_known_by_its_path() {
    let closed = ProtectedPaths { files: vec!["MEMORY.md".into()], session: Some(OWN_SESSION.into()) };
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
    let fixture = Fixture::set();
    let keeper = fixture.keep();
    fixture.write("sessions/ses_own/notes.md", "more\n");
    fixture.write("free.md", "x");
    assert_eq!(keeper.put_back(), []);
    assert_eq!(fixture.text("sessions/ses_own/notes.md").as_deref(), Some("more\n"));
}

#[test]
fn what_a_command_wrote_is_put_back_and_kept() {
    let fixture = Fixture::set();
    let keeper = fixture.keep();
    fixture.write("MEMORY.md", "# Memory\n\n- mine\n");
    fixture.write("task.md", "new\n");
    fixture.write("sessions/ses_other/task.md", "- [x] theirs\n");
    fixture.write("sessions/ses_new/file", "x");
    fs::set_permissions(fixture.at("MEMORY.md"), fs::Permissions::from_mode(0o444)).expect("its owner may");
    let over = keeper.put_back();
    let found: Vec<_> =
        over.iter().map(|one| (one.path.as_str(), one.wrote.as_deref(), one.repair == Repair::Done)).collect();
    let expected = [
        ("MEMORY.md", Some("# Memory\n\n- mine\n"), true),
        ("sessions/ses_new/file", Some("x"), true),
        ("sessions/ses_other/task.md", Some("- [x] theirs\n"), true),
        ("task.md", Some("new\n"), true),
    ];
    assert_eq!(found, expected);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Memory\n"));
    assert_eq!(fixture.text("sessions/ses_other/task.md").as_deref(), Some("- [ ] theirs\n"));
    assert_eq!((fixture.text("task.md"), fixture.text("sessions/ses_new/file")), (None, None));
    let trash = fixture.trash();
    for (_, wrote, _) in expected {
        assert!(trash.iter().any(|kept| Some(kept.as_str()) == wrote), "{trash:?} lacks {wrote:?}");
    }
    let mode = fs::metadata(fixture.at("MEMORY.md")).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode & 0o200, 0o200, "{mode:o}");
}

#[test]
fn a_file_that_took_the_place_of_a_walled_one_stays_and_is_told() {
    let fixture = Fixture::set();
    let walled = || {
        let files = vec!["MEMORY.md".to_owned()];
        fixture.workspace.keep(ProtectedPaths { files, session: None }, true, None).expect("kept")
    };
    assert_eq!(walled().put_back(), []);
    let keeper = walled();
    fixture.write("new", "# Saved\n");
    fs::rename(fixture.at("new"), fixture.at("MEMORY.md")).expect("replaced");
    let violations = [Violation { path: "MEMORY.md".to_owned(), wrote: None, repair: Repair::Left, kept: None }];
    assert_eq!(keeper.put_back(), violations);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Saved\n"));
    // It has two names, one of them outside the sandbox's protection: it becomes a file of its own.
    fs::hard_link(fixture.at("MEMORY.md"), fixture.at("other")).expect("linked");
    let keeper = walled();
    fixture.write("other", "slipped in");
    assert_eq!(keeper.put_back(), []);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Saved\n"));
}

#[test]
fn links_folders_and_holes_give_way() {
    let fixture = Fixture::set();
    let elsewhere = fixture.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    let keeper = fixture.keep();
    fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
    std::os::unix::fs::symlink(elsewhere.join("stolen"), fixture.at("MEMORY.md")).expect("linked");
    fs::create_dir(fixture.at("task.md")).expect("made");
    fs::rename(fixture.at("sessions/ses_other"), fixture.at("hidden")).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, fixture.at("sessions/ses_other")).expect("linked");
    let over = keeper.put_back();
    assert!(over.len() == 4 && over.iter().all(|one| one.repair == Repair::Done), "{over:?}");
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Memory\n"));
    assert_eq!(fixture.text("sessions/ses_other/task.md").as_deref(), Some("- [ ] theirs\n"));
    assert!(!fixture.at("task.md").exists());
    assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0, "nothing is written over a link");
}

#[test]
fn a_second_name_does_not_help() {
    let fixture = Fixture::set();
    fs::hard_link(fixture.at("MEMORY.md"), fixture.at("alias.md")).expect("linked");
    let keeper = fixture.keep();
    fixture.write("alias.md", "written by another name\n");
    assert_eq!(keeper.put_back(), []);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Memory\n"));
}

#[test]
fn what_those_who_may_write_meanwhile_stands() {
    let fixture = Fixture::set();
    let keeper = fixture.keep();
    let base = hash::hex(b"# Memory\n");
    let saved = b"# Memory\n\n- an operator's\n";
    fixture.workspace.put("MEMORY.md", Some(&base), saved, Author::Board).expect("written");
    fixture.workspace.put("task.md", None, b"from the Board\n", Author::Board).expect("written");
    // The command overwrites it.
    fixture.write("task.md", "the command's\n");
    let over = keeper.put_back();
    assert_eq!(over.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["task.md"]);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Memory\n\n- an operator's\n"));
    assert_eq!(fixture.text("task.md").as_deref(), Some("from the Board\n"));
}

#[test]
fn behind_a_wall_only_what_was_not_there_is_looked_at() {
    let fixture = Fixture::set();
    let closed =
        ProtectedPaths { files: vec!["MEMORY.md".into(), "task.md".into()], session: Some(OWN_SESSION.into()) };
    let keeper = fixture.workspace.keep(closed, true, None).expect("kept");
    // A person saves; the command could not.
    fixture.write("MEMORY.md", "a person's\n");
    fixture.write("sessions/ses_other/task.md", "a person's\n");
    fixture.write("task.md", "new\n");
    let over = keeper.put_back();
    assert_eq!(over.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["task.md"]);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("a person's\n"));
    assert_eq!(fixture.trash(), ["new\n"]);
}

#[test]
fn what_another_command_may_write_is_left_to_it() {
    let fixture = Fixture::set();
    let keeper = fixture.keep();
    let closed = ProtectedPaths { files: vec!["task.md".into()], session: Some("ses_other".into()) };
    let other = fixture.workspace.keep(closed, false, None).expect("kept");
    fixture.write("sessions/ses_other/task.md", "- [x] theirs\n");
    fixture.write("MEMORY.md", "open to the other\n");
    fixture.write("task.md", "closed to both\n");
    assert_eq!(other.put_back().iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["task.md"]);
    assert_eq!(keeper.put_back(), []);
    assert_eq!(fixture.text("sessions/ses_other/task.md").as_deref(), Some("- [x] theirs\n"));
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("open to the other\n"));
    assert_eq!(fixture.text("task.md"), None);
}

/// A fixture without a memory, and what an agent's command must not change there behind a sandbox.
fn walled(fixture: &Fixture) -> ProtectedFiles {
    let closed =
        ProtectedPaths { files: vec!["MEMORY.md".into(), "task.md".into()], session: Some(OWN_SESSION.into()) };
    fixture.workspace.keep(closed, true, None).expect("kept")
}

fn wrote(path: &str, text: &str, repair: Repair) -> Violation {
    Violation { path: path.to_owned(), wrote: Some(text.to_owned()), repair, kept: Some(KeptPlace::Trash) }
}

fn mode(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its owner may");
}

/// Ways to break the workspace. Modes do not bind root: for root, some of these break nothing, and the rest still
/// counts.
#[test]
fn a_command_that_breaks_the_trash_or_the_workspace_does_not_leave_its_words() {
    type Break = fn(&Fixture);
    let ways: [(&str, Break); 9] = [
        ("a file for a trash", |fixture| fixture.write(".trash", "x")),
        ("a link for a trash", |fixture| {
            std::os::unix::fs::symlink(fixture.folder.path(), fixture.at(".trash")).expect("linked");
        }),
        ("a name like the trash's", |fixture| fixture.write(".TRASH", "x")),
        ("a closed trash", |fixture| {
            fs::create_dir(fixture.at(".trash")).expect("made");
            mode(&fixture.at(".trash"), 0);
        }),
        ("a workspace that is read only", |fixture| mode(&fixture.at(""), 0o500)),
        ("a closed workspace", |fixture| mode(&fixture.at(""), 0)),
        ("a closed file", |fixture| mode(&fixture.at("MEMORY.md"), 0)),
        ("a closed session", |fixture| {
            fixture.write("sessions/ses_own/task.md", "mine\n");
            mode(&fixture.at("sessions/ses_own"), 0);
        }),
        ("a file for a trash in a closed workspace", |fixture| {
            fixture.write(".trash", "x");
            mode(&fixture.at("MEMORY.md"), 0o200);
            mode(&fixture.at(""), 0o100);
        }),
    ];
    for (name, breaks) in ways {
        let fixture = Fixture::set();
        fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
        let files = ["MEMORY.md", "sessions/ses_own/task.md"].map(str::to_owned).to_vec();
        let closed = ProtectedPaths { files, session: Some(OWN_SESSION.to_owned()) };
        let keeper = fixture.workspace.keep(closed, true, None).expect("kept");
        fixture.write("MEMORY.md", "evil\n");
        breaks(&fixture);
        let over = keeper.put_back();
        assert_eq!(over[0], wrote("MEMORY.md", "evil\n", Repair::Done), "{name}");
        assert_eq!((fixture.text("MEMORY.md"), fixture.text("sessions/ses_own/task.md")), (None, None), "{name}");
        assert!(fixture.trash().contains(&"evil\n".to_owned()), "{name}: {:?}", fixture.trash());
        assert_eq!(walled(&fixture).put_back(), [], "{name}");
    }
}

#[test]
fn what_a_running_command_made_is_not_what_the_next_one_finds_in_order() {
    let fixture = Fixture::set();
    fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
    let first = walled(&fixture);
    fixture.write("MEMORY.md", "the first one's\n");
    let second = walled(&fixture);
    let third = walled(&fixture);
    assert_eq!(first.put_back(), [wrote("MEMORY.md", "the first one's\n", Repair::Done)]);
    assert_eq!(fixture.text("MEMORY.md"), None);
    fixture.write("MEMORY.md", "the second one's\n");
    let fourth = walled(&fixture);
    assert_eq!(second.put_back(), [wrote("MEMORY.md", "the second one's\n", Repair::Done)]);
    assert_eq!((third.put_back(), fourth.put_back()), (vec![], vec![]));
    // What an operator writes meanwhile is accepted for all of them.
    let first = walled(&fixture);
    fixture.workspace.put("MEMORY.md", None, b"an operator's\n", Author::Board).expect("written");
    let second = walled(&fixture);
    fixture.write("MEMORY.md", "a command's\n");
    assert_eq!(first.put_back(), [wrote("MEMORY.md", "a command's\n", Repair::Done)]);
    fixture.write("MEMORY.md", "another one's\n");
    assert_eq!(second.put_back(), [wrote("MEMORY.md", "another one's\n", Repair::Done)]);
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("an operator's\n"));
}

#[test]
fn what_another_commands_session_may_write_is_in_order_for_the_next_one() {
    let fixture = Fixture::set();
    fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
    let first = walled(&fixture);
    let free = ProtectedPaths { files: Vec::new(), session: Some("ses_free".into()) };
    let free = fixture.workspace.keep(free, true, None).expect("kept");
    fixture.write("MEMORY.md", "may be written\n");
    assert_eq!(free.put_back(), []);
    let second = walled(&fixture);
    assert_eq!((first.put_back(), second.put_back()), (vec![], vec![]));
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("may be written\n"));
}

#[test]
fn a_kill_is_made_good_by_the_next_start() {
    let fixture = Fixture::set();
    for is_walled in [true, false] {
        fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
        fixture.write("sessions/ses_other/task.md", "- [ ] theirs\n");
        let attempt = AttemptRef { task_id: protocol::TaskId::new(1), attempt: 2 };
        let plan = Some("task.md".to_owned());
        let owner = Some(CommandOwner { attempt, agent_id: "default".to_owned(), plan, proposes_memory: true });
        let files = ["MEMORY.md", "memory.md", "task.md"].map(str::to_owned).to_vec();
        let closed = ProtectedPaths { files, session: Some(OWN_SESSION.to_owned()) };
        let killed = fixture.workspace.keep(closed, is_walled, owner.clone()).expect("kept");
        fixture.workspace.put("task.md", None, b"an operator's\n", Author::Board).expect("written");
        fixture.write("MEMORY.md", "evil\n");
        if !is_walled {
            fixture.write("sessions/ses_other/task.md", "- [x] theirs\n");
            fixture.write("sessions/ses_other/new", "x");
        }
        // As after a kill: nothing is put back, and nobody knows of the command any more.
        drop(killed);
        let home = Home::at(fixture.folder.path());
        let folder = home.state().join("closed");
        let notes: Vec<_> = fs::read_dir(&folder).expect("notes").flatten().map(|entry| entry.path()).collect();
        assert_eq!(notes.len(), 1);
        let undone = note::put_back(&Workspace::open(&home), &notes);
        assert_eq!(undone.len(), 1);
        assert_eq!((&undone[0].owner, &undone[0].over[0]), (&owner, &wrote("MEMORY.md", "evil\n", Repair::Done)));
        assert_eq!(undone[0].over.len(), if is_walled { 1 } else { 3 }, "{:?}", undone[0].over);
        assert_eq!((fixture.text("MEMORY.md"), fixture.text("sessions/ses_other/new")), (None, None));
        assert_eq!(fixture.text("task.md").as_deref(), Some("an operator's\n"));
        assert_eq!(fixture.text("sessions/ses_other/task.md").as_deref(), Some("- [ ] theirs\n"));
        assert!(fixture.trash().contains(&"evil\n".to_owned()));
        assert_eq!(fs::read_dir(&folder).expect("notes").count(), 0);
        fs::remove_file(fixture.at("task.md")).expect("removed");
        fixture.write("MEMORY.md", "# Memory\n");
    }
    // A note that cannot be read says nothing and blocks nothing.
    let garbage = fixture.folder.path().join("state/closed/garbage");
    fs::write(&garbage, "{").expect("written");
    assert!(note::put_back(&fixture.workspace, std::slice::from_ref(&garbage)).is_empty() && !garbage.exists());
}

#[test]
fn where_the_words_are_is_told_as_it_is() {
    let fixture = Fixture::set();
    fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
    let keeper = walled(&fixture);
    fixture.write("MEMORY.md", "evil\n");
    let over = keeper.put_back();
    assert!(over[0].whereabouts().contains("in the workspace's trash"), "{over:?}");
    let aside = Violation { kept: Some(KeptPlace::SetAside), ..over[0].clone() };
    assert!(aside.whereabouts().contains("state/set-aside") && !aside.whereabouts().contains("trash"));
    let gone = Violation { kept: None, ..over[0].clone() };
    assert!(gone.whereabouts().contains("could not be kept"));
    let cleared = Violation { repair: Repair::Cleared, wrote: None, ..aside };
    assert!(
        cleared.words().ends_with("it is in the folder state/set-aside of the viber's home"),
        "{}",
        cleared.words()
    );
}

#[test]
fn what_is_no_file_does_not_bar_the_next_command() {
    let fixture = Fixture::set();
    fs::remove_file(fixture.at("MEMORY.md")).expect("removed");
    fs::create_dir_all(fixture.at("MEMORY.md/x")).expect("made");
    mode(&fixture.at("MEMORY.md"), 0);
    std::os::unix::fs::symlink(fixture.at("elsewhere"), fixture.at("task.md")).expect("linked");
    let over = walled(&fixture).put_back();
    let kept = Some(KeptPlace::Trash);
    let cleared = |path: &str| Violation { path: path.to_owned(), wrote: None, repair: Repair::Cleared, kept };
    assert_eq!(over, [cleared("MEMORY.md"), cleared("task.md")]);
    assert!(!fixture.at("MEMORY.md").exists() && fixture.at("task.md").symlink_metadata().is_err());
    // A protected file is one that exists, and a link in somebody's session is theirs.
    fixture.write("MEMORY.md", "# Memory\n");
    mode(&fixture.at("MEMORY.md"), 0);
    std::os::unix::fs::symlink("notes", fixture.at("sessions/ses_other/link")).expect("linked");
    mode(&fixture.at("sessions/ses_other"), 0);
    mode(&fixture.at(""), 0);
    assert_eq!((walled(&fixture).put_back(), fixture.keep().put_back()), (vec![], vec![]));
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("# Memory\n"));
    assert!(fixture.at("sessions/ses_other/link").symlink_metadata().is_ok());
}
