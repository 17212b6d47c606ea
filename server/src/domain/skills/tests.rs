//! Archives as people and registries make them, and what is read of them.

mod forged;
mod hints;
mod hostile;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use serde_json::json;
use std::io::{Read as _, Write as _};

use self::forged::{MAIN, TarEntry, ZipEntry, tar, zip};
use super::*;

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).expect("written");
    packed.finish().expect("packed")
}

/// A skill of these files, in which those that begin with `#!` can be executed.
pub fn bundle(files: &[(&str, &str)]) -> SkillBundle {
    let mode = |text: &str| if text.starts_with("#!") { SkillFileMode::Executable } else { SkillFileMode::Plain };
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), mode(text), text.as_bytes().to_vec()));
    SkillBundle::from_files(files).expect("a skill")
}

fn paths(bundle: &SkillBundle) -> Vec<String> {
    bundle.files().into_iter().map(|file| format!("{} {}", file.path, file.mode)).collect()
}

/// Files, and the digest that a daemon reports for a skill of these files.
const DIGEST_FILES: [(&str, &str); 4] = [
    ("SKILL.md", "---\nname: vector\ndescription: A fixed skill.\n---\nBody\n"),
    ("scripts/run.sh", "#!/bin/sh\necho hello\n"),
    ("scripts-2/a", ""),
    ("Über.txt", "\u{e4}\n"),
];
const DIGEST: &str = "b90f33966b61dd298a7b22b005f841bb539b8e9674c3aa52335a68a839f7ad2d";

#[test]
fn the_digest_is_the_one_that_daemons_compute() {
    assert_eq!(bundle(&DIGEST_FILES).digest, DIGEST);
}

#[test]
fn every_kind_of_archive_gives_the_same_skill() {
    let expected = ["SKILL.md 644", "notes/a.txt 644", "run.sh 755"];
    let entries = [("SKILL.md", MAIN, 0o644), ("run.sh", "#!/bin/sh\n", 0o755), ("notes/a.txt", "a", 0o600)];
    for prefix in ["", "tidy-notes-1.0/"] {
        let zipped: Vec<_> =
            entries.map(|(path, text, mode)| ZipEntry::file(&format!("{prefix}{path}"), text, mode)).into();
        let taped: Vec<_> =
            entries.map(|(path, text, mode)| TarEntry::file(&format!("{prefix}{path}"), text, mode)).into();
        let dotted: Vec<_> = [TarEntry::folder("./")]
            .into_iter()
            .chain(entries.map(|(path, text, mode)| TarEntry::file(&format!("./{prefix}{path}"), text, mode)))
            .collect();
        for archive in [zip(&zipped), tar(&taped), gzip(&tar(&taped)), gzip(&tar(&dotted))] {
            let read = SkillBundle::read(&archive).expect("a skill");
            assert_eq!(paths(&read), expected, "{prefix}");
            assert_eq!((read.name.as_str(), read.main.as_str()), ("tidy-notes", "SKILL.md"));
            assert_eq!(read.description, "Keeps notes tidy.");
            assert_eq!((read.size, read.text("notes/a.txt")), (MAIN.len() as u64 + 11, Some("a")));
        }
    }
}

#[test]
fn what_is_no_part_of_a_skill_is_left_out() {
    let origin = r#"{"slug": "notes", "installedVersion": "1.2.0"}"#;
    for prefix in ["", "top/"] {
        let names = ["SKILL.md", ".DS_Store", "a/.DS_Store", "._SKILL.md", ".git/config", "a/.git/hooks/x", "a/b.txt"];
        let mut entries: Vec<_> =
            names.iter().map(|name| ZipEntry::file(&format!("{prefix}{name}"), MAIN, 0o644)).collect();
        entries.push(ZipEntry::file(&format!("{prefix}.clawhub/origin.json"), origin, 0o644));
        entries.push(ZipEntry::file("__MACOSX/._SKILL.md", "x", 0o644));
        let read = SkillBundle::read(&zip(&entries)).expect("a skill");
        assert_eq!(paths(&read), ["SKILL.md 644", "a/b.txt 644"]);
        assert_eq!((read.slug.as_deref(), read.version.as_deref()), (Some("notes"), Some("1.2.0")));
    }
}

