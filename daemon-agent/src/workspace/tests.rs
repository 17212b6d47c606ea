//! Files side by side with an editor, and paths that lead elsewhere.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::EntryKind;
use rustix::fs::{CWD, FileType, Mode};

use super::*;

struct Desk {
    folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Desk {
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

    fn put(&self, path: &str, base: Option<&str>, text: &str) -> Written {
        self.workspace.put(path, base, text.as_bytes(), By::Board).expect("an answer")
    }
}

#[test]
fn a_change_is_made_to_the_version_that_was_seen_alone() {
    let desk = Desk::new();
    let first = desk.put("notes/today.md", None, "one");
    assert_eq!(first, Written { state: State::Applied, hash: Some(hex(b"one")) });
    let mode = |path: &str| fs::metadata(desk.at(path)).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode("notes"), 0o700);
    fs::set_permissions(desk.at("notes/today.md"), fs::Permissions::from_mode(0o640)).expect("set");
    // Once more says the same.
    assert_eq!(desk.put("notes/today.md", None, "one"), first);
    let second = desk.put("notes/today.md", first.hash.as_deref(), "two");
    assert_eq!(
        (second.state, desk.text("notes/today.md"), mode("notes/today.md")),
        (State::Applied, "two".into(), 0o640)
    );
    assert_eq!(desk.put("notes/today.md", first.hash.as_deref(), "two").state, State::Applied, "it is so already");
    let theirs = desk.file("notes/today.md", "theirs");
    let stale = desk.put("notes/today.md", second.hash.as_deref(), "three");
    assert_eq!(stale, Written { state: State::Conflict, hash: Some(theirs) });
    assert_eq!(desk.put("notes/today.md", None, "three").state, State::Conflict, "there is one");
    assert_eq!(desk.put("gone/x.md", Some(&hex(b"x")), "y"), Written { state: State::Conflict, hash: None });
    assert_eq!((desk.text("notes/today.md"), desk.names("notes")), ("theirs".into(), vec!["today.md".into()]));
    assert!(!desk.at("gone").exists());
}

#[test]
fn an_editor_in_the_same_file_loses_nothing() {
    let desk = Desk::new();
    let mut base = desk.file("plan.md", "");
    let path = desk.at("plan.md");
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut kept, mut conflicts) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        // It replaces the file as editors do, with what it read and a line more.
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
            let (text, hash) = desk.workspace.text("plan.md").expect("readable").expect("there");
            base = hash;
            let line = format!("board {n}\n");
            match desk.put("plan.md", Some(&base), &format!("{text}{line}")).state {
                State::Applied => kept.push(line),
                State::Conflict => conflicts += 1,
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(editor.join().expect("no panic") > 0);
    });
    // The editor itself overwrites without looking: of the Board's lines only those it had read are bound to be there.
    // What must not be is a half file, or a draft that stays.
    assert!(!base.is_empty());
    assert_eq!(
        desk.text("plan.md").lines().filter(|line| !line.starts_with("editor ") && !line.starts_with("board ")).count(),
        0
    );
    assert!(desk.names("").iter().all(|name| name == "plan.md" || name == "plan.swp"), "{:?}", desk.names(""));
    assert_eq!(kept.len() + conflicts, 200);
}

#[test]
fn a_deleted_file_waits_in_the_trash_and_comes_back_by_its_name() {
    let desk = Desk::new();
    let hash = desk.file("a/b.md", "text");
    let delete = |base: &str| desk.workspace.delete("a/b.md", base, By::Board).expect("an answer");
    assert_eq!(delete(&hex(b"other")), Written { state: State::Conflict, hash: Some(hash.clone()) });
    assert_eq!(delete(&hash), Written { state: State::Applied, hash: None });
    assert_eq!(delete(&hash).state, State::Applied, "it is gone already");
    assert!(!desk.at("a/b.md").exists() && !desk.names("").contains(&TRASH.to_owned()));
    let kept = desk.names(TRASH);
    assert!(matches!(&kept[..], [name] if name.ends_with("-b.md")), "{kept:?}");
    let kept = format!("{TRASH}/{}", kept[0]);
    assert!(desk.workspace.put(&kept, Some(&hash), b"x", By::Board).is_err());
    let back = desk.workspace.rename(&kept, "c/b.md", &hash, By::Board).expect("an answer");
    assert_eq!((back.state, desk.text("c/b.md")), (State::Applied, "text".into()));
}

