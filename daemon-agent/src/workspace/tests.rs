//! Files shared with an editor, and paths that lead elsewhere.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{PermissionsExt, symlink},
    },
    path::PathBuf,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::EntryKind;
use rustix::{
    fs::{CWD, FileType, Mode},
    io::Errno,
};

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        Self { workspace: Workspace::open(&home), folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("home/workspace").join(path)
    }

    fn file(&self, path: &str, text: &str) -> String {
        fs::create_dir_all(self.at(path).parent().expect("a parent")).expect("made");
        fs::write(self.at(path), text).expect("written");
        hex(text.as_bytes())
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).expect("a file")
    }

    fn names(&self, path: &str) -> Vec<String> {
        let listing = self.workspace.list(path, 0).expect("listed");
        listing.entries.into_iter().map(|entry| entry.name).collect()
    }

    fn put(&self, path: &str, base: Option<&str>, text: &str) -> WriteOutcome {
        self.workspace.put(path, base, text.as_bytes(), Author::Board).expect("an answer")
    }
}

#[test]
fn a_change_is_made_to_the_version_that_was_seen_alone() {
    let fixture = Fixture::new();
    let first = fixture.put("notes/today.md", None, "one");
    assert_eq!(first, WriteOutcome { state: LocalWriteState::Applied, hash: Some(hex(b"one")) });
    let mode = |path: &str| fs::metadata(fixture.at(path)).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode("notes"), 0o700);
    fs::set_permissions(fixture.at("notes/today.md"), fs::Permissions::from_mode(0o640)).expect("set");
    // Repeating it gives the same result.
    assert_eq!(fixture.put("notes/today.md", None, "one"), first);
    let second = fixture.put("notes/today.md", first.hash.as_deref(), "two");
    assert_eq!(
        (second.state, fixture.text("notes/today.md"), mode("notes/today.md")),
        (LocalWriteState::Applied, "two".into(), 0o640)
    );
    assert_eq!(
        fixture.put("notes/today.md", first.hash.as_deref(), "two").state,
        LocalWriteState::Applied,
        "it is so already"
    );
    let theirs = fixture.file("notes/today.md", "theirs");
    let stale = fixture.put("notes/today.md", second.hash.as_deref(), "three");
    assert_eq!(stale, WriteOutcome { state: LocalWriteState::Conflict, hash: Some(theirs) });
    assert_eq!(fixture.put("notes/today.md", None, "three").state, LocalWriteState::Conflict, "there is one");
    assert_eq!(
        fixture.put("gone/x.md", Some(&hex(b"x")), "y"),
        WriteOutcome { state: LocalWriteState::Conflict, hash: None }
    );
    assert_eq!((fixture.text("notes/today.md"), fixture.names("notes")), ("theirs".into(), vec!["today.md".into()]));
    assert!(!fixture.at("gone").exists());
}

#[test]
fn an_editor_in_the_same_file_loses_nothing() {
    let fixture = Fixture::new();
    let mut base = fixture.file("plan.md", "");
    let path = fixture.at("plan.md");
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut kept, mut conflicts) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        // The editor replaces the file with what it read and one more line.
        let editor = scope.spawn(|| {
            let mut lines = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let draft = path.with_extension("swp");
                fs::write(&draft, format!("{text}editor {lines}\n")).expect("written");
                fs::rename(&draft, &path).expect("renamed");
                lines += 1;
            }
            lines
        });
        for n in 0..200 {
            let (text, hash) = fixture.workspace.text("plan.md").expect("readable").expect("there");
            base = hash;
            let line = format!("board {n}\n");
            match fixture.put("plan.md", Some(&base), &format!("{text}{line}")).state {
                LocalWriteState::Applied => kept.push(line),
                LocalWriteState::Conflict => conflicts += 1,
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(editor.join().expect("no panic") > 0);
    });
    // The editor overwrites without checking, so only those lines of the Board's that it had read must be there. There
    // must be no partial file, and no draft left behind.
    assert!(!base.is_empty());
    assert_eq!(
        fixture
            .text("plan.md")
            .lines()
            .filter(|line| !line.starts_with("editor ") && !line.starts_with("board "))
            .count(),
        0
    );
    assert!(fixture.names("").iter().all(|name| name == "plan.md" || name == "plan.swp"), "{:?}", fixture.names(""));
    assert_eq!(kept.len() + conflicts, 200);
}