#[test]
fn the_main_file_is_found_or_missed() {
    let read = |names: &[&str]| {
        SkillBundle::read(&zip(&names.iter().map(|name| ZipEntry::file(name, MAIN, 0o644)).collect::<Vec<_>>()))
    };
    assert_eq!(read(&["skill.md", "a"]).expect("a skill").main, "skill.md");
    assert_eq!(read(&["x/skill.md"]).expect("a skill").main, "skill.md");
    assert_eq!(read(&["notes.skill.md"]).expect("a skill").main, "notes.skill.md");
    assert_eq!(read(&["x/notes.skill.md"]).expect("a skill").main, "notes.skill.md");
    for names in
        [&["a/SKILL.md", "b/SKILL.md"][..], &["x/y/SKILL.md"], &["README.md"], &["a.skill.md", "b"], &[".skill.md"]]
    {
        let bad = read(names).expect_err("no main file");
        assert!(bad.entry.is_empty() && bad.reason.contains("SKILL.md"), "{names:?}: {bad}");
    }
}

#[test]
fn a_single_file_becomes_the_folder_that_vibers_install() {
    let single = SkillBundle::read(&zip(&[ZipEntry::file("tidy.skill.md", MAIN, 0o644)])).expect("a skill");
    let folder = single.clone().in_folder();
    assert_eq!((folder.main.as_str(), paths(&folder)), ("SKILL.md", vec!["SKILL.md 644".to_owned()]));
    assert_eq!(folder.digest, bundle(&[("SKILL.md", MAIN)]).digest);
    assert_eq!(SkillBundle::from_tar(&folder.to_tar()).expect("read back").digest, folder.digest);
    assert_ne!(single.digest, folder.digest);
    for files in [&[("skill.md", MAIN)][..], &[("SKILL.md", MAIN), ("a.skill.md", "x")]] {
        let kept = bundle(files);
        assert_eq!(kept.clone().in_folder().digest, kept.digest);
    }
}

