//! What is installed, updated, taken away and accepted, and what a crash in between leaves.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use protocol::{SkillInfo, SkillState};
use tar::{EntryType, Header};

use super::*;
use crate::{
    home::Home,
    skills::tests::{home_with, open, write},
};

const NOW: Instant = Instant(1_700_000_000_000);

/// Adds an entry as it is said, whatever that is.
pub fn entry(archive: &mut Vec<u8>, name: &[u8], mode: u32, kind: EntryType, content: &[u8]) {
    let mut header = Header::new_gnu();
    if name.len() > 100 {
        let ended = [name, b"\0"].concat();
        entry(archive, b"././@LongLink", 0o644, EntryType::GNULongName, &ended);
    }
    let short = &name[..name.len().min(100)];
    header.as_old_mut().name[..short.len()].copy_from_slice(short);
    header.set_mode(mode);
    header.set_size(content.len() as u64);
    header.set_entry_type(kind);
    header.set_cksum();
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

/// An archive of these files.
pub fn archive_of(files: &[(&str, u32, &str)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (path, mode, content) in files {
        entry(&mut archive, path.as_bytes(), *mode, EntryType::Regular, content.as_bytes());
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

fn main_file(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Does {name}\n---\n{body}\n")
}

/// A version of the skill `tidy`, and its archive.
fn version(body: &str) -> (SkillInstall, Vec<u8>) {
    let archive = archive_of(&[
        ("SKILL.md", 0o644, &main_file("tidy", body)),
        ("scripts/deep/run.sh", 0o755, "echo run\n"),
        ("notes.md", 0o644, body),
    ]);
    let (_, digest) = archive::read(&archive).expect("a good archive");
    let wanted = SkillInstall {
        name: "tidy".to_owned(),
        digest,
        url: "/skills/tidy".to_owned(),
        agents: None,
        version: Some(body.to_owned()),
        reference: None,
    };
    (wanted, archive)
}

fn info(skills: &Skills, path: &str) -> SkillInfo {
    skills.read();
    let found = skills.report().into_iter().find(|info| info.path == path);
    found.unwrap_or_else(|| panic!("{path} is not among {:#?}", skills.report()))
}

fn install(skills: &Skills, (wanted, archive): &(SkillInstall, Vec<u8>)) -> Result<(), String> {
    skills.read();
    let archive = skills.needs_files(wanted).map_err(|why| why.to_string())?.then_some(archive.as_slice());
    let done = skills.install(wanted, archive, NOW).map_err(|why| why.to_string());
    skills.read();
    done
}

fn lock(home: &Home) -> SkillsLock {
    SkillsLock::read(home).expect("readable")
}

/// A home whose agent has all skills.
fn home_for_all() -> (tempfile::TempDir, Home) {
    home_with(&[("agents/a.yaml", "skills: [\"*\"]\n")])
}

#[test]
fn a_skill_is_installed_updated_and_taken_away_again() {
    let (_folder, home) = home_for_all();
    let (skills, _files) = open(&home);
    let (first, second) = (version("1.0.0"), version("2.0.0"));
    install(&skills, &first).expect("installed");
    let place = home.skills().join("tidy");
    let mode = |path: &str| fs::metadata(place.join(path)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("SKILL.md"), mode("scripts/deep/run.sh")), (0o644, 0o755));
    let now = info(&skills, "skills/tidy");
    assert_eq!((now.state, &now.digest, now.agents.len()), (SkillState::Ready, &first.0.digest, 1));
    assert_eq!((now.source.kind.as_str(), now.source.version.as_deref()), ("library", Some("1.0.0")));
    let second = (SkillInstall { reference: Some("tidy@2.0.0".to_owned()), ..second.0 }, second.1);
    install(&skills, &second).expect("updated");
    let now = info(&skills, "skills/tidy");
    assert_eq!((now.state, &now.digest), (SkillState::Ready, &second.0.digest));
    assert_eq!((now.source.kind.as_str(), now.source.reference.as_deref()), ("clawhub", Some("tidy@2.0.0")));
    let former = FormerSkill { digest: first.0.digest.clone(), version: Some("1.0.0".to_owned()) };
    assert_eq!(lock(&home).skills["tidy"].former, Some(former));
    let kept = home.skills().join(".former/tidy");
    assert_eq!(fs::read_to_string(kept.join("notes.md")).expect("kept"), "1.0.0");
    // The same once more changes nothing, and needs no files.
    let before = fs::read(home.skills_lock()).expect("a lock");
    assert!(!skills.needs_files(&second.0).expect("looked at"));
    skills.install(&second.0, None, Instant(5)).expect("a repetition");
    assert_eq!(fs::read(home.skills_lock()).expect("a lock"), before);
    install(&skills, &first).expect("rolled back");
    assert_eq!(lock(&home).skills["tidy"].former.as_ref().map(|former| &former.digest), Some(&second.0.digest));
    skills.remove_installed("tidy").expect("removed");
    assert!(!place.exists() && lock(&home) == SkillsLock::default());
    assert_eq!(fs::read_to_string(kept.join("notes.md")).expect("kept"), "1.0.0");
    skills.read();
    assert!(skills.now().all.is_empty(), "what is kept is no skill");
    assert!(skills.remove_installed("tidy").expect_err("gone").to_string().contains("not installed"));
}

#[test]
fn what_the_owner_wrote_stays() {
    let own = main_file("tidy", "Mine");
    let (_folder, home) = home_for_all();
    write(&home, "skills/tidy/SKILL.md", &own);
    let (skills, _files) = open(&home);
    let first = version("1.0.0");
    let why = install(&skills, &first).expect_err("the owner's");
    assert!(why.contains("belongs to the owner"), "{why}");
    assert!(skills.remove_installed("tidy").is_err() && skills.remove_installed("../skills").is_err());
    assert_eq!(fs::read_to_string(home.skills().join("tidy/SKILL.md")).expect("there"), own);
    assert_eq!((info(&skills, "skills/tidy").state, lock(&home)), (SkillState::Ready, SkillsLock::default()));
    // Nor is a name taken that one of theirs has elsewhere.
    fs::rename(home.skills().join("tidy"), home.skills().join("other")).expect("moved");
    assert!(install(&skills, &first).expect_err("the owner's").contains("skills/other"));
    fs::remove_dir_all(home.skills().join("other")).expect("removed");
    // A file or a link is theirs, too.
    fs::write(home.skills().join("tidy"), "x").expect("a file");
    assert!(install(&skills, &first).expect_err("a file").contains("belongs to the owner"));
    fs::remove_file(home.skills().join("tidy")).expect("removed");
    std::os::unix::fs::symlink(home.agents(), home.skills().join("tidy")).expect("a link");
    assert!(install(&skills, &first).is_err());
    fs::remove_file(home.skills().join("tidy")).expect("removed");
    // The very same files can be taken over.
    install(&skills, &first).expect("installed");
    fs::remove_file(home.skills_lock()).expect("removed");
    assert!(!skills.needs_files(&first.0).expect("looked at"));
    install(&skills, &first).expect("taken over");
    assert_eq!(lock(&home).skills["tidy"].digest, first.0.digest);
}

#[test]
fn what_is_not_as_it_was_approved_is_refused_and_leaves_nothing() {
    let (_folder, home) = home_for_all();
    let (skills, _files) = open(&home);
    let with = |files: &[(&str, u32, &str)], name: &str| {
        let archive = archive_of(files);
        let digest = archive::read(&archive).expect("good").1;
        let (wanted, _) = version("1.0.0");
        (SkillInstall { name: name.to_owned(), digest, ..wanted }, archive)
    };
    let main = main_file("tidy", "Body");
    let (first, second) = (version("1.0.0"), version("2.0.0"));
    for (wanted, word) in [
        ((first.0, second.1), "not the one that was approved"),
        (with(&[("notes.md", 0o644, "x")], "tidy"), "no SKILL.md"),
        (with(&[("inner/SKILL.md", 0o644, &main)], "tidy"), "no SKILL.md"),
        (with(&[("SKILL.md", 0o644, &main)], "other"), "its name is tidy, not other"),
        (with(&[("SKILL.md", 0o644, "---\nname: tidy\n---\n")], "tidy"), "SKILL.md:1: expected a `description`"),
        (with(&[("SKILL.md", 0o644, &main_file("shell", "x"))], "shell"), "built-in tool"),
        (with(&[("SKILL.md", 0o644, &main)], "../tidy"), "not a skill's name"),
        (with(&[("SKILL.md", 0o644, &main)], ".former"), "not a skill's name"),
        (with(&[("SKILL.md", 0o644, &main)], ""), "not a skill's name"),
    ] {
        let why = install(&skills, &wanted).expect_err(word);
        assert!(why.contains(word), "{why}");
        assert!(skills.now().all.is_empty() && lock(&home) == SkillsLock::default(), "{word}");
    }
    // A link in place of the folder leads nowhere.
    fs::remove_dir_all(home.skills()).expect("removed");
    let elsewhere = home.root().join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    std::os::unix::fs::symlink(&elsewhere, home.skills()).expect("a link");
    assert!(install(&skills, &version("1.0.0")).is_err());
    assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0);
}

#[test]
fn an_installed_skill_that_was_changed_waits_for_a_person() {
    let (_folder, home) = home_for_all();
    let (skills, files) = open(&home);
    let first = version("1.0.0");
    install(&skills, &first).expect("installed");
    let agent = files.borrow().agent("a").expect("there").expect("good");
    let before = skills.of(&agent).find("tidy").expect("offered").clone();
    assert!(before.is_pinned && before.is_usable());
    assert!(before.load_file("notes.md").is_ok_and(|text| text.contains("1.0.0")));
    write(&home, "skills/tidy/notes.md", "Changed");
    assert!(!before.is_usable(), "before anything was read again");
    assert!(before.load_file("notes.md").expect_err("changed").contains("accepted"));
    assert!(before.load_file("SKILL.md").is_err());
    let now = info(&skills, "skills/tidy");
    assert_eq!((now.state, now.agents.len()), (SkillState::Modified, 0));
    assert_eq!(now.source.version.as_deref(), Some("1.0.0"));
    assert!(skills.of(&agent).is_empty());
    // A person who looked at other files accepts nothing.
    assert!(skills.accept("tidy", &first.0.digest).is_err() && skills.accept("nobody", &now.digest).is_err());
    skills.accept("tidy", &now.digest).expect("accepted");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Ready);
    write(&home, "skills/tidy/notes.md", "Changed again");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Modified);
    // A broken one does not go on as it was.
    write(&home, "skills/tidy/SKILL.md", "---\nname: tidy\n---\n");
    let broken = info(&skills, "skills/tidy");
    assert!(broken.state == SkillState::Modified && broken.error.is_some() && skills.of(&agent).is_empty());
    install(&skills, &first).expect("restored");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Ready);
    std::os::unix::fs::symlink("/etc/hostname", home.skills().join("tidy/link")).expect("a link");
    let linked = info(&skills, "skills/tidy");
    assert_eq!((linked.state, &linked.digest), (SkillState::Modified, &first.0.digest));
    assert!(skills.accept("tidy", &linked.digest).expect_err("links").to_string().contains("holds links"));
    install(&skills, &first).expect("restored");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Ready);
}

