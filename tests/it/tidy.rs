//! The house rules that no compiler knows: which room may use which, how long a file may be, what every query names.

mod rust;
mod sources;

use std::collections::BTreeSet;

use sources::{Source, all, root};

/// Lines of a file: more does not fit in a head.
const LONGEST: usize = 500;

/// The Board's rooms from the ground up: a room uses rooms of lower floors and itself, nothing beside or above it.
const BOARD: &[&[&str]] = &[
    &["clock", "config", "fault", "lifecycle", "measure", "secret"],
    &["domain"],
    &["artifacts", "db", "guard", "hub"],
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
    &["journal", "model", "space"],
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

/// Queries that may look across teams, with the reason: everything else takes the team first and names `team_id`.
const ACROSS_TEAMS: &[(&str, &str)] = &[
    ("board::", "facts about the Board as a whole"),
    ("copy::", "a copy of the whole database"),
    ("ownership::", "who has the whole database"),
    ("operators::", "an account belongs to a person, not to a team"),
    ("logins::", "a device belongs to a person, not to a team"),
    ("migrate::", "the schema's own tables"),
    ("teams::", "finds or makes the team itself"),
    ("members::any_owner", "decides whether the setup code lives"),
    ("purge::sessions", "what was deleted goes on to be taken away, whoever's it was"),
    ("purge::teams", "the same of whole teams"),
    ("imports::wanted", "logs that are taken over, go on after a crash, whoever asked"),
    ("vibers::stopping", "what was begun goes on after a crash, whoever's it is"),
    ("vibers::abandoned", "the same of revoked vibers"),
    ("writer::total", "rows that a connection wrote, of no table"),
    ("writer::count_counters", "a count of changes, of no team"),
    ("version::", "which state the whole database is in, not what it holds"),
    ("idempotency::forget", "retention, the same for all teams"),
    ("tasks::is_taken", "an id that exists under another owner is refused, whoever that is"),
];

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
    let unfinished = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    let mut wrong = Vec::new();
    for source in all().iter() {
        let lines = source.text.lines().count();
        if lines > LONGEST && source.is_rust() {
            wrong.push(format!("{}: {lines} lines, at most {LONGEST}", source.path));
        }
        if source.is_rust() && !source.text.starts_with("//!") {
            wrong.push(format!("{}: does not open with `//!`", source.path));
        }
        if source.is_rust() && source.code().contains(concat!("#[", "allow")) {
            wrong.push(format!("{}: allows instead of expecting with a reason", source.path));
        }
        for word in unfinished.iter().filter(|word| source.text.contains(**word)) {
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
    let mut asked = 0;
    let stores: Vec<&Source> = all().iter().filter(|source| source.is_in("server/src/db")).collect();
    for source in stores {
        let table = source.path.trim_start_matches("server/src/db/").trim_end_matches(".rs");
        let table = table.split('/').next().unwrap_or(table);
        for function in rust::functions(&source.code_without_tests()) {
            let asks = ["SELECT ", "INSERT ", "UPDATE ", "DELETE ", "select!("];
            if !asks.iter().any(|word| function.body.contains(word)) {
                continue;
            }
            asked += 1;
            let name = format!("{table}::{}", function.name);
            if ACROSS_TEAMS
                .iter()
                .any(|(known, _)| name == *known || (known.ends_with("::") && name.starts_with(known)))
            {
                continue;
            }
            if !function.body.contains("team_id") {
                wrong.push(format!("{}: {name} does not name team_id", source.path));
            }
        }
    }
    assert!(asked > 50, "tidy found only {asked} queries: it no longer understands the stores");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