/// A shell that has a file open to append to it, and writes a line after a while.
fn appends(path: &std::path::Path, line: &str, after: Duration) -> std::process::Child {
    let script = "exec 3>> \"$1\"; echo open; sleep \"$3\"; echo \"$2\" >&3";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(path).arg(line).arg(after.as_secs_f64().to_string());
    let mut child = shell.stdout(std::process::Stdio::piped()).spawn().expect("a shell");
    let mut said = [0; 5];
    child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("it has the file open");
    child
}

#[test]
fn who_has_the_file_open_for_a_moment_is_waited_for() {
    let fixture = Fixture::new();
    let base = fixture.file("log.md", "one\n");
    let mut editor = appends(&fixture.at("log.md"), "editor", Duration::from_millis(60));
    let put = fixture.put("log.md", Some(&base), "one\nboard\n");
    assert!(editor.wait().expect("it ran").success());
    assert_eq!(put, WriteOutcome { state: LocalWriteState::Conflict, hash: Some(hex(b"one\neditor\n")) });
    assert_eq!((fixture.text("log.md"), fixture.names("")), ("one\neditor\n".into(), vec!["log.md".into()]));
}

#[test]
fn who_writes_to_content_that_is_taken_back_loses_nothing() {
    let fixture = Fixture::new();
    let base = fixture.file("log.md", "one\n");
    let path = fixture.at("log.md");
    // It writes to the displaced file when another has written to the new one.
    let script = "exec 3>> \"$1\"; echo open; until grep -q other \"$1\"; do sleep 0.01; done; echo editor >&3";
    let mut editor = std::process::Command::new("sh");
    let editor = editor.args(["-c", script, "sh"]).arg(&path).stdout(std::process::Stdio::piped());
    let mut editor = editor.spawn().expect("a shell");
    editor.stdout.as_mut().expect("piped").read_exact(&mut [0; 5]).expect("it has the file open");
    let script = "until grep -q board \"$1\"; do sleep 0.01; done; echo other >> \"$1\"";
    let mut other = std::process::Command::new("sh");
    let mut other = other.args(["-c", script, "sh"]).arg(&path).spawn().expect("a shell");
    fixture.put("log.md", Some(&base), "one\nboard\n");
    assert!(other.wait().expect("it ran").success() && editor.wait().expect("it ran").success());
    let kept = fixture.names(TRASH_FOLDER);
    let kept: String = kept.iter().map(|name| fixture.text(&format!("{TRASH_FOLDER}/{name}"))).collect();
    let all = fixture.text("log.md") + &kept;
    for line in ["editor\n", "other\n", "board\n"] {
        assert!(all.contains(line), "{line:?} in {all:?}");
    }
}

#[test]
fn a_file_that_stays_open_is_kept_in_the_trash_with_what_comes_later() {
    let fixture = Fixture::new();
    let base = fixture.file("log.md", "one\n");
    let mut editor = appends(&fixture.at("log.md"), "editor", Duration::from_secs(1));
    let put = fixture.put("log.md", Some(&base), "one\nboard\n");
    assert_eq!((put.state, fixture.text("log.md")), (LocalWriteState::Applied, "one\nboard\n".into()));
    assert!(editor.wait().expect("it ran").success());
    let kept = fixture.names(TRASH_FOLDER);
    assert!(matches!(&kept[..], [name] if name.ends_with("-log.md")), "{kept:?}");
    assert_eq!(fixture.text(&format!("{TRASH_FOLDER}/{}", kept[0])), "one\neditor\n");
}

#[test]
fn a_deleted_file_waits_in_the_trash_and_comes_back_by_its_name() {
    let fixture = Fixture::new();
    let hash = fixture.file("a/b.md", "text");
    let delete = |base: &str| fixture.workspace.delete("a/b.md", base, Author::Board).expect("an answer");
    assert_eq!(delete(&hex(b"other")), WriteOutcome { state: LocalWriteState::Conflict, hash: Some(hash.clone()) });
    assert_eq!(delete(&hash), WriteOutcome { state: LocalWriteState::Applied, hash: None });
    assert_eq!(delete(&hash).state, LocalWriteState::Applied, "it is gone already");
    assert!(!fixture.at("a/b.md").exists() && !fixture.names("").contains(&TRASH_FOLDER.to_owned()));
    let kept = fixture.names(TRASH_FOLDER);
    assert!(matches!(&kept[..], [name] if name.ends_with("-b.md")), "{kept:?}");
    let kept = format!("{TRASH_FOLDER}/{}", kept[0]);
    assert!(fixture.workspace.put(&kept, Some(&hash), b"x", Author::Board).is_err());
    let back = fixture.workspace.rename(&kept, "c/b.md", &hash, Author::Board).expect("an answer");
    assert_eq!((back.state, fixture.text("c/b.md")), (LocalWriteState::Applied, "text".into()));
}

