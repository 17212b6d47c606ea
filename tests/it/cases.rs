//! The register of cases: every number in these lists has a test whose name begins with it, or a reason why not yet.
//!
//! `F` numbers are faults (a crash, a full disk, a broken network), `A` numbers attacks. ARCHITECTURE.md says in *The ten
//! promises* what they prove. A number is never given again, so numbers of cases that were dropped are missing.

use std::collections::{BTreeMap, BTreeSet};

use board_tests::programs::root;

/// The fault cases, as ranges: first and last number.
const FAULTS: &[(u32, u32)] = &[
    (1, 4),
    (6, 7),
    (11, 11),
    (13, 16),
    (18, 27),
    (29, 37),
    (39, 41),
    (43, 45),
    (47, 51),
    (53, 54),
    (56, 56),
    (62, 63),
    (66, 71),
    (76, 94),
];

/// The attack cases, as ranges: first and last number.
const ATTACKS: &[(u32, u32)] = &[
    (1, 6),
    (8, 12),
    (14, 16),
    (18, 23),
    (25, 29),
    (31, 38),
    (40, 41),
    (43, 47),
    (49, 53),
    (55, 57),
    (59, 61),
    (63, 69),
    (71, 74),
    (77, 78),
    (80, 81),
    (83, 83),
    (85, 96),
    (99, 112),
    (120, 136),
    (138, 141),
    (146, 176),
    (181, 184),
];

/// Numbers without a test, because what they are about does not exist yet.
const ABSENT: &[(&str, &str)] = &[];

/// `f01`, `a100` and so on.
fn due() -> BTreeSet<String> {
    let all = |letter: char, stretches: &'static [(u32, u32)]| {
        stretches.iter().flat_map(move |(first, last)| (*first..=*last).map(move |n| format!("{letter}{n:02}")))
    };
    all('f', FAULTS).chain(all('a', ATTACKS)).collect()
}

/// The number that a function's name begins with: `f01_…`, `a100_…`.
fn number(name: &str) -> Option<String> {
    let (number, _) = name.split_once('_')?;
    let digits = number.strip_prefix(['f', 'a'])?;
    (digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| number.to_owned())
}

/// The functions of a file that bear a number; `make test` leaves out what lies in a module `long`.
fn functions(text: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    // The indentation at which a module `long` ends.
    let mut long: Option<usize> = None;
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        match long {
            Some(end) if indent == end && code.starts_with('}') => long = None,
            Some(_) => {}
            None if code == "mod long {" => long = Some(indent),
            None => {
                let code = code.strip_prefix("async ").unwrap_or(code);
                let name = code.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
                found.extend(name.and_then(|name| Some((number(name)?, name))));
            }
        }
    }
    found
}

#[test]
fn every_case_has_its_test() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in ["tests/it", "server/src", "daemon-agent/src"] {
        for file in board_tests::canary::files(&root().join(folder)) {
            let long = file.components().any(|part| part.as_os_str() == "long") || file.ends_with("long.rs");
            if long || file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&file).expect("a source");
            for (number, name) in functions(&text) {
                found.entry(number).or_default().push(format!("{}: {name}", file.display()));
            }
        }
    }
    let due = due();
    let absent: BTreeSet<String> = ABSENT.iter().map(|(number, _)| (*number).to_owned()).collect();
    let missing: Vec<&String> =
        due.iter().filter(|number| !found.contains_key(*number) && !absent.contains(*number)).collect();
    assert!(missing.is_empty(), "no test bears the number of these cases: {missing:?}");
    let there: Vec<&String> = absent.iter().filter(|number| found.contains_key(*number)).collect();
    assert!(there.is_empty(), "these have a test by now; take them off the list: {there:?}");
    let strange: Vec<&String> = absent.difference(&due).collect();
    assert!(strange.is_empty(), "nobody asked for these: {strange:?}");
}

#[test]
fn the_register_reads_names() {
    let text = "async fn f01_a(e: Engine) {}\n    fn a100_b() {}\nfn about_it() {}\nmod long {\n    fn f02_c() {}\n}\nfn f03_d() {}";
    let numbers: Vec<String> = functions(text).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, ["f01", "a100", "f03"]);
    assert_eq!((due().len(), due().contains("f53"), due().contains("a99")), (71 + 149, true, true));
}
