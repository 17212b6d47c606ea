//! The path rules against hostile trees, hostile names and a concurrent renamer.

use std::{
    fs,
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
    sync::atomic::{AtomicBool, Ordering},
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A machine with a space, a workspace in a home with secrets, and things outside that nobody may reach.
struct Fixture {
    root: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["space/src", "space-evil", "home/workspace", "home/secrets", "home/state", "outside"] {
            fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for file in ["space/src/main.rs", "space-evil/x", "home/workspace/MEMORY.md", "home/agents.txt"] {
            fs::write(root.path().join(file), "inside").expect("a file");
        }
        for file in [
            "outside/secret",
            "home/secrets/openai",
            "home/config.yaml",
            "home/policy.yaml",
            "home/.env",
            "home/state/credential",
        ] {
            fs::write(root.path().join(file), "SECRET").expect("a file");
        }
        Self { root }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().canonicalize().expect("there").join(path)
    }

    fn text(&self, path: &str) -> String {
        self.at(path).display().to_string()
    }

    fn roots(&self) -> Roots {
        Roots::of(&[self.at("space")], &SharedAccess::default(), &self.at("home/workspace"), &self.at("home"))
    }
}

fn content(roots: &Roots, path: &str) -> Result<String, String> {
    let (mut file, _) = roots.read(path).map_err(|failure| failure.message)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

#[test]
fn skills_of_the_home_are_written_by_no_agent() {
    let machine = Fixture::new();
    fs::create_dir_all(machine.at("home/skills/a")).expect("a folder");
    fs::write(machine.at("home/skills/a/SKILL.md"), "inside").expect("a file");
    symlink(machine.at("home/skills"), machine.at("linked")).expect("a link");
    for space in ["home/skills", "home/skills/a", "home", "linked", "."] {
        let spaces = [machine.at(space)];
        let roots = Roots::of(&spaces, &SharedAccess::default(), &machine.at("home/workspace"), &machine.at("home"));
        for path in ["home/skills/a/SKILL.md", "home/skills/skills.lock", "home/skills/a/new", "home/skills/b/new"] {
            assert!(roots.target(&machine.text(path)).is_err(), "{space}: {path}");
        }
        assert!(!machine.at("home/skills/b").exists(), "{space}");
    }
}

#[test]
fn relative_and_absolute_paths_inside_are_read() {
    let machine = Fixture::new();
    let roots = machine.roots();
    for path in ["src/main.rs", "./src/../src/main.rs", "src//main.rs"] {
        assert_eq!(content(&roots, path).as_deref(), Ok("inside"), "{path}");
    }
    for path in ["space/src/main.rs", "space/../space/src/main.rs", "home/workspace/MEMORY.md"] {
        assert_eq!(content(&roots, &machine.text(path)).as_deref(), Ok("inside"), "{path}");
    }
    assert_eq!(roots.show(&machine.at("space/src/main.rs")), "src/main.rs");
    assert_eq!(roots.show(&machine.at("space")), ".");
}

#[test]
fn what_lies_outside_is_refused_however_it_is_written() {
    let machine = Fixture::new();
    let roots = machine.roots();
    let long = "a/".repeat(3000);
    let hostile = [
        "../outside/secret",
        "../../../../../../etc/passwd",
        "src/../../outside/secret",
        "/etc/passwd",
        "/",
        "/proc/self/environ",
        "/dev/zero",
        "%2e%2e%2foutside%2fsecret",
        "..\\outside\\secret",
        "../space-evil/x",
        "src/main.rs\0.txt",
        "",
        &long,
        "..",
        "src/main.rs/..",
        "src/main.rs/x",
        "/proc/self/root/etc/passwd",
        "~/x",
    ];
    for path in hostile.iter().map(|path| (*path).to_owned()).chain([
        machine.text("space-evil/x"),
        machine.text("outside/secret"),
        machine.text("home/secrets/openai"),
        machine.text("home/agents.txt"),
        format!("{}/../outside/secret", machine.text("space")),
        format!("{}-evil/x", machine.text("space")),
    ]) {
        assert!(content(&roots, &path).is_err(), "{path}");
    }
    assert!(content(&roots, "../outside/secret").is_err_and(|error| error.starts_with("forbidden path")));
}

#[test]
fn links_are_followed_only_while_they_stay_inside() {
    let machine = Fixture::new();
    let link = |target: &str, at: &str| symlink(target, machine.at(at)).expect("a link");
    link("src/main.rs", "space/relative");
    link(&machine.text("space/src"), "space/absolute");
    link(&machine.text("home/workspace"), "space/other-root");
    link("../outside/secret", "space/out");
    link(&machine.text("outside"), "space/out-folder");
    link("/proc/self", "space/magic");
    link("loop", "space/loop");
    link("nowhere", "space/dangling");
    let roots = machine.roots();
    for path in ["relative", "absolute/main.rs", "other-root/MEMORY.md"] {
        assert_eq!(content(&roots, path).as_deref(), Ok("inside"), "{path}");
    }
    for path in ["out", "out-folder/secret", "magic/environ", "magic/cwd/Cargo.toml", "loop", "dangling"] {
        assert!(content(&roots, path).is_err(), "{path}");
    }
    for path in ["out", "out-folder/new", "out-folder/secret", "loop", "dangling", "magic/comm"] {
        assert!(roots.target(path).is_err(), "{path}");
    }
    let target = roots.target("relative").expect("a link to a file inside");
    roots.put(&target, b"changed").expect("written");
    assert_eq!(fs::read(machine.at("space/src/main.rs")).expect("there"), b"changed");
    assert!(fs::symlink_metadata(machine.at("space/relative")).expect("there").is_symlink());
}

#[test]
fn pipes_and_devices_are_never_opened() {
    let machine = Fixture::new();
    let fifo = machine.at("space/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a pipe");
    std::os::unix::net::UnixListener::bind(machine.at("space/socket")).expect("a socket");
    let roots = machine.roots();
    for path in ["fifo", "socket"] {
        assert!(content(&roots, path).is_err_and(|error| error.contains("not a regular file")), "{path}");
        assert!(roots.target(path).is_err(), "{path}");
    }
    assert!(content(&roots, "src").is_err_and(|error| error.contains("is a folder")));
}

#[test]
fn a_space_that_holds_the_home_opens_neither_its_keys_nor_its_agents() {
    let machine = Fixture::new();
    let roots =
        Roots::of(&[machine.at("")], &SharedAccess::default(), &machine.at("home/workspace"), &machine.at("home"));
    for path in ["home/secrets/openai", "home/config.yaml", "home/.env", "home/state/credential", "home/secrets"] {
        assert!(roots.find(path).is_err(), "{path}");
        assert!(roots.target(path).is_err(), "{path}");
    }
    assert!(roots.open_folder(&machine.at("home/state")).is_err());
    assert_eq!(content(&roots, "home/agents.txt").as_deref(), Ok("inside"));
    assert!(roots.target("home/agents.txt").is_err() && roots.target("home/agents/new.yaml").is_err());
    assert!(!machine.at("home/agents").exists());
    assert!(roots.target("home/workspace/new").is_ok() && roots.target("outside/new").is_ok());
}

#[test]
fn no_space_opens_the_machines_policy() {
    let machine = Fixture::new();
    std::os::unix::fs::symlink(machine.at("home/policy.yaml"), machine.at("home/workspace/link")).expect("a link");
    for space in ["", "home"] {
        let (workspace, home) = (machine.at("home/workspace"), machine.at("home"));
        let roots = Roots::of(&[machine.at(space)], &SharedAccess::default(), &workspace, &home);
        for path in ["home/policy.yaml", "home/config.yaml", "home/agents/dev.yaml", "home/workspace/link"] {
            let path = machine.text(path);
            assert!(roots.target(&path).is_err(), "{space} {path}");
        }
        assert!(roots.target(&machine.text("home/workspace/new")).is_ok());
    }
    // One that is not there yet can be made by nobody.
    fs::remove_file(machine.at("home/policy.yaml")).expect("removed");
    let roots =
        Roots::of(&[machine.at("home")], &SharedAccess::default(), &machine.at("home/workspace"), &machine.at("home"));
    assert!(roots.target(&machine.text("home/policy.yaml")).is_err());
    assert_eq!(fs::read_to_string(machine.at("home/config.yaml")).expect("there"), "SECRET");
}

#[test]
fn a_file_is_replaced_whole_and_keeps_its_mode() {
    let machine = Fixture::new();
    let script = machine.at("space/run.sh");
    fs::write(&script, "old").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).expect("a mode");
    let roots = machine.roots();
    let target = roots.target("run.sh").expect("inside");
    roots.put(&target, b"new").expect("written");
    assert_eq!(fs::read(&script).expect("there"), b"new");
    assert_eq!(fs::metadata(&script).expect("there").permissions().mode() & 0o7777, 0o750);
    let deep = roots.target("made/on/the/way/x.txt").expect("inside");
    roots.put(&deep, b"deep").expect("written");
    assert_eq!(fs::read(machine.at("space/made/on/the/way/x.txt")).expect("there"), b"deep");
    assert_eq!(fs::read_dir(machine.at("space")).expect("there").count(), 3, "no draft is left");
}

#[test]
fn a_missing_space_is_named() {
    let machine = Fixture::new();
    let roots =
        Roots::of(&[machine.at("gone")], &SharedAccess::default(), &machine.at("home/workspace"), &machine.at("home"));
    assert!(content(&roots, "x").is_err_and(|error| error.contains("gone does not exist")));
    assert_eq!(content(&roots, &machine.text("home/workspace/MEMORY.md")).as_deref(), Ok("inside"));
}

#[test]
fn a_racing_renamer_wins_nothing() {
    let machine = Fixture::new();
    fs::create_dir(machine.at("space/door")).expect("a folder");
    fs::write(machine.at("space/door/secret"), "inside").expect("a file");
    symlink(machine.at("outside"), machine.at("space/trap")).expect("a link");
    /// Ends the renamer even if an assertion fails: the scope waits for it.
    struct RaisedOnDrop<'a>(&'a AtomicBool);
    impl Drop for RaisedOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (roots, over) = (machine.roots(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = RaisedOnDrop(&over);
        scope.spawn(|| {
            let (door, trap) = (machine.at("space/door"), machine.at("space/trap"));
            while !over.load(Ordering::Relaxed) {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &door, rustix::fs::CWD, &trap, swap).expect("swapped");
            }
        });
        let mut read = 0;
        for round in 0..4_000 {
            if let Ok(text) = content(&roots, "door/secret") {
                assert_eq!(text, "inside");
                read += 1;
            }
            let _ = content(&roots, "door/../../outside/secret").expect_err("outside");
            if round % 8 == 0
                && let Ok(target) = roots.target("door/planted")
            {
                let _ = roots.put(&target, b"planted");
            }
        }
        assert!(read > 0 && read < 4_000, "the door was open now and then");
    });
    assert!(!machine.at("outside/planted").exists());
    assert_eq!(fs::read(machine.at("outside/secret")).expect("there"), b"SECRET");
}