#[test]
fn a_new_name_takes_nobodys_place() {
    let fixture = Fixture::new();
    let (hash, other) = (fixture.file("one.md", "1"), fixture.file("two.md", "2"));
    let rename = |to: &str, base: &str| fixture.workspace.rename("one.md", to, base, Author::Board);
    assert_eq!(rename("three.md", &other).expect("an answer").state, LocalWriteState::Conflict);
    assert!(matches!(rename("two.md", &hash), Err(WorkspaceError::Name(_))));
    assert!(matches!(rename("TWO.md", &hash), Err(WorkspaceError::Name(_))), "it differs in its case alone");
    assert_eq!(rename("One.md", &hash).expect("an answer").state, LocalWriteState::Applied, "its own may");
    assert_eq!(
        fixture.workspace.rename("One.md", "in/1.md", &hash, Author::Board).expect("an answer").state,
        LocalWriteState::Applied
    );
    assert_eq!(
        fixture.workspace.rename("One.md", "in/1.md", &hash, Author::Board).expect("twice is once").state,
        LocalWriteState::Applied
    );
    assert_eq!(
        (fixture.text("in/1.md"), fixture.text("two.md"), fixture.names("")),
        ("1".into(), "2".into(), vec!["in".into(), "two.md".into()])
    );
    assert!(matches!(fixture.workspace.put("Two.md", None, b"x", Author::Board), Err(WorkspaceError::Name(_))));
    assert!(matches!(fixture.workspace.put("IN/2.md", None, b"x", Author::Board), Err(WorkspaceError::Name(_))));
}

#[test]
fn a_large_folder_comes_in_pieces_and_a_large_file_too() {
    let fixture = Fixture::new();
    for n in 0..2_500 {
        fixture.file(&format!("many/file {n:05}.md"), "x");
    }
    fs::create_dir(fixture.at("many/zz folder")).expect("made");
    let first = fixture.workspace.list("many", 0).expect("listed");
    assert_eq!((first.entries[0].name.as_str(), first.entries[0].kind), ("zz folder", EntryKind::Folder));
    let rest = fixture.workspace.list("many", first.entries.len() as u64).expect("listed");
    assert_eq!((first.omitted, rest.omitted), (rest.entries.len() as u64, 0));
    assert_eq!(first.entries.len() + rest.entries.len(), 2_501);
    assert!(serde_json::to_string(&first).expect("JSON").len() < protocol::limits::MAX_FRAME_BYTES - 4_096);
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| n as u8).collect();
    fs::write(fixture.at("large.bin"), &bytes).expect("written");
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let piece = fixture.workspace.read("large.bin", got.len() as u64, u64::MAX).expect("read");
        assert_eq!((&piece.hash, piece.size), (&hex(&bytes), bytes.len() as u64));
        got.extend(BASE64_STANDARD.decode(piece.content).expect("base64"));
    }
    assert_eq!(got, bytes);
    assert!(fixture.workspace.read("large.bin", u64::MAX, 5).expect("read").content.is_empty());
    assert!(matches!(fixture.workspace.text("large.bin"), Err(WorkspaceError::TooLarge)));
    assert!(matches!(fixture.workspace.put("x", None, &bytes, Author::Board), Err(WorkspaceError::TooLarge)));
}

#[test]
fn a_hash_is_of_what_is_shown_while_a_file_grows() {
    let fixture = Fixture::new();
    let mut file = fs::File::create(fixture.at("log.md")).expect("made");
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || (0..20_000).for_each(|_| file.write_all(b"line\n").expect("written")));
        while !writer.is_finished() {
            let piece = fixture.workspace.read("log.md", 0, u64::MAX).expect("read");
            let content = BASE64_STANDARD.decode(piece.content).expect("base64");
            assert_eq!((piece.hash, piece.size), (hex(&content), content.len() as u64));
        }
    });
}