#[test]
fn a_new_name_takes_nobodys_place() {
    let desk = Desk::new();
    let (hash, other) = (desk.file("one.md", "1"), desk.file("two.md", "2"));
    let rename = |to: &str, base: &str| desk.workspace.rename("one.md", to, base, By::Board);
    assert_eq!(rename("three.md", &other).expect("an answer").state, State::Conflict);
    assert!(matches!(rename("two.md", &hash), Err(Refused::Name(_))));
    assert!(matches!(rename("TWO.md", &hash), Err(Refused::Name(_))), "it differs in its case alone");
    assert_eq!(rename("One.md", &hash).expect("an answer").state, State::Applied, "its own may");
    assert_eq!(desk.workspace.rename("One.md", "in/1.md", &hash, By::Board).expect("an answer").state, State::Applied);
    assert_eq!(
        desk.workspace.rename("One.md", "in/1.md", &hash, By::Board).expect("twice is once").state,
        State::Applied
    );
    assert_eq!(
        (desk.text("in/1.md"), desk.text("two.md"), desk.names("")),
        ("1".into(), "2".into(), vec!["in".into(), "two.md".into()])
    );
    assert!(matches!(desk.workspace.put("Two.md", None, b"x", By::Board), Err(Refused::Name(_))));
    assert!(matches!(desk.workspace.put("IN/2.md", None, b"x", By::Board), Err(Refused::Name(_))));
}

#[test]
fn a_large_folder_comes_in_pieces_and_a_large_file_too() {
    let desk = Desk::new();
    for n in 0..2_500 {
        desk.file(&format!("many/file {n:05}.md"), "x");
    }
    fs::create_dir(desk.at("many/zz folder")).expect("made");
    let first = desk.workspace.list("many", 0).expect("listed");
    assert_eq!((first.entries[0].name.as_str(), first.entries[0].kind), ("zz folder", EntryKind::Folder));
    let rest = desk.workspace.list("many", first.entries.len() as u64).expect("listed");
    assert_eq!((first.omitted, rest.omitted), (rest.entries.len() as u64, 0));
    assert_eq!(first.entries.len() + rest.entries.len(), 2_501);
    assert!(serde_json::to_string(&first).expect("JSON").len() < protocol::limits::MAX_FRAME - 4_096);
    let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| n as u8).collect();
    fs::write(desk.at("large.bin"), &bytes).expect("written");
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        let piece = desk.workspace.read("large.bin", got.len() as u64, u64::MAX).expect("read");
        assert_eq!((&piece.hash, piece.size), (&hex(&bytes), bytes.len() as u64));
        got.extend(BASE64_STANDARD.decode(piece.content).expect("base64"));
    }
    assert_eq!(got, bytes);
    assert!(desk.workspace.read("large.bin", u64::MAX, 5).expect("read").content.is_empty());
    assert!(matches!(desk.workspace.text("large.bin"), Err(Refused::TooLarge)));
    assert!(matches!(desk.workspace.put("x", None, &bytes, By::Board), Err(Refused::TooLarge)));
}

#[test]
fn a_hash_is_of_what_is_shown_while_a_file_grows() {
    let desk = Desk::new();
    let mut file = fs::File::create(desk.at("log.md")).expect("made");
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || (0..20_000).for_each(|_| file.write_all(b"line\n").expect("written")));
        while !writer.is_finished() {
            let piece = desk.workspace.read("log.md", 0, u64::MAX).expect("read");
            let content = BASE64_STANDARD.decode(piece.content).expect("base64");
            assert_eq!((piece.hash, piece.size), (hex(&content), content.len() as u64));
        }
    });
}

#[test]
fn nothing_leads_out_and_nothing_but_files_is_opened() {
    let desk = Desk::new();
    let outside = desk.folder.path().join("home/workspace-evil");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "secret").expect("written");
    let secret = hex(b"secret");
    symlink(&outside, desk.at("link")).expect("linked");
    symlink(outside.join("secret"), desk.at("leaf")).expect("linked");
    symlink("/proc/self/environ", desk.at("environ")).expect("linked");
    rustix::fs::mknodat(CWD, desk.at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    fs::create_dir(desk.at("folder")).expect("made");
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
            desk.workspace.read(path, 0, 10).err(),
            desk.workspace.text(path).err(),
            desk.workspace.put(path, Some(&secret), b"mine", By::Board).err(),
            desk.workspace.put(path, None, b"mine", By::Board).err(),
            desk.workspace.delete(path, &secret, By::Board).err(),
            desk.workspace.rename(path, "taken", &secret, By::Board).err(),
            desk.workspace.rename("taken", path, &secret, By::Board).err(),
        ];
        assert!(refused.iter().all(Option::is_some), "{path}: {refused:?}");
    }
    assert!(desk.workspace.list("link", 0).is_err() && desk.workspace.list("../workspace-evil", 0).is_err());
    assert!(desk.workspace.put("link/new", None, b"x", By::Board).is_err());
    assert_eq!(fs::read_to_string(outside.join("secret")).expect("there"), "secret");
    assert_eq!(fs::read_dir(&outside).expect("there").count(), 1);
    assert!(!desk.at("taken").exists());
    let others: Vec<_> = desk.workspace.list("", 0).expect("listed").entries;
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