/// One step of a random path.
fn step() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("a"),
        Just("b"),
        Just("up"),
        Just("out"),
        Just("abs"),
        Just("in"),
        Just("proc"),
        Just(".."),
        Just("."),
        Just("f"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the path, through whatever links: what is read lies inside, and so does what is written.
    #[test]
    fn no_path_through_a_hostile_tree_leads_out(
        steps in prop::collection::vec(step(), 1..9),
        absolute: bool,
        links in prop::collection::vec((prop::sample::select(vec!["", "a/", "a/b/"]), prop::sample::select(vec![
            ("up", ".."), ("out", "../../outside"), ("in", "a"), ("proc", "/proc/self/root"), ("abs", "/"), ("b", "../.."),
        ])), 0..6),
    ) {
        let machine = Fixture::new();
        fs::create_dir_all(machine.at("space/a/b")).expect("a folder");
        for folder in ["space", "space/a", "space/a/b"] {
            fs::write(machine.at(folder).join("f"), "inside").expect("a file");
        }
        fs::write(machine.at("outside/f"), "SECRET").expect("a file");
        fs::write(machine.at("f"), "SECRET").expect("a file");
        for (folder, (name, target)) in links {
            // Two may have the same name: the first stays.
            let _ = symlink(target, machine.at("space").join(folder).join(name));
        }
        let roots = machine.roots();
        let path = steps.join("/");
        let path = if absolute { format!("{}/{path}", machine.text("space")) } else { path };
        if let Ok(text) = content(&roots, &path) {
            prop_assert_eq!(text, "inside");
        }
        if let Ok(found) = roots.find(&path) {
            prop_assert!(found.path.starts_with(machine.at("space")) || found.path.starts_with(machine.at("home/workspace")));
        }
        if let Ok(target) = roots.target(&path) {
            prop_assert!(target.path.starts_with(machine.at("space")) || target.path.starts_with(machine.at("home/workspace")));
            roots.put(&target, b"planted").expect("written");
        }
        for outside in ["outside/f", "f", "outside/secret"] {
            prop_assert_eq!(fs::read(machine.at(outside)).expect("there"), b"SECRET");
        }
    }

    #[test]
    fn any_text_at_all_is_answered(path: String) {
        let machine = Fixture::new();
        let _ = content(&machine.roots(), &path);
    }
}