#[test]
fn nothing_leads_out_and_nothing_but_files_is_opened() {
    let fixture = Fixture::new();
    let outside = fixture.folder.path().join("home/workspace-evil");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "secret").expect("written");
    let secret = hex(b"secret");
    symlink(&outside, fixture.at("link")).expect("linked");
    symlink(outside.join("secret"), fixture.at("leaf")).expect("linked");
    symlink("/proc/self/environ", fixture.at("environ")).expect("linked");
    rustix::fs::mknodat(CWD, fixture.at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    fs::create_dir(fixture.at("folder")).expect("made");
    for path in [
        "link/secret",
        "leaf",
        "environ",
        "pipe",
        "folder",
        "../workspace-evil/secret",
        "/etc/passwd",
        "%2e%2e/x",
        "..\\x",
        "x\0",
    ] {
        let refused = [
            fixture.workspace.read(path, 0, 10).err(),
            fixture.workspace.text(path).err(),
            fixture.workspace.put(path, Some(&secret), b"mine", Author::Board).err(),
            fixture.workspace.put(path, None, b"mine", Author::Board).err(),
            fixture.workspace.delete(path, &secret, Author::Board).err(),
            fixture.workspace.rename(path, "taken", &secret, Author::Board).err(),
            fixture.workspace.rename("taken", path, &secret, Author::Board).err(),
        ];
        assert!(refused.iter().all(Option::is_some), "{path}: {refused:?}");
    }
    assert!(fixture.workspace.list("link", 0).is_err() && fixture.workspace.list("../workspace-evil", 0).is_err());
    assert!(fixture.workspace.put("link/new", None, b"x", Author::Board).is_err());
    assert_eq!(fs::read_to_string(outside.join("secret")).expect("there"), "secret");
    assert_eq!(fs::read_dir(&outside).expect("there").count(), 1);
    assert!(!fixture.at("taken").exists());
    let others: Vec<_> = fixture.workspace.list("", 0).expect("listed").entries;
    let kinds: Vec<_> = others.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("folder", EntryKind::Folder),
            ("environ", EntryKind::Other),
            ("leaf", EntryKind::Other),
            ("link", EntryKind::Other),
            ("pipe", EntryKind::Other)
        ]
    );
}

#[test]
fn what_people_send_is_placed_over_no_link_and_instead_of_whatever_a_command_left() {
    let fixture = Fixture::new();
    let place = |path: &str| {
        let mut sent = tempfile::tempfile().expect("a file");
        sent.write_all(b"sent").and_then(|()| io::Seek::rewind(&mut sent)).expect("written");
        fixture.workspace.place_file(path, &mut sent)
    };
    place("attachments/t/m/a.txt").expect("placed");
    assert_eq!(fixture.text("attachments/t/m/a.txt"), "sent");
    let holds = |path: &str| fixture.workspace.holds(path, 4, &hex(b"sent"));
    assert!(holds("attachments/t/m/a.txt") && !holds("attachments/t/m/b.txt"));

    // The name leads elsewhere, or is a pipe that nobody reads.
    let outside = fixture.folder.path().join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("kept"), "kept").expect("written");
    symlink(outside.join("kept"), fixture.at("attachments/t/m/b.txt")).expect("a link");
    rustix::fs::mknodat(CWD, fixture.at("attachments/t/m/c.txt"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("a pipe");
    for name in ["b.txt", "c.txt"] {
        let path = format!("attachments/t/m/{name}");
        assert!(!holds(&path));
        place(&path).expect("placed");
        assert_eq!(fixture.text(&path), "sent");
    }
    assert_eq!(fs::read_to_string(outside.join("kept")).expect("there"), "kept");

    // A folder on the way leads elsewhere.
    symlink(&outside, fixture.at("attachments/u")).expect("a link");
    assert!(matches!(place("attachments/u/m/a.txt"), Err(WorkspaceError::Outside)));
    assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 1);
    // A large file of holes is not read.
    fs::File::create(fixture.at("attachments/t/m/d.txt")).and_then(|file| file.set_len(1 << 40)).expect("holes");
    assert!(!holds("attachments/t/m/d.txt"));
}

#[test]
fn a_new_name_takes_nobodys_place_also_where_the_file_system_cannot_refuse_that() {
    type Rename = fn(&OwnedFd, &str, &str) -> Result<(), Errno>;
    let ways: [Rename; 2] = [
        |folder, from, to| rename_new(folder, from, to),
        |folder, from, to| write::rename_by_second_name(folder, from, to),
    ];
    for rename in ways {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let opened = OwnedFd::from(fs::File::open(folder.path()).expect("opened"));
        fs::write(at("draft"), "mine").expect("written");
        fs::write(at("taken"), "theirs").expect("written");
        symlink(at("nowhere"), at("link")).expect("a link");
        for to in ["taken", "link"] {
            assert_eq!(rename(&opened, "draft", to), Err(Errno::EXIST), "{to}");
        }
        assert_eq!(fs::read_to_string(at("taken")).expect("there"), "theirs");
        assert!(at("link").is_symlink() && !at("nowhere").exists());
        rename(&opened, "draft", "free").expect("renamed");
        assert_eq!(fs::read_to_string(at("free")).expect("there"), "mine");
        assert!(!at("draft").exists(), "one name is left");
    }
}