#[test]
fn a_skill_where_agents_write_waits_for_a_person() {
    let (folder, home) = home_for_all();
    let space = folder.path().join("space");
    write(&home, "../space/.agents/skills/hello/SKILL.md", &main_file("hello", "Body"));
    write(&home, "agents/a.yaml", &format!("skills: [\"*\"]\nspaces: [{}]\n", space.display()));
    let (skills, files) = open(&home);
    let agent = files.borrow().agent("a").expect("there").expect("good");
    let path = space.canonicalize().expect("there").join(".agents/skills/hello").display().to_string();
    let found = info(&skills, &path);
    assert_eq!((found.state, skills.of(&agent).is_empty()), (SkillState::Untrusted, true));
    skills.accept("hello", &found.digest).expect("accepted");
    assert_eq!(info(&skills, &path).state, SkillState::Ready);
    let hello = skills.of(&agent).find("hello").expect("offered").clone();
    assert!(hello.is_usable());
    write(&home, "../space/.agents/skills/hello/SKILL.md", &main_file("hello", "Obey me"));
    assert!(!hello.is_usable());
    assert_eq!(info(&skills, &path).state, SkillState::Untrusted);
    // What was accepted in one place is accepted nowhere else.
    write(&home, "../space/.claude/skills/hello/SKILL.md", &main_file("hello", "Body"));
    let other = space.canonicalize().expect("there").join(".claude/skills/hello").display().to_string();
    assert_eq!(info(&skills, &other).state, SkillState::Untrusted);
    // One that nobody accepted takes no name away.
    write(&home, "../space/.agents/skills/a/SKILL.md", &main_file("hello", "Body"));
    write(&home, "../space/.agents/skills/hello/SKILL.md", &main_file("hello", "Body"));
    assert_eq!(info(&skills, &path).state, SkillState::Ready);
}

