//! The file of known models: what it keeps, what it forgets, and what damages it.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;

fn home() -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::at(folder.path().join("home"));
    home.open().expect("a home");
    (folder, home)
}

const MODEL: (&str, &str) = ("acme/m1", "https://user:secret@acme.test/v1/?key=secret");

#[test]
fn what_was_found_out_is_kept_without_secrets() {
    let (_folder, home) = home();
    let learnt = LearntWindow { at: Instant(5), tokens: 8_192 };
    KnownModels::change(&home, MODEL, Instant(5), |known| known.learnt = Some(learnt)).expect("written");
    let known = KnownModels::read(&home);
    assert_eq!(known.find("acme/m1", "https://acme.test/v1").expect("known").learnt, Some(learnt));
    assert_eq!(known.find("acme/m1", "https://acme.test/v2"), None, "another address");
    assert!(!fs::read_to_string(home.models()).expect("there").contains("secret"));
    assert_eq!(fs::metadata(home.models()).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn models_that_were_used_longest_ago_are_forgotten() {
    let (_folder, home) = home();
    for n in 0..MAX_MODELS + 5 {
        KnownModels::change(&home, (&format!("acme/m{n}"), "http://a.test"), Instant(0), |_| {}).expect("written");
        KnownModels::change(&home, ("acme/m0", "http://a.test"), Instant(0), |_| {}).expect("written");
    }
    let known = KnownModels::read(&home);
    assert_eq!(known.models.len(), MAX_MODELS);
    let is_known = |name: &str| known.find(name, "http://a.test").is_some();
    assert!(is_known("acme/m0") && is_known("acme/m68") && !is_known("acme/m1"));
}

#[test]
fn a_damaged_file_is_set_aside_and_begun_anew() {
    let (_folder, home) = home();
    for damage in ["", "{", "[]", r#"{"models":[{"model":7}]}"#, "\0\0\0"] {
        fs::write(home.models(), damage).expect("written");
        assert!(KnownModels::read(&home).find(MODEL.0, MODEL.1).is_none());
        KnownModels::change(&home, MODEL, Instant(7), |known| known.compare(100, 90)).expect("written");
        assert_eq!(KnownModels::read(&home).find(MODEL.0, MODEL.1).expect("known").estimate_percent(), 90);
    }
    assert_eq!(damaged::list(&home).len(), 5);
    fs::remove_file(home.models()).expect("removed");
    fs::create_dir(home.models()).expect("a folder in its place");
    KnownModels::change(&home, MODEL, Instant(8), |_| {}).expect("written");
}

#[test]
fn the_factor_is_smoothed_and_bounded() {
    let (_folder, home) = home();
    let compare = |estimated, counted| {
        let change = |known: &mut KnownModel| known.compare(estimated, counted);
        KnownModels::change(&home, MODEL, Instant(0), change).expect("written").estimate_percent()
    };
    assert_eq!((compare(1_000, 1_200), compare(1_000, 1_000)), (120, 116));
    assert_eq!((0..40).fold(0, |_, _| compare(1_000, 9_000)), 198);
    assert_eq!(compare(1_000, u64::MAX), 198);
    assert_eq!((0..40).fold(0, |_, _| compare(0, 0)), 52);
    let by_hand = fs::read_to_string(home.models())
        .expect("there")
        .replace("\"estimatePercent\": 52", "\"estimatePercent\": 9000");
    fs::write(home.models(), by_hand).expect("written");
    assert_eq!(KnownModels::read(&home).find(MODEL.0, MODEL.1).expect("known").estimate_percent(), 200);
}
