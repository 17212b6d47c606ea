//! I7 and I8: no row of one team points into another, and the audit is whole.

use std::collections::{BTreeMap, HashSet};

use sha2::{Digest as _, Sha256};

use super::dump::{Dump, Row, is_null, number, text};

/// A row points to a row: the table, its columns, the table it points into, the columns there. A NULL or empty column
/// points nowhere.
type Reference = (&'static str, &'static [&'static str], &'static str, &'static [&'static str]);

const REFERENCES: &[Reference] = &[
    ("members", &["operator_id"], "operators", &["operator_id"]),
    ("logins", &["operator_id"], "operators", &["operator_id"]),
    ("sessions", &["team_id", "viber_id"], "vibers", &["team_id", "viber_id"]),
    ("messages", &["team_id", "session_id"], "sessions", &["team_id", "session_id"]),
    ("messages", &["team_id", "task_id"], "tasks", &["team_id", "task_id"]),
    ("parts", &["team_id", "message_id"], "messages", &["team_id", "message_id"]),
    ("indexed_texts", &["team_id", "message_id", "idx"], "parts", &["team_id", "message_id", "idx"]),
    ("indexed_texts", &["team_id", "session_id"], "sessions", &["team_id", "session_id"]),
    ("unindexed_texts", &["team_id", "message_id", "idx"], "parts", &["team_id", "message_id", "idx"]),
    ("tasks", &["team_id", "session_id"], "sessions", &["team_id", "session_id"]),
    ("tasks", &["team_id", "viber_id"], "vibers", &["team_id", "viber_id"]),
    ("tasks", &["team_id", "message_id"], "messages", &["team_id", "message_id"]),
    ("attempts", &["team_id", "task_id"], "tasks", &["team_id", "task_id"]),
    ("attempts", &["team_id", "viber_id"], "vibers", &["team_id", "viber_id"]),
    ("attempts", &["team_id", "message_id"], "messages", &["team_id", "message_id"]),
    ("events", &["team_id", "task_id", "attempt"], "attempts", &["team_id", "task_id", "attempt"]),
    ("commands", &["team_id", "viber_id"], "vibers", &["team_id", "viber_id"]),
    ("read_marks", &["team_id", "session_id"], "sessions", &["team_id", "session_id"]),
    ("contexts", &["team_id", "session_id"], "sessions", &["team_id", "session_id"]),
    ("contexts", &["team_id", "task_id"], "tasks", &["team_id", "task_id"]),
    ("imports", &["team_id", "session_id"], "sessions", &["team_id", "session_id"]),
    ("join_tokens", &["team_id", "viber_id"], "vibers", &["team_id", "viber_id"]),
];

/// What is done to these leaves a row in the audit: table, its id, the action, and the column that says that it was done.
const AUDITED: &[(&str, &str, &str, Option<&str>)] = &[
    ("vibers", "viber_id", "viber.join", None),
    ("vibers", "viber_id", "viber.revoke", Some("revoked_at")),
    ("join_tokens", "join_token_id", "join_token.create", None),
    ("join_tokens", "join_token_id", "join_token.revoke", Some("revoked_at")),
    ("api_tokens", "token_id", "token.create", None),
    ("api_tokens", "token_id", "token.revoke", Some("revoked_at")),
    ("invitations", "invitation_id", "invitation.create", None),
    ("invitations", "invitation_id", "invitation.revoke", Some("revoked_at")),
];

/// I7: every row's team is its parents' team.
pub fn consistent(dump: &Dump, wrong: &mut Vec<String>) {
    let teams: HashSet<&str> = dump.rows("teams").iter().map(|row| text(row, "team_id")).collect();
    for (table, rows) in &dump.0 {
        for row in rows.iter().filter(|row| row.contains_key("team_id")) {
            if !teams.contains(text(row, "team_id")) {
                wrong.push(format!("I7 a row of {table} is of no team: {}", text(row, "team_id")));
            }
        }
    }
    for (table, columns, into, theirs) in REFERENCES {
        let there: HashSet<Vec<String>> = dump.rows(into).iter().map(|row| key(row, theirs)).collect();
        for row in dump.rows(table) {
            let nowhere =
                columns.iter().any(|column| is_null(row, column) || row.get(*column).is_some_and(|v| v == ""));
            if !nowhere && !there.contains(&key(row, columns)) {
                wrong.push(format!("I7 {table} {:?} is in no row of {into}", key(row, columns)));
            }
        }
    }
    // A command names its task without a foreign key: the task may be deleted, but it is never another team's.
    let homes: BTreeMap<&str, &str> =
        dump.rows("tasks").iter().map(|row| (text(row, "task_id"), text(row, "team_id"))).collect();
    for row in dump.rows("commands") {
        if homes.get(text(row, "task_id")).is_some_and(|team| *team != text(row, "team_id")) {
            wrong.push(format!(
                "I7 a command of {} names {} of another team",
                text(row, "viber_id"),
                text(row, "task_id")
            ));
        }
    }
}

