//! A93: cursors, limits and seqs that nobody gave out.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use board_tests::{Answer, Engine, Person, board::HOME, person::escape};
use reqwest::Method;
use serde_json::{Value, json};

use super::{World, patiently};

crate::on_both_databases!(
    a93_a_cursor_or_limit_that_was_made_up_is_refused_or_harmless,
    a93_a_seq_that_was_made_up_is_refused_or_harmless,
);

const LISTS: [&str; 7] = ["vibers", "sessions", "tasks", "members", "invitations", "tokens", "audit"];

/// Numbers that are none, too large, or on the edge of what a database holds.
const NUMBERS: [&str; 22] = [
    "0",
    "-0",
    "-1",
    "+1",
    "1.5",
    "1e3",
    "0x10",
    "1 ",
    " 1",
    "१",
    "NaN",
    "Infinity",
    "null",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "99999999999999999999999999",
    "1;1",
];

async fn ask(program: &Person, path: &str) -> Answer {
    whole(patiently(program.request(Method::GET, path)).await).await
}

/// What a stream says until its end.
async fn follow(program: &Person, path: &str, last: &str) -> String {
    let request = program.request(Method::GET, path).header("accept", "text/event-stream");
    whole(patiently(request.header("last-event-id", last)).await).await.body
}

async fn whole(answer: reqwest::Response) -> Answer {
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    Answer { status, headers, body: answer.text().await.expect("a body") }
}

async fn a93_a_cursor_or_limit_that_was_made_up_is_refused_or_harmless(engine: Engine) {
    let world = World::make(engine).await;
    let program = &world.program;
    // Each list has a program of its own, for each has its pace.
    let mut programs = Vec::new();
    for _ in LISTS {
        programs.push(world.fixture.board.token(HOME, "owner").await);
    }
    // A second one of everything, so that lists have a second page.
    for n in 0..3 {
        program.submit(world.fixture.viber.id.as_str(), &format!("goal {n}")).await;
        program.post("/api/v1/tokens", &json!({"name": format!("t{n}"), "role": "viewer"})).await.expect(201);
        program.post("/api/v1/invitations", &json!({"email": "", "role": "viewer"})).await.expect(201);
    }
    board_tests::FakeDaemon::enrol(&world.fixture.board, "other").await;

    for (n, (list, program)) in LISTS.iter().zip(&programs).enumerate() {
        let path = format!("/api/v1/{list}");
        // One list sees all of them, the others each a share.
        let share = NUMBERS.iter().skip(n).step_by(if n == 0 { 1 } else { LISTS.len() });
        for limit in share.copied().chain(["201", "1000000000", "", "10", "all"]) {
            let answer = ask(program, &format!("{path}?limit={}", escape(limit))).await;
            if limit == "10" {
                assert_eq!(answer.status, 200, "{list}");
            } else {
                assert_eq!(answer.expect(422).code(), "bad_limit", "{list} limit={limit}");
            }
        }
        for query in
            ["limit=1&limit=200", "cursor=a&cursor=b", "limit[]=5", "offset=5", "page=2", "sort=id", "order=asc"]
        {
            assert_eq!(
                ask(program, &format!("{path}?{query}")).await.expect(422).code(),
                "bad_query",
                "{list} {query}"
            );
        }
    }

    // A cursor is good in its own list, as it is. Each byte changed makes another place or none, never an error of ours.
    let mut cursors = Vec::new();
    for list in LISTS {
        let page = ask(program, &format!("/api/v1/{list}?limit=1")).await.expect(200).json();
        cursors.push((list, page["next"].as_str().unwrap_or_else(|| panic!("{list} has one page: {page}")).to_owned()));
    }
    for ((list, cursor), program) in cursors.iter().zip(&programs) {
        let path = format!("/api/v1/{list}");
        let whole = ask(program, &format!("{path}?limit=200")).await.expect(200).json();
        let next = ask(program, &format!("{path}?limit=200&cursor={cursor}")).await.expect(200).json();
        let rest = &whole["items"].as_array().expect("items")[1..];
        // The audit grows by nothing here: reading is not written down.
        assert_eq!(next["items"].as_array().expect("items"), rest, "{list}");
        for (other, foreign) in &cursors {
            if other != list {
                let answer = ask(program, &format!("{path}?cursor={foreign}")).await;
                assert_eq!(answer.expect(422).code(), "bad_cursor", "{other}'s cursor in {list}");
            }
        }
        for at in (0..cursor.len()).step_by(5) {
            let mut changed = cursor.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            let answer = ask(program, &format!("{path}?cursor={changed}")).await;
            assert!([200, 422].contains(&answer.status), "{list} {changed}: {answer:#?}");
            within(list, &answer.body, &whole);
        }
    }
    let forged = |kind: &str, fields: &[&str]| {
        let text = std::iter::once(kind).chain(fields.iter().copied()).collect::<Vec<_>>().join("\u{1f}");
        BASE64_URL_SAFE_NO_PAD.encode(text)
    };
    for (list, program) in LISTS.iter().zip(&programs) {
        let whole = ask(program, &format!("/api/v1/{list}?limit=200")).await.expect(200).json();
        let mut made: Vec<String> = vec![
            String::new(),
            "=".into(),
            "%00".into(),
            "%FF%FE".into(),
            "null".into(),
            "A".repeat(600),
            "A".repeat(20_000),
            forged(list, &[]),
            forged(list, &["", ""]),
            forged(list, &["' OR 1=1--"]),
            forged(list, &["\0", "\0"]),
            forged("", &["x"]),
            BASE64_URL_SAFE_NO_PAD.encode([0xff, 0xfe, 0x1f, 0x00]),
        ];
        for number in NUMBERS.iter().copied().step_by(2) {
            let known = whole["items"][0]["id"].as_str().unwrap_or("x");
            made.extend([forged(list, &[number]), forged(list, &[number, known]), forged(list, &[known, number])]);
        }
        for cursor in made {
            let answer = ask(program, &format!("/api/v1/{list}?limit=200&cursor={cursor}")).await;
            assert!([200, 414, 422].contains(&answer.status), "{list} {cursor}: {answer:#?}");
            within(list, &answer.body, &whole);
        }
    }

    world.fixture.board.assert_invariants().await;
}

