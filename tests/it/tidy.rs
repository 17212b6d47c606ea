//! The house rules that no compiler knows: which room may use which, how long a file may be, what every query names.

mod rust;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use sources::{Source, all, root};

/// Lines of a file: more does not fit in a head.
const MAX_FILE_LINES: usize = 500;

/// The Board's rooms from the ground up: a room uses rooms of lower floors and itself, nothing beside or above it.
const BOARD: &[&[&str]] = &[
    &["clock", "config", "fault", "lifecycle", "measure", "rate_limit", "secret"],
    &["domain"],
    &["artifacts", "db", "guard", "hub", "registry"],
    &["error"],
    &["state"],
    &["actions"],
    &["link", "live"],
    &["scheduler", "web"],
    &["cli", "lib", "main"],
];

/// The daemon's, in the same way.
const DAEMON: &[&[&str]] = &[
    &["clock", "fault", "removal"],
    &["sandbox"],
    &["hold", "home"],
    &["confinement", "damaged", "leftovers"],
    &["config", "outbox", "workspace"],
    &["journal", "mcp", "model", "skills", "space"],
    &["memory"],
    &["prompt", "report"],
    &["artifacts", "session_log"],
    &["tools"],
    &["engine"],
    &["task"],
    &["mesh"],
    &["adapters"],
    &["cli", "lib", "main"],
];

/// Stores' functions that take a transaction of no team, with the reason: everything else takes a `TeamTx` or a `Change`,
/// which have their team as `$1` of every statement.
const ACROSS_TEAMS: &[(&str, &str)] = &[
    ("operators::", "an account belongs to a person, not to a team"),
    ("logins::", "a device belongs to a person, not to a team"),
    ("teams::load", "finds the team itself"),
    ("teams::by_slug", "finds the team itself"),
    ("teams::all", "the console, and what the Board does for each team in turn"),
    ("teams::of_operator", "which teams a person may choose from"),
    ("teams::insert", "makes the team"),
    ("teams::unfinished", "what was begun goes on after a crash, whoever's it is"),
    ("members::of_slug", "whether a person is in the team that an address names"),
    ("members::any_owner", "decides whether the setup code lives"),
    ("invitations::by_hash", "a secret finds its team"),
    ("tokens::by_hash", "a secret finds its team"),
    ("join_tokens::redeem", "a secret finds its team"),
    ("vibers::by_credential", "a secret finds its team"),
    ("vibers::at_work", "leases, whoever's they are"),
    ("vibers::connected", "leases, whoever's they are"),
    ("vibers::teams_with_connected", "a Board that starts has heard of nobody yet, whoever's they are"),
    ("vibers::ended", "leases, whoever's they are"),
    ("vibers::stopping", "what was begun goes on after a crash, whoever's it is"),
    ("vibers::interrupting", "the same of one agent's tasks"),
    ("playbook_runs::open_of_all", "runs go on after a crash, whoever's they are"),
    ("skill_rollouts::open_of_all", "the same of rollouts of skills"),
    ("approvals::teams_with_forgotten", "questions of tasks that are over expire for each team in turn"),
    ("vibers::abandoned", "the same of revoked vibers"),
    ("vibers::teams_without_words", "the words of vibers are written for each team in turn"),
    ("audit::newest_of_teams", "a Board that starts looks at the end of each team's audit at once"),
    ("audit::unsettled", "the same: the teams for which that is not enough"),
    ("purge::sessions", "what was deleted goes on to be taken away, whoever's it was"),
    ("purge::teams", "the same of whole teams"),
    ("imports::stalled", "logs that are taken over go on after a crash, whoever asked"),
    ("idempotency::forget", "retention, the same for all teams"),
    ("sessions::next_unindexed", "the indexes of titles and of messages are kept for each team in turn"),
    ("messages::newest_before", "two teams may share their numbers in that index"),
    ("messages::merge", "on SQLite it is one index for all teams"),
    ("tasks::open_trees", "trees of tasks go on after a crash, whoever's they are"),
    ("tasks::stalled", "a queue goes on by itself, whoever's it is"),
    ("tasks::is_taken", "an id that exists under another owner is refused, whoever that is"),
    ("usage::impossible", "a check of the whole database"),
];

/// The wings of `db`, `actions`, `domain`, `web/api` and `web/pages`, from the ground up: inside `actions` none uses one
/// above it.
const WINGS: &[&str] = &["people", "fleet", "documents", "work"];

/// Modules in a folder: more than that nobody finds anything in.
const MAX_SIBLINGS: usize = 12;

