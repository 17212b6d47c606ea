//! A99: when the Board itself breaks, whoever asked learns that and the number of the request, and nothing else.

use board_tests::{Engine, Person, canary::Canary, person::Answer};
use reqwest::{Method, header};
use serde_json::json;

use super::World;

crate::on_both_databases!(
    a99_a_handler_that_panics_says_nothing,
    a99_a_database_that_fails_says_nothing,
    a99_a_page_that_cannot_be_made_says_nothing,
);

/// Words that tell how the Board is made, what it runs on, or what it was doing.
const TELLTALES: [&str; 21] = [
    "panicked",
    "failpoint",
    "sql",
    "SQL",
    "SELECT",
    "INSERT",
    "constraint",
    "relation",
    "trigger",
    "tasks_",
    "database is locked",
    "postgres",
    "Postgres",
    ".rs",
    "src/",
    "/root",
    "/tmp",
    "thread '",
    "backtrace",
    "axum",
    "unwrap",
];

/// A program, a person and a person's fragment ask; each asks with the canary in what it sends.
async fn ask(world: &World, canary: &Canary, method: Method, path: &str) -> Vec<Answer> {
    let secret = &canary.secret;
    let mut answers = Vec::new();
    for (accept, fragment) in [("application/json", false), ("text/html", false), ("text/html", true)] {
        let person: &Person = if path.starts_with("/api/") { &world.program } else { world.fixture.owner() };
        let mut request =
            person.request(method.clone(), &path.replace("CANARY", secret)).header(header::ACCEPT, accept);
        request = request.header(header::USER_AGENT, secret).header("x-canary", secret);
        if fragment {
            request = request.header("hx-request", "true");
        }
        if method == Method::POST && path.starts_with("/api/") {
            request = request.json(&json!({"goal": secret, "viberId": world.fixture.viber.id}));
        } else if method == Method::POST {
            let body = format!("goal={secret}&viber={}&key={secret}{}", world.fixture.viber.id, answers.len());
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        }
        answers.push(person.send(request).await);
    }
    answers
}