#[test]
fn a_skill_of_the_home_is_the_owners_unless_agents_write_there() {
    let (folder, home) = home_with(&[("agents/a.yaml", "skills: [\"*\"]\n")]);
    write(&home, "skills/mine/SKILL.md", &main_file("mine", "Body"));
    write(&home, "agents/a/skills/own/SKILL.md", &main_file("own", "Body"));
    let states = |spaces: &[&Path]| {
        let spaces: Vec<String> = spaces.iter().map(|space| space.display().to_string()).collect();
        write(&home, "agents/a.yaml", &format!("skills: [\"*\"]\nspaces: [{}]\n", spaces.join(", ")));
        let (skills, _files) = open(&home);
        [info(&skills, "skills/mine").state, info(&skills, "agents/a/skills/own").state]
    };
    let (ready, untrusted) = (SkillState::Ready, SkillState::Untrusted);
    assert_eq!(states(&[]), [ready, ready]);
    assert_eq!(states(&[&folder.path().join("elsewhere")]), [ready, ready]);
    assert_eq!(states(&[folder.path()]), [untrusted, untrusted]);
    assert_eq!(states(&[home.root()]), [untrusted, untrusted]);
    assert_eq!(states(&[&home.skills()]), [untrusted, ready]);
    assert_eq!(states(&[&home.agents()]), [ready, untrusted]);
    fs::create_dir(home.agents().join("a/skills/own/data")).expect("made");
    assert_eq!(states(&[&home.agents().join("a/skills/own/data")]), [ready, untrusted], "a part of it");
    std::os::unix::fs::symlink(home.root(), folder.path().join("link")).expect("a link");
    assert_eq!(states(&[&folder.path().join("link/agents")]), [ready, untrusted]);
    // What was installed is pinned anyway.
    let (skills, _files) = open(&home);
    install(&skills, &version("1.0.0")).expect("installed");
    assert_eq!(states(&[home.root()]), [untrusted, untrusted]);
    let (skills, _files) = open(&home);
    assert_eq!(info(&skills, "skills/tidy").state, ready);
}