async fn a93_a_seq_that_was_made_up_is_refused_or_harmless(engine: Engine) {
    let world = World::make(engine).await;
    let program = &world.program;
    let (session, task) = (world.fixture.session(), world.fixture.task());
    for number in NUMBERS.iter().copied().chain(["3", ""]) {
        let n = escape(number);
        for path in [
            format!("/api/v1/sessions/{session}/messages?before={n}"),
            format!("/api/v1/tasks/{task}/events?after={n}"),
            format!("/api/v1/tasks/{task}/events?after=1.{n}"),
            format!("/api/v1/tasks/{task}/events?after={n}.1"),
            format!("/api/v1/tasks/{task}/events?after={n}.{n}"),
        ] {
            let answer = ask(program, &path).await;
            assert!([200, 422].contains(&answer.status), "{path}: {answer:#?}");
        }
        for path in [
            format!("/t/home/sessions/{session}?before={n}"),
            format!("/t/home/settings/audit?before={n}"),
            format!("/t/home/sessions?after={n}"),
            format!("/t/home/sessions?after={n}.{session}"),
            format!("/t/home/sessions/{session}/messages/{n}/calls/c1"),
        ] {
            let answer = world.fixture.owner().page(&path).await;
            assert!([200, 400, 404, 422].contains(&answer.status), "{path}: {answer:#?}");
        }
        let cursor = if number.is_empty() { "x" } else { number };
        for last in [format!("1.{cursor}"), format!("{cursor}.1")] {
            if last.is_ascii() {
                let said = follow(program, &format!("/api/v1/tasks/{task}/events"), &last).await;
                let events = said.matches("\nid: ").count() + usize::from(said.starts_with("id: "));
                // Either a place that is known, or a reset and all of it.
                assert!(said.contains("event: end") && events <= 6, "{last}: {said}");
                assert!(events == 6 || !said.contains("event: reset"), "{last}: {said}");
            }
        }
        let live = format!("/t/home/live?view=session:{session}&cursor={task}:1.{n}&last={n}");
        let request = world.fixture.owner().request(Method::GET, &live).header("accept", "text/event-stream");
        let status = request.send().await.expect("an answer").status().as_u16();
        assert!([200, 400, 422].contains(&status), "{live}: {status}");
    }
    world.fixture.board.assert_invariants().await;
}

/// A list's answer holds only what the whole list holds.
fn within(list: &str, body: &str, whole: &Value) {
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{list}: {error} in {body}"));
    let Some(items) = answer["items"].as_array() else { return };
    let all = whole["items"].as_array().expect("items");
    assert!(items.len() <= all.len(), "{list}");
    let key = if list == "audit" { "seq" } else { "id" };
    for item in items {
        assert!(all.iter().any(|known| known[key] == item[key]), "{list}: {item}");
    }
}