/// A general answer with the number under which the log has the rest.
fn says_nothing(world: &World, what: &str, canary: &Canary, answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{what}: {answer:#?}");
    let number = answer.header("x-request-id").to_owned();
    assert!(number.len() == 32 && answer.body.contains(&number), "{what}: its number is shown: {answer:#?}");
    let whole = format!("{:?}{}", answer.headers, answer.body);
    canary.not_in(what, &whole);
    // Our own pages' addresses, and what the safety headers say, are no secret.
    let said = answer.body.replace(&number, "");
    for word in TELLTALES {
        assert!(!said.contains(word), "{what} says {word:?}: {said}");
    }
    assert!(!said.contains(env!("CARGO_PKG_VERSION")), "{what} says the version: {said}");
    if answer.header("content-type").starts_with("application/problem+json") {
        let problem = answer.json();
        assert_eq!(problem["code"], if status == 503 { "unavailable" } else { "internal" }, "{what}");
        assert_eq!((&problem["requestId"], &problem["status"]), (&json!(number), &json!(status)), "{what}");
    }
    assert!(world.fixture.board.log().contains(&number), "{what}: the log has it");
}

const ADDRESSES: [&str; 5] =
    ["/api/v1/tasks", "/api/v1/sessions?title=CANARY", "/t/home", "/t/home/sessions?q=CANARY", "/t/home?goal=CANARY"];

async fn a99_a_handler_that_panics_says_nothing(engine: Engine) {
    let world = World::make(engine).await;
    let canary = Canary::new("what somebody sent");
    for word in ["failpoint web::handler", "a handler panicked"] {
        world.fixture.board.ledger().expect_in_log(word);
    }
    world.fixture.board.fail("web::handler", "return(panic)").await;
    for path in ADDRESSES {
        for answer in ask(&world, &canary, Method::GET, path).await {
            says_nothing(&world, path, &canary, &answer, 500);
        }
    }
    for path in ["/api/v1/tasks", "/t/home/tasks"] {
        for answer in ask(&world, &canary, Method::POST, path).await {
            says_nothing(&world, path, &canary, &answer, 500);
        }
    }
    world.fixture.board.heal().await;
    canary.not_in("the log", &world.fixture.board.log());
    // Nothing is poisoned by it.
    world.program.submit(world.fixture.viber.id.as_str(), "still there").await;
    world.fixture.owner().page("/t/home").await.expect(200);
    world.fixture.board.assert_invariants().await;
}

/// Runs a statement beside the Board.
async fn run(world: &World, statement: String) {
    // The database layer takes only statements that live as long as the program.
    world.fixture.board.sql(Box::leak(statement.into_boxed_str())).await;
}

async fn a99_a_database_that_fails_says_nothing(engine: Engine) {
    let world = World::make(engine).await;
    let (sent, hidden) = (Canary::new("what somebody sent"), Canary::new("what the database says"));
    let secret = &hidden.secret;
    // A change that the database refuses, in words that tell.
    match engine {
        Engine::Sqlite => {
            run(
                &world,
                format!("CREATE TRIGGER boom BEFORE INSERT ON tasks BEGIN SELECT RAISE(ABORT, '{secret}'); END"),
            )
            .await;
        }
        Engine::Postgres => {
            let body = format!("BEGIN RAISE EXCEPTION '{secret}'; END");
            run(
                &world,
                format!("CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS '{}'", body.replace('\'', "''")),
            )
            .await;
            run(&world, "CREATE TRIGGER boom BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION boom()".into()).await;
        }
    }
    for path in ["/api/v1/tasks", "/t/home/tasks"] {
        for answer in ask(&world, &sent, Method::POST, path).await {
            says_nothing(&world, path, &sent, &answer, 500);
            hidden.not_in(path, &format!("{:?}{}", answer.headers, answer.body));
        }
    }
    run(
        &world,
        if engine == Engine::Sqlite { "DROP TRIGGER boom".into() } else { "DROP TRIGGER boom ON tasks".into() },
    )
    .await;
    world.program.submit(world.fixture.viber.id.as_str(), "still there").await;

    // A table that reads do not find any more.
    run(&world, "ALTER TABLE sessions RENAME TO sessions_away".into()).await;
    for path in ["/api/v1/sessions?title=CANARY", "/t/home", "/t/home/sessions?q=CANARY"] {
        for answer in ask(&world, &sent, Method::GET, path).await {
            says_nothing(&world, path, &sent, &answer, 500);
        }
    }
    run(&world, "ALTER TABLE sessions_away RENAME TO sessions".into()).await;
    world.fixture.owner().page("/t/home/sessions").await.expect(200);

    // A commit that fails: nothing was done, and one may come again.
    world.fixture.board.fail("db::before_commit", "return(error)").await;
    for path in ["/api/v1/tasks", "/t/home/tasks"] {
        for answer in ask(&world, &sent, Method::POST, path).await {
            assert!([500, 503].contains(&answer.status), "{path}: {answer:#?}");
            if answer.status == 503 {
                assert!(answer.header("retry-after").parse::<u64>().is_ok(), "{path}: {answer:#?}");
            }
            hidden.not_in(path, &answer.body);
            // The page comes back whole, with what was typed: only a program's answer is nothing but the refusal.
            for word in TELLTALES.iter().filter(|_| path.starts_with("/api/")) {
                assert!(!answer.body.contains(word), "{path} says {word:?}: {}", answer.body);
            }
        }
    }
    world.fixture.board.heal().await;
    sent.not_in("the log", &world.fixture.board.log());
    world.program.submit(world.fixture.viber.id.as_str(), "still there").await;
    world.fixture.board.assert_invariants().await;
}

async fn a99_a_page_that_cannot_be_made_says_nothing(engine: Engine) {
    let world = World::make(engine).await;
    let canary = Canary::new("what somebody sent");
    world.fixture.board.fail("web::template", "return(error)").await;
    for path in [
        "/t/home",
        "/t/home/sessions?q=CANARY",
        "/t/home?goal=CANARY",
        "/t/home/vibers?q=CANARY",
        "/login?next=/CANARY",
    ] {
        for answer in ask(&world, &canary, Method::GET, path).await {
            // Who is signed in is sent on from the sign-in page.
            if path.starts_with("/login") && answer.status == 303 {
                continue;
            }
            says_nothing(&world, path, &canary, &answer, 500);
        }
    }
    let session = format!("/t/home/sessions/{}", world.fixture.session());
    for answer in ask(&world, &canary, Method::GET, &session).await {
        says_nothing(&world, "a session", &canary, &answer, 500);
    }
    world.fixture.board.heal().await;
    world.fixture.owner().page(&session).await.expect(200);
    canary.not_in("the log", &world.fixture.board.log());
    world.fixture.board.assert_invariants().await;
}