#[test]
fn a_lost_lock_makes_nothing_the_owners() {
    let (_folder, home) = home_for_all();
    let (skills, _files) = open(&home);
    let (first, second) = (version("1.0.0"), version("2.0.0"));
    install(&skills, &first).expect("installed");
    write(&home, "skills/tidy/notes.md", "Changed");
    let garble = |path: &Path| fs::write(path, "garbled").expect("written");
    garble(&home.skills_lock());
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Modified, "its copy says so");
    garble(&home.skills_lock());
    garble(&home.skills_lock_copy());
    let lost = info(&skills, "skills/tidy");
    assert_eq!(lost.state, SkillState::Modified);
    // Nor is it known what may be replaced or removed.
    assert!(install(&skills, &second).expect_err("unknown").contains("skills.lock was lost"));
    assert!(skills.remove_installed("tidy").is_err());
    skills.accept("tidy", &lost.digest).expect("accepted");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Ready);
    // The very same files are the library's again.
    write(&home, "skills/tidy/notes.md", "1.0.0");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Modified);
    install(&skills, &first).expect("taken over");
    assert_eq!(info(&skills, "skills/tidy").state, SkillState::Ready);
    install(&skills, &second).expect("updated");
}

/// What a kill may leave of an update, by hand.
#[test]
fn an_interrupted_change_is_finished_by_its_repetition() {
    let (first, second) = (version("1.0.0"), version("2.0.0"));
    let files = archive::read(&second.1).expect("good").0;
    let interruptions: [&dyn Fn(&Home, &SkillsFolder); 6] = [
        &|home, _| {
            let half = home.skills().join(".former/.stage/scripts");
            fs::create_dir_all(&half).expect("made");
            fs::write(half.join("half"), "x").expect("written");
        },
        &|_, folder| drop(folder.stage(&files).expect("staged")),
        &|home, folder| {
            folder.stage(&files).expect("staged");
            fs::rename(home.skills().join(".former/.stage"), home.skills().join(".former/tidy")).expect("moved");
        },
        &|_, folder| {
            folder.stage(&files).expect("staged");
            folder.put_in_place("tidy").expect("in place");
        },
        // Where folders cannot be exchanged.
        &|home, folder| {
            folder.stage(&files).expect("staged");
            fs::rename(home.skills().join("tidy"), home.skills().join(".former/tidy")).expect("moved");
        },
        &|home, _| fs::remove_dir_all(home.skills().join("tidy")).expect("removed"),
    ];
    for (n, interrupt) in interruptions.iter().enumerate() {
        let (_folder, home) = home_for_all();
        let (skills, _files) = open(&home);
        install(&skills, &first).expect("installed");
        interrupt(&home, &SkillsFolder::open(&home).expect("open"));
        skills.read();
        let between: Vec<SkillState> = skills.now().all.iter().map(|skill| skill.state).collect();
        assert!(between.len() <= 1 && between.iter().all(|state| *state != SkillState::Error), "{n}: {between:?}");
        install(&skills, &second).expect("repeated");
        let now = info(&skills, "skills/tidy");
        assert_eq!((now.state, &now.digest), (SkillState::Ready, &second.0.digest), "{n}");
        assert_eq!(skills.now().all.len(), 1, "{n}");
        let known = lock(&home);
        let former = known.skills["tidy"].former.clone();
        let expected = FormerSkill { digest: first.0.digest.clone(), version: Some("1.0.0".to_owned()) };
        assert_eq!(former, (n < 5).then_some(expected), "{n}");
        assert!(!home.skills().join(".former/.stage").exists(), "{n}");
        // And taking away, half done.
        fs::rename(home.skills().join("tidy"), home.skills().join(".former/x")).expect("moved");
        skills.remove_installed("tidy").expect("removed");
        assert_eq!(lock(&home), SkillsLock::default(), "{n}");
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn wherever_a_change_fails_it_can_be_made_again() {
    let _scenario = fail::FailScenario::setup();
    let (first, second) = (version("1.0.0"), version("2.0.0"));
    for point in [
        "skills::staging",
        "skills::staged",
        "skills::before_exchange",
        "skills::after_exchange",
        "skills::before_lock",
    ] {
        let (_folder, home) = home_for_all();
        let (skills, _files) = open(&home);
        install(&skills, &first).expect("installed");
        fail::cfg(point, "return(error)").expect("a failpoint");
        assert!(install(&skills, &second).is_err(), "{point}");
        let state = info(&skills, "skills/tidy").state;
        // Nothing is offered that is neither the one nor the other.
        assert!(matches!(state, SkillState::Ready | SkillState::Modified), "{point}: {state:?}");
        fail::remove(point);
        install(&skills, &second).expect("repeated");
        assert_eq!(info(&skills, "skills/tidy").digest, second.0.digest, "{point}");
        assert_eq!(lock(&home).skills["tidy"].digest, second.0.digest, "{point}");
    }
    for point in ["skills::taken_away", "skills::before_lock"] {
        let (_folder, home) = home_for_all();
        let (skills, _files) = open(&home);
        install(&skills, &first).expect("installed");
        fail::cfg(point, "return(error)").expect("a failpoint");
        assert!(skills.remove_installed("tidy").is_err(), "{point}");
        fail::remove(point);
        skills.remove_installed("tidy").expect("repeated");
        assert_eq!(lock(&home), SkillsLock::default(), "{point}");
    }
}

#[test]
fn a_person_reads_the_files_whatever_their_state_is() {
    let (folder, home) = home_for_all();
    let space = folder.path().join("space");
    let long = "x".repeat(200_000);
    write(&home, "../space/.agents/skills/hello/SKILL.md", &main_file("hello", "Untrusted"));
    write(&home, "../space/.agents/skills/hello/long", &long);
    write(&home, "../space/.agents/skills/hello/.git/config", "x");
    std::os::unix::fs::symlink("/etc/hostname", space.join(".agents/skills/hello/link")).expect("a link");
    write(&home, "skills/one.skill.md", &main_file("one", "Single"));
    write(&home, "secret", "SECRET");
    write(&home, "agents/a.yaml", &format!("skills: [\"*\"]\nspaces: [{}]\n", space.display()));
    let (skills, _files) = open(&home);
    let hello = skills.to_review("hello", None).expect("there");
    assert_eq!(hello.state, SkillState::Untrusted);
    let read = skills.review(&hello).expect("readable");
    let paths: Vec<_> = read.files.iter().map(|file| (file.path.as_str(), file.mode, file.size)).collect();
    assert_eq!(paths, [("SKILL.md", "644", main_file("hello", "Untrusted").len() as u64), ("long", "644", 200_000)]);
    assert_eq!(read.digest, hello.digest);
    let piece = |offset: u64| skills.review_piece(&hello, "long", offset).expect("readable");
    assert_eq!((piece(0).data.len(), piece(0).size, &piece(0).digest), (96 * 1024, 200_000, &read.digest));
    assert_eq!(
        (piece(199_999).data, piece(200_000).data.len(), piece(u64::MAX >> 2).data.len()),
        (b"x".to_vec(), 0, 0)
    );
    for path in ["link", ".git/config", "../hello/SKILL.md", "/etc/hostname", "nothing", "", "."] {
        assert!(skills.review_piece(&hello, path, 0).is_err(), "{path}");
    }
    let one = skills.to_review("one", None).expect("there");
    assert_eq!(skills.review(&one).expect("readable").files.len(), 1);
    assert!(skills.review_piece(&one, "one.skill.md", 0).is_ok() && skills.review_piece(&one, "../secret", 0).is_err());
    // Of several, the one in use, or the one that is meant.
    write(&home, "skills/hello/SKILL.md", &main_file("hello", "The owner's"));
    skills.read();
    assert_eq!(skills.to_review("hello", None).expect("there").path, "skills/hello");
    let meant = skills.to_review("hello", Some(&hello.digest)).expect("there");
    assert_eq!(meant.path, hello.path);
    assert!(skills.to_review("nobody", None).is_none());
}