#[test]
fn every_room_uses_only_the_floors_below() {
    let mut wrong = Vec::new();
    for (program, floors) in [("server", BOARD), ("daemon-agent", DAEMON)] {
        let floor = |room: &str| floors.iter().position(|rooms| rooms.contains(&room));
        for source in all().iter().filter(|source| source.is_in(&format!("{program}/src"))) {
            let room = source.room();
            let own = floor(&room).unwrap_or_else(|| panic!("{}: the room {room} has no floor in tidy", source.path));
            for used in rust::used_rooms(&source.code()) {
                if let Some(other) = floor(&used)
                    && used != room
                    && other >= own
                {
                    wrong.push(format!("{}: {room} uses {used}", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "arrows run back:\n{}", wrong.join("\n"));
}

#[test]
fn engines_and_adapters_see_no_further_than_they_need() {
    // An engine reports, an adapter goes through the mesh.
    let rules: &[(&str, &[&str])] =
        &[("engine", &["outbox", "journal", "hold"]), ("adapters", &["task", "engine", "tools"])];
    let mut wrong = Vec::new();
    for (room, unseen) in rules {
        let place = format!("daemon-agent/src/{room}");
        for source in all().iter().filter(|source| source.is_in(&place) && !source.path.ends_with("/tests.rs")) {
            let used = rust::used_rooms(&source.code());
            wrong.extend(unseen.iter().filter(|room| used.contains(**room)).map(|room| (&source.path, *room)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_floor_has_the_rooms_that_there_are() {
    for (program, floors) in [("server", BOARD), ("daemon-agent", DAEMON)] {
        let there: BTreeSet<String> =
            all().iter().filter(|source| source.is_in(&format!("{program}/src"))).map(Source::room).collect();
        let planned: BTreeSet<String> =
            floors.iter().flat_map(|rooms| rooms.iter().map(|room| (*room).to_owned())).collect();
        assert_eq!(there, planned, "{program}");
    }
}

#[test]
fn rooms_know_nothing_of_the_crafts_of_others() {
    let rules: &[(&str, &[&str])] = &[
        ("server/src/domain", &["sqlx", "axum", "tokio::fs", "std::fs", "std::net", "reqwest"]),
        ("server/src/hub", &["sqlx", "axum", "crate::db", "std::fs", "std::net"]),
        ("server/src/db", &["axum", "tower", "http::"]),
        ("server/src/registry", &["sqlx", "axum", "crate::db", "std::fs"]),
        ("server/src/web", &["sqlx", "db.write(", "db.piece("]),
        ("server/src/link", &["sqlx", "db.write(", "db.piece("]),
        ("server/src/actions", &["sqlx", "axum", "tx.row(", "tx.rows(", "tx.execute("]),
        ("server/src/live", &["sqlx", "axum", "db.write(", "db.piece("]),
        ("server/src/scheduler", &["sqlx", "axum", "db.write(", "db.piece("]),
        ("protocol/src", &["tokio", "async fn", "std::fs", "std::net", "sqlx", "axum"]),
    ];
    let mut wrong = Vec::new();
    for source in all().iter() {
        for (place, refused) in rules.iter().filter(|(place, _)| source.is_in(place)) {
            let code: String = source.code_without_tests().split_whitespace().collect();
            let found = refused.iter().filter(|word| code.contains(&word.split_whitespace().collect::<String>()));
            wrong.extend(found.map(|word| format!("{}: {place} must not know `{word}`", source.path)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_board_does_not_link_the_daemon() {
    let manifest = sources::read("server/Cargo.toml");
    assert!(!manifest.contains("daemon-agent"), "server must not depend on daemon-agent");
}

#[test]
fn every_file_is_short_says_what_it_owns_and_is_finished() {
    let unfinished = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut wrong = Vec::new();
    for source in all().iter() {
        let lines = source.text.lines().count();
        if lines > MAX_FILE_LINES && source.is_rust() {
            wrong.push(format!("{}: {lines} lines, at most {MAX_FILE_LINES}", source.path));
        }
        if source.is_rust() && !source.text.starts_with("//!") {
            wrong.push(format!("{}: does not open with `//!`", source.path));
        }
        if source.is_rust() && source.code().contains(concat!("#[", "allow")) {
            wrong.push(format!("{}: allows instead of expecting with a reason", source.path));
        }
        let mut words = source.text.split(|c: char| c != '_' && !c.is_alphanumeric());
        if let Some(word) = words.find(|word| unfinished.contains(word)) {
            wrong.push(format!("{}: contains {word}", source.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn migrations_come_in_pairs_and_in_order() {
    let names = |engine: &str| -> BTreeSet<String> {
        let folder = root().join("migrations").join(engine);
        let files = std::fs::read_dir(&folder).expect("a folder of migrations");
        files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect()
    };
    let (sqlite, postgres) = (names("sqlite"), names("postgres"));
    assert_eq!(sqlite, postgres);
    for (n, name) in sqlite.iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}_", n + 1)), "{name} is out of order");
    }
}

#[test]
fn every_query_names_its_team() {
    let mut wrong = Vec::new();
    let (mut asked, mut unused) = (0, ACROSS_TEAMS.iter().map(|known| known.0).collect::<BTreeSet<_>>());
    for source in all() {
        let wing = WINGS.iter().find(|wing| source.is_in(&format!("server/src/db/{wing}")));
        let Some(below) = wing.and_then(|wing| source.path.split_once(&format!("{wing}/"))) else { continue };
        let table = below.1.trim_end_matches(".rs").split('/').next().unwrap_or_default();
        for function in rust::functions(&source.code_without_tests()) {
            let name = format!("{table}::{}", function.name);
            let known = ACROSS_TEAMS
                .iter()
                .find(|(known, _)| name == *known || (known.ends_with("::") && name.starts_with(known)));
            if let Some((known, _)) = known {
                unused.remove(known);
                continue;
            }
            if function.body.contains("&mut Tx") {
                wrong.push(format!("{}: {name} takes a transaction of no team", source.path));
            }
            let asks = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "select!("];
            if asks.iter().any(|word| function.body.contains(word)) {
                asked += 1;
                if !function.body.contains("team_id") {
                    wrong.push(format!("{}: {name} does not name team_id", source.path));
                }
            }
        }
    }
    assert!(asked > 50, "tidy found only {asked} queries: it no longer understands the stores");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(unused.is_empty(), "nothing is called so any more: {unused:?}");
}

#[test]
fn the_wings_of_the_actions_are_a_stair() {
    let place = "server/src/actions";
    let wing_of = |path: &str| WINGS.iter().position(|wing| path.starts_with(&format!("{place}/{wing}/")));
    let mut wrong = Vec::new();
    for source in all().iter().filter(|source| source.is_in(place) && !source.path.ends_with("/tests.rs")) {
        let Some(own) = wing_of(&source.path) else { continue };
        for used in rust::used_below(&source.code_without_tests(), "actions") {
            let file = |wing: &&&str| root().join(format!("{place}/{wing}/{used}.rs")).exists();
            if let Some(above) = WINGS.iter().skip(own + 1).find(file) {
                wrong.push(format!("{}: {} uses {above}/{used}", source.path, WINGS[own]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_folder_has_too_many_siblings() {
    let mut folders = BTreeMap::<String, BTreeSet<String>>::new();
    for source in all() {
        // The rooms of a program are held by its floors.
        let Some((program, below)) = source.path.split_once("/src/").or_else(|| source.path.split_once('/')) else {
            continue;
        };
        if !["server", "daemon-agent", "templates"].contains(&program) {
            continue;
        }
        let mut folder = program.to_owned();
        for part in below.split('/') {
            let name = part.rsplit_once('.').map_or(part, |(name, _)| name);
            if name != "tests" {
                folders.entry(folder.clone()).or_default().insert(name.to_owned());
            }
            folder = format!("{folder}/{name}");
        }
    }
    folders.retain(|folder, names| names.len() > MAX_SIBLINGS && folder.contains('/'));
    assert!(folders.is_empty(), "{folders:#?}");
}

#[test]
fn a_public_name_occurs_once_in_its_crate() {
    let mut wrong = Vec::new();
    for place in ["protocol/src", "server/src", "daemon-agent/src", "tests/src"] {
        let mut seen = BTreeMap::<String, Vec<&str>>::new();
        for source in all().iter().filter(|source| source.is_in(place)) {
            for name in rust::public_types(&source.code_without_tests()) {
                seen.entry(name).or_default().push(&source.path);
            }
        }
        let repeated = seen.into_iter().filter(|(name, places)| places.len() > 1 && name != "Page");
        wrong.extend(repeated.map(|(name, places)| format!("{name}: {}", places.join(", "))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_constant_says_what_it_is_of() {
    // A word by itself that says neither subject nor unit.
    let bare = [
        "MOST", "LEAST", "PATIENCE", "TRIES", "FEW", "MANY", "SOME", "LONG", "SHORT", "LATE", "SOON", "OFTEN",
        "ENOUGH", "BUSY", "SHOWN", "ASKED", "KEPT", "TOLD", "HEARD", "WAITING", "ANSWER", "AWAY", "LONGEST", "LARGEST",
        "MAX", "MIN",
    ];
    let mut wrong = Vec::new();
    for source in all().iter().filter(|source| source.is_rust()) {
        let names = rust::constants(&source.code()).into_iter().filter(|name| bare.contains(&name.as_str()));
        wrong.extend(names.map(|name| format!("{}: {name}", source.path)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