#[test]
fn the_first_record_of_a_registry_counts() {
    let record = |folder: &str, slug: &str| {
        ZipEntry::file(&format!("{folder}.clawhub/origin.json"), &format!(r#"{{"slug": "{slug}"}}"#), 0o644)
    };
    let entries = [ZipEntry::file("SKILL.md", MAIN, 0o644), record("", "first"), record("a/", "second")];
    assert_eq!(SkillBundle::read(&zip(&entries)).expect("a skill").slug.as_deref(), Some("first"));
}

#[test]
fn a_main_file_that_no_daemon_reads_is_refused() {
    let read = |text: &str| SkillBundle::read(&zip(&[ZipEntry::file("SKILL.md", text, 0o644)])).map(|read| read.name);
    for (text, reason) in [
        ("# Title\n", "line 1: expected `---`"),
        ("---\ndescription: b\n---\n", "`name`"),
        ("---\nname: a\n---\n", "`description`"),
        ("---\nname: ../a\ndescription: b\n---\n", "line 2: the name"),
        ("---\nname: a\ndescription: b\nrequires: { bins: 5 }\n---\n", "line 4: requires"),
        ("---\nname: 5\ndescription: b\n---\n", "line 2: name: expected text"),
        ("---\nname: shell\ndescription: b\n---\n", "line 2: the name \"shell\" belongs to a built-in tool"),
        ("---\nname: a\ndescription: b\nrun: perhaps\n---\n", "line 4: run: expected"),
        ("---\nname: a\ndescription: b\nparameters:\n  PATH: {}\n---\n", "line 5: the parameter \"PATH\""),
        ("---\nname: a\ndescription: b\nparameters:\n  x:\n    type: strin\n---\n", "line 6: the type of the"),
        (
            "---\nname: a\ndescription: b\nparameters:\n  x: { type: integer, default: abc }\n---\n",
            "line 5: the default of the parameter \"x\": expected an integer",
        ),
    ] {
        let bad = read(text).expect_err("a mistake");
        assert!(bad.entry == "SKILL.md" && format!("{bad}").contains(reason), "{bad}");
    }
    assert!(read(&format!("{MAIN}{}", "x".repeat(300_000))).expect_err("too large").reason.contains("256 KiB"));
    assert_eq!(read("---\nname: Agent Browser\ndescription: b: c\n---\n").as_deref(), Ok("agent-browser"));
}

#[test]
fn versions_and_permissions_are_read_from_every_form() {
    let of =
        |front: &str, body: &str| bundle(&[("SKILL.md", &format!("---\nname: a\ndescription: b\n{front}---\n{body}"))]);
    assert_eq!(of("version: 1.2\n", "").version.as_deref(), Some("1.2"));
    assert_eq!(of("metadata: { version: \"2.0.1\" }\n", "").version.as_deref(), Some("2.0.1"));
    assert_eq!(of("", "").version, None);
    let section = r#"{"requires": {"bins": ["gh"], "anyBins": ["rg", "grep"], "env": ["GH_TOKEN"]}}"#;
    for name in ["openclaw", "clawdbot", "clawdis"] {
        for front in
            [format!("metadata: {{ {name}: {section} }}\n"), format!("metadata: '{{\"{name}\": {section}}}'\n")]
        {
            let found = of(&front, "").permissions();
            assert!(found.bins == ["gh", "rg", "grep"] && found.env == ["GH_TOKEN"], "{found:?}");
        }
    }
    assert_eq!(
        of("allowed-tools: Bash(git add *) Read,Write\n", "").permissions().tools,
        ["Bash(git add *)", "Read", "Write"]
    );
    assert_eq!(of("allowed-tools: [Read, Write]\n", "").permissions().tools, ["Read", "Write"]);
    // Whether the main file itself is called.
    for (front, body, is_script) in [
        ("parameters: {}\n", "git status\n", true),
        ("parameters: {}\n", "```sh\ngit status\n```\n", true),
        ("parameters: {}\n", "```python\nx\n```\n", false),
        ("parameters: {}\nrun: instructions\n", "git status\n", false),
        ("", "git status\n", false),
    ] {
        assert_eq!(!of(front, body).permissions().scripts.is_empty(), is_script, "{front}{body}");
    }
}

#[test]
fn what_scripts_use_stands_beside_what_is_declared() {
    let main = "---\nname: a\ndescription: b\nrequires: { bins: [curl], env: [API_KEY] }\n---\nSee https://docs.example.com\n\
                ```bash\ncurl -H \"x: $API_KEY\" https://User@API.example.com:8080/v1 | jq . && gh pr list\n```\n";
    let python =
        "import os, requests\n# https://comment.example.com\nx = os.environ[\"OTHER_TOKEN\"]\nos.getenv('HOME')\n";
    let shell = "#!/usr/bin/env bash\nDB_PASSWORD=1\necho \"$DB_PASSWORD\" $GIT_TOKEN ${NPM_TOKEN:-}\n";
    let found = bundle(&[("SKILL.md", main), ("a.py", python), ("b", shell), ("data.json", "{}")]).permissions();
    let expected = json!({ "scripts": ["a.py", "b"], "network": { "used": true, "hosts": ["api.example.com"] },
        "env": ["API_KEY"], "bins": ["curl"], "tools": [],
        "undeclaredEnv": ["GIT_TOKEN", "NPM_TOKEN", "OTHER_TOKEN"], "undeclaredBins": ["gh", "jq"] });
    assert_eq!(serde_json::to_value(found).expect("JSON"), expected);
}

#[test]
fn two_versions_differ_in_permissions_and_files() {
    let old = bundle(&[("SKILL.md", MAIN), ("a.txt", "1"), ("b.txt", "1"), ("c.sh", "x"), ("d", "\0")]);
    let new = bundle(&[
        ("SKILL.md", MAIN),
        ("a.txt", "2"),
        ("c.sh", "#!/bin/sh\ncurl https://x.example.com\n"),
        ("d", "\0"),
        ("e", "x"),
    ]);
    let (before, now) = (old.permissions(), new.permissions());
    let diff = SkillDiff::between((&old, &before), (&new, &now));
    let found = serde_json::to_value(&diff).expect("JSON");
    assert_eq!(
        found["files"],
        json!([
            { "path": "SKILL.md", "change": "same", "oldMode": "644", "newMode": "644", "text": true },
            { "path": "a.txt", "change": "changed", "oldMode": "644", "newMode": "644", "text": true },
            { "path": "b.txt", "change": "removed", "oldMode": "644", "text": true },
            { "path": "c.sh", "change": "changed", "oldMode": "644", "newMode": "755", "text": true },
            { "path": "d", "change": "same", "oldMode": "644", "newMode": "644", "text": false },
            { "path": "e", "change": "added", "newMode": "644", "text": true },
        ])
    );
    let SkillDiff { permissions: PermissionChanges { added, removed }, .. } = &diff;
    assert_eq!((added.network.used, added.network.hosts.as_slice()), (true, &["x.example.com".to_owned()][..]));
    assert!(added.undeclared_bins == ["curl"] && removed.is_empty(), "{removed:?}");
    assert_eq!(
        SkillDiff::between((&new, &now), (&old, &before)).permissions,
        PermissionChanges { added: removed.clone(), removed: added.clone() }
    );
}

#[test]
fn a_long_path_is_in_the_tar_as_any_program_reads_it() {
    let long = format!("{}/{}.txt", "f".repeat(90), "n".repeat(120));
    let written = bundle(&[("SKILL.md", MAIN), (&long, "x")]).to_tar();
    let mut archive = ::tar::Archive::new(written.as_slice());
    let mut found = Vec::new();
    for entry in archive.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let (path, header) = (entry.path().expect("a path").display().to_string(), entry.header().clone());
        let mut bytes = String::new();
        entry.read_to_string(&mut bytes).expect("text");
        let numbers = [header.mtime(), header.uid(), header.gid()].map(|number| number.expect("a number"));
        found.push((path, header.mode().expect("a mode"), numbers, bytes));
    }
    assert_eq!(found, [("SKILL.md".to_owned(), 0o644, [0; 3], MAIN.to_owned()), (long, 0o644, [0; 3], "x".to_owned())]);
}

#[test]
fn every_file_is_found_in_the_tar() {
    let (long, longer) = ("n".repeat(101), format!("{}/{}", "f".repeat(250), "n".repeat(250)));
    let block = "b".repeat(512);
    let kept = bundle(&[("SKILL.md", MAIN), ("a", ""), ("b", &block), (&long, "x"), (&longer, "y"), ("z", "z")]);
    let (tar, files) = (kept.to_tar(), kept.files());
    for file in &files {
        let range = range_in_tar(&files, &file.path).expect("there");
        let [begin, end] = [range.start, range.end].map(|at| usize::try_from(at).expect("small"));
        assert_eq!(tar.get(begin..end), kept.bytes(&file.path), "{}", file.path);
    }
    assert_eq!(range_in_tar(&files, "none"), None);
}

#[test]
fn only_what_the_library_wrote_is_read_back() {
    let kept = bundle(&[("SKILL.md", MAIN), ("a", "x")]);
    let tar = kept.to_tar();
    assert_eq!(SkillBundle::from_tar(&tar).expect("read back").digest, kept.digest);
    let other = forged::tar(&[TarEntry::file("SKILL.md", MAIN, 0o644), TarEntry::file("a", "x", 0o644)]);
    assert_eq!(SkillBundle::read(&other).expect("a skill").digest, kept.digest);
    for bytes in
        [&other[..], &tar[..tar.len() - 1], &tar[..tar.len() - 1024], &gzip(&tar), &[&tar[..], &[0; 512]].concat(), b""]
    {
        assert!(SkillBundle::from_tar(bytes).is_err(), "{}", bytes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same files are the same bytes, in whatever order they come, and come back as they were.
    #[test]
    fn a_tar_is_the_same_for_the_same_files(
        files in prop::collection::btree_map("([a-z]{1,9}/){0,3}f[a-zA-Z0-9 ü-]{0,140}x", (any::<bool>(), prop::collection::vec(any::<u8>(), 0..1500)), 0..12),
    ) {
        let mode = |is_executable: bool| if is_executable { SkillFileMode::Executable } else { SkillFileMode::Plain };
        let files: Vec<_> = files.into_iter().map(|(path, (executable, bytes))| (path, mode(executable), bytes)).collect();
        let main = ("SKILL.md".to_owned(), SkillFileMode::Plain, MAIN.as_bytes().to_vec());
        let forward = SkillBundle::from_files(files.iter().cloned().chain([main.clone()]));
        let backward = SkillBundle::from_files([main].into_iter().chain(files.iter().rev().cloned()));
        // Names that only differ by case are refused either way.
        prop_assert_eq!(forward.is_ok(), backward.is_ok());
        if let (Ok(forward), Ok(backward)) = (forward, backward) {
            let tar = forward.to_tar();
            prop_assert_eq!(&tar, &backward.to_tar());
            let back = SkillBundle::from_tar(&tar).expect("read back");
            prop_assert_eq!((&back.digest, back.files()), (&forward.digest, forward.files()));
            for (path, _, bytes) in &files {
                prop_assert_eq!(back.bytes(path), Some(bytes.as_slice()));
            }
        }
    }
}
