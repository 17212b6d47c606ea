//! A152, A153: after a break-in, everything that lets somebody in is taken back.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    person::EventStream,
    tasks::id,
    wait::SLACK,
};
use protocol::limits::close;
use serde_json::json;

use super::{kid, with_cookie};

crate::on_both_databases!(a152_a_team_takes_everything_back, a153_the_board_takes_everything_back);

const ELSEWHERE: &str = "elsewhere";

/// All of them end.
async fn all_end(streams: Vec<EventStream>) {
    for mut stream in streams {
        let ends = async { while stream.next().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(5) * SLACK, ends).await.expect("it ends");
    }
}

/// A link that makes its bearer a member.
async fn invitation(owner: &Person) -> String {
    let made = owner.post("/api/v1/invitations", &json!({"role": "viewer", "email": ""})).await.expect(201).json();
    let link = made["link"].as_str().expect("a link").to_owned();
    link[link.find("/invite/").expect("a path")..].to_owned()
}

async fn a152_a_team_takes_everything_back(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    // In both teams; and somebody of the other team alone.
    board.make_operator(ELSEWHERE, "owner@example.org", "viewer").await;
    let far = board.operator(ELSEWHERE, "far@example.org", "owner").await;
    let [program, theirs] = [board.token(HOME, "owner").await, board.token(ELSEWHERE, "owner").await];
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let [ours, others] = [invitation(&program).await, invitation(&theirs).await];
    let [join, join_others] = [board.join_token(HOME).await, board.join_token(ELSEWHERE).await];
    let task = program.submit(viber.id.as_str(), "be watched").await;
    let path = format!("/api/v1/tasks/{}/events", id(&task, "id"));
    let streams = vec![owner.stream(&path, None).await, program.stream(&path, None).await];

    let said = board.cli(&["keys", "revoke-all", "--team", HOME]).await;
    assert_eq!(said.code(), 2, "{said:?}");
    assert!(said.out.contains("1 logins of 1 people") && said.err.contains("--yes"), "{said:?}");
    owner.page("/t/home").await.expect(200);
    assert_eq!(board.cli(&["keys", "revoke-all", "--team", "nowhere", "--yes"]).await.code(), 1);

    let said = board.cli(&["keys", "revoke-all", "--team", HOME, "--yes"]).await.good();
    for told in
        ["1 logins of 1 people", "1 API tokens", "1 join tokens", "1 invitations", "not the credentials of 1 vibers"]
    {
        assert!(said.contains(told), "{told}: {said}");
    }
    all_end(streams).await;
    let cookie = owner.cookie().expect("it is still in the browser");
    for path in ["/t/home", "/t/elsewhere"] {
        with_cookie(&board, &cookie, path).await.expect(303);
    }
    assert!(with_cookie(&board, &cookie, "/login").await.body.contains("signed everybody out"));
    program.get("/api/v1/vibers").await.expect(401);
    board.anon().page(&ours).await.expect(410);
    FakeDaemon::join(&board.anon(), &join, "late").await.expect(401);
    // The other team goes on, and so does the machine.
    far.page("/t/elsewhere").await.expect(200);
    theirs.get("/api/v1/vibers").await.expect(200);
    board.anon().page(&others).await.expect(200);
    FakeDaemon::join(&board.anon(), &join_others, "there").await.expect(201);
    viber.dial().await.expect("its credential stands");
    // Whoever knows the password comes in again.
    owner.sign_in("owner@example.org", PASSWORD).await;
    let rows = board.token(HOME, "admin").await.get("/api/v1/audit?limit=200").await.expect(200).json();
    let row = rows["items"].as_array().expect("rows").iter().find(|row| row["action"] == "team.revoke_all");
    assert!(
        row.is_some_and(|row| row["detail"].as_str().is_some_and(|d| d.starts_with("1 logins, 1 API"))),
        "{rows:#}"
    );
    let said = board.cli(&["keys", "revoke-all", "--team", HOME, "--vibers", "--yes"]).await.good();
    assert!(said.contains("the credentials of 1 vibers"), "{said}");
    assert!(viber.dial().await.expect_err("it is out").to_string().contains("401"));
    board.assert_invariants().await;
}

async fn a153_the_board_takes_everything_back(engine: Engine) {
    let mut board = Board::start(engine).await;
    let setup = board.setup_path().await;
    // Nobody owns anything yet, so the link works; somebody has it.
    board.anon().page(&setup).await.expect(200);
    let viewer = board.operator(HOME, "viewer@example.org", "viewer").await;
    let far = board.operator(ELSEWHERE, "far@example.org", "viewer").await;
    let [program, theirs] = [board.token(HOME, "admin").await, board.token(ELSEWHERE, "admin").await];
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let old = kid(&viewer);
    let streams = vec![
        viewer.stream("/t/home/live?view=rail", None).await,
        far.stream("/t/elsewhere/live?view=rail", None).await,
    ];
    let said = board.cli(&["keys", "revoke-all", "--vibers", "--yes"]).await.good();
    for told in ["2 logins of 2 people", "2 API tokens", "the credentials of 1 vibers", "the running Board signs"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    all_end(streams).await;
    let closed = tokio::time::timeout(Duration::from_secs(5) * SLACK, viber.closed()).await.expect("it is closed");
    assert_eq!(closed.0, close::AUTH);
    board.anon().page(&setup).await.expect(410);
    for program in [&program, &theirs] {
        program.get("/api/v1/vibers").await.expect(401);
    }
    for person in [&viewer, &far] {
        person.page("/account").await.expect(303);
    }
    let files = board_tests::canary::files(&board.data().join("keys"));
    assert_eq!(files.len(), 1, "what was signed before counts no more: {files:?}");
    // Not even where a row were still there for it.
    assert!(board.sql("UPDATE logins SET ended_at = NULL").await >= 2);
    board.stop().await;
    board.restart().await;
    viewer.page("/account").await.expect(303);
    board.sql("UPDATE logins SET ended_at = 1").await;
    viewer.sign_in("viewer@example.org", PASSWORD).await;
    assert_ne!(kid(&viewer), old);
    for team in [HOME, ELSEWHERE] {
        let rows = board.token(team, "admin").await.get("/api/v1/audit?limit=200").await.expect(200).json();
        assert!(
            rows["items"].as_array().expect("rows").iter().any(|row| row["action"] == "team.revoke_all"),
            "{rows:#}"
        );
    }
    board.assert_invariants().await;
}