fn key(row: &Row, columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| row.get(*column).map(ToString::to_string).unwrap_or_default()).collect()
}

/// I8: the chain of every team holds, and what needs a row has one.
pub fn audited(dump: &Dump, wrong: &mut Vec<String>) {
    let mut chains: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in dump.rows("audit") {
        chains.entry(text(row, "team_id")).or_default().push(row);
    }
    for (team, mut rows) in chains {
        rows.sort_by_key(|row| number(row, "seq"));
        let (mut seq, mut prev, mut own) = (0, "", false);
        for row in rows {
            seq += 1;
            own |= names_a_key(row, &dump.1);
            // What came in a backup from another machine was sealed there, until the first row of this Board.
            let sealed = !own || is_sealed(row, &dump.1);
            if number(row, "seq") != seq || text(row, "prev_hash") != prev || !sealed {
                wrong.push(format!("I8 the audit of {team} breaks at {seq}"));
                break;
            }
            prev = text(row, "hash");
        }
        if !own {
            wrong.push(format!("I8 no row of the audit of {team} was sealed by this Board"));
        }
    }
    // On PostgreSQL an entry waits for its number for up to a second, or until the next start.
    let rows = dump.rows("audit").iter().chain(dump.rows("audit_pending"));
    let told: HashSet<(&str, &str)> = rows.map(|row| (text(row, "action"), text(row, "object"))).collect();
    let mut due: Vec<(&str, &str)> = Vec::new();
    for (table, id, action, when) in AUDITED {
        let done = dump.rows(table).iter().filter(|row| when.is_none_or(|when| !is_null(row, when)));
        due.extend(done.map(|row| (*action, text(row, id))));
    }
    let own = dump.rows("tasks").iter().filter(|row| text(row, "origin") == "board");
    due.extend(own.map(|row| ("task.submit", text(row, "task_id"))));
    for (action, object) in due.into_iter().filter(|one| !told.contains(one)) {
        wrong.push(format!("I8 no audit row says {action} {object}"));
    }
}

/// Whether a row has the seal that the documentation of the audit describes: the id of a key, and the HMAC-SHA256 (RFC
/// 2104) of every field with its length, one a line.
fn is_sealed(row: &Row, keys: &[Vec<u8>]) -> bool {
    let (seq, at) = (number(row, "seq").to_string(), number(row, "at").to_string());
    let fields = [
        text(row, "team_id"),
        &seq,
        &at,
        text(row, "actor"),
        text(row, "actor_name"),
        text(row, "address"),
        text(row, "action"),
        text(row, "object"),
        text(row, "detail"),
        text(row, "before_hash"),
        text(row, "after_hash"),
        text(row, "prev_hash"),
    ];
    let said = fields.map(|field| format!("{}:{field}", field.len())).join("\n");
    keys.iter().any(|key| text(row, "hash") == format!("{}.{}", key_id(key), mac(key, said.as_bytes())))
}

/// Whether a row says that one of these keys sealed it.
fn names_a_key(row: &Row, keys: &[Vec<u8>]) -> bool {
    keys.iter().any(|key| text(row, "hash").split('.').next() == Some(&key_id(key)))
}

fn key_id(key: &[u8]) -> String {
    hex(&Sha256::digest(format!("audit key id:{}", hex(key))))[..16].to_owned()
}

fn mac(key: &[u8], said: &[u8]) -> String {
    // A key longer than a block of SHA-256 counts by its hash.
    let mut block = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    block.resize(64, 0);
    let with = |pad: u8, rest: &[u8]| {
        let padded = block.iter().map(|byte| byte ^ pad).chain(rest.iter().copied()).collect::<Vec<u8>>();
        Sha256::digest(padded)
    };
    hex(&with(0x5c, &with(0x36, said)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
