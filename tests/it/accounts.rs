//! People: the first of them, those they invite, what they may be, and how they leave. Races have one winner.

use std::collections::BTreeMap;

use board_tests::{
    Board, Engine, Person,
    board::{HOME, PASSWORD},
    person::Answer,
    programs::run,
    wait::eventually,
};
use futures_util::future::join_all;
use serde_json::json;

crate::on_both_databases!(
    one_of_twenty_takes_an_invitation,
    a_team_never_loses_its_last_owner,
    a_password_change_ends_the_other_devices,
    the_console_is_noticed_by_a_running_board,
    a_backup_comes_back,
);

fn form<'a>(name: &'a str, email: &'a str) -> [(&'a str, &'a str); 4] {
    [("name", name), ("email", email), ("password", PASSWORD), ("team", "Fernworks")]
}

/// How many answers had each status.
fn statuses(answers: &[Answer]) -> BTreeMap<u16, usize> {
    answers.iter().fold(BTreeMap::new(), |mut all, answer| {
        *all.entry(answer.status).or_default() += 1;
        all
    })
}

/// Tries with more patience than the Board has places for hashing at once.
async fn patiently(person: &Person, path: &str, fields: &[(&str, &str)]) -> Answer {
    loop {
        let answer = person.post_form(path, fields).await;
        if answer.status != 429 {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn one_of_twenty_takes_an_invitation(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let page =
        owner.post_form("/t/home/settings/invitations", &[("email", ""), ("role", "operator")]).await.expect(200);
    let at = page.body.find("/invite/vbi_").expect("the link, shown once");
    let path = page.body[at..].split('<').next().expect("a path").to_owned();
    let again = owner.page("/t/home/settings/invitations").await.expect(200);
    assert!(!again.body.contains("/invite/vbi_"), "nobody can read it again");
    let people: Vec<_> = (0..20).map(|n| (board.anon(), format!("p{n}@example.org"))).collect();
    let tries = people.iter().map(|(person, email)| async { patiently(person, &path, &form("P", email)).await });
    let answers = join_all(tries).await;
    assert_eq!(statuses(&answers), [(303, 1), (410, 19)].into());
    let members = owner.get("/api/v1/members").await.expect(200).json();
    assert_eq!(members["items"].as_array().expect("members").len(), 2);
    // Somebody with an account takes one by signing in first.
    board.make_operator("elsewhere", "bo@example.org", "owner").await;
    let made =
        owner.post("/api/v1/invitations", &json!({"email": "bo@example.org", "role": "viewer"})).await.expect(201);
    let at = made.body.find("/invite/vbi_").expect("the link");
    let path = made.body[at..].split('"').next().expect("a path").to_owned();
    let stranger = board.operator("elsewhere", "cy@example.org", "viewer").await;
    stranger.post_form(&path, &[]).await.expect(422);
    let bo = board.anon();
    bo.sign_in("bo@example.org", PASSWORD).await;
    assert_eq!(bo.post_form(&path, &[]).await.expect(303).header("location"), "/t/home");
    bo.page("/t/home/settings/members").await.expect(200);
    bo.page("/t/home/settings/tokens").await.expect(403);
    bo.post_form(&path, &[]).await.expect(410);
}

async fn a_team_never_loses_its_last_owner(engine: Engine) {
    let board = Board::start(engine).await;
    let (ada, bo) = (board.owner().await, board.operator(HOME, "bo@example.org", "owner").await);
    let members = ada.get("/api/v1/members").await.expect(200).json();
    let id = |email: &str| {
        let all = members["items"].as_array().expect("members");
        let member = all.iter().find(|member| member["email"] == email).expect("a member");
        member["id"].as_str().expect("an id").to_owned()
    };
    let (ada_id, bo_id) = (id("owner@example.org"), id("bo@example.org"));
    let path = |id: &str| format!("/t/home/settings/members/{id}/role");
    let (lower_ada, lower_bo) = (path(&ada_id), path(&bo_id));
    for _ in 0..10 {
        let admin = [("role", "admin")];
        let (one, two) = tokio::join!(ada.post_form(&lower_bo, &admin), bo.post_form(&lower_ada, &admin));
        // One came first; the other is told so, or is no owner any more.
        assert_eq!([&one, &two].iter().filter(|answer| answer.status == 303).count(), 1, "{one:#?}{two:#?}");
        let said = board.cli(&["operator", "list", "--team", HOME]).await.good();
        assert_eq!(said.matches("\towner\t").count(), 1, "{said}");
        for email in ["owner@example.org", "bo@example.org"] {
            board.cli(&["operator", "role", "--team", HOME, "--email", email, "--role", "owner"]).await.good();
        }
        // What the console did is known to the Board at most two seconds later.
        eventually("both are owners again", || async {
            let seen = [ada.page("/t/home/settings").await, bo.page("/t/home/settings").await];
            seen.iter().all(|page| page.body.contains(">Save<")).then_some(())
        })
        .await;
    }
    let alone = board.operator("alone", "cy@example.org", "owner").await;
    alone.post_form("/t/alone/settings/leave", &[]).await.expect(409);
    assert_ne!(board.cli(&["operator", "disable", "--email", "cy@example.org"]).await.code(), 0);
}

async fn a_password_change_ends_the_other_devices(engine: Engine) {
    let board = Board::start(engine).await;
    let desk = board.owner().await;
    let phone = board.anon();
    phone.sign_in("owner@example.org", PASSWORD).await;
    assert_ne!(desk.cookie(), phone.cookie(), "each sign-in is a login of its own");
    phone.page("/account").await.expect(200);
    desk.post_form("/account/password", &[("old", "not it at all"), ("new", "another long password")])
        .await
        .expect(422);
    desk.post_form("/account/password", &[("old", PASSWORD), ("new", "another long password")]).await.expect(303);
    phone.page("/account").await.expect(303);
    desk.page("/account").await.expect(200);
    board.anon().try_sign_in("owner@example.org", PASSWORD).await.expect(401);
    phone.sign_in("owner@example.org", "another long password").await;
    let page = desk.page("/account").await.expect(200).body;
    assert_eq!(page.matches("data-device=").count(), 2, "{page}");
    let at = page.find("/account/devices/sid_").expect("the other device");
    let path = page[at..].split('"').next().expect("a path").to_owned();
    // Nobody signs somebody else's devices out.
    let stranger = board.operator(HOME, "bo@example.org", "owner").await;
    stranger.post_form(&path, &[]).await.expect(404);
    desk.post_form(&path, &[]).await.expect(303);
    phone.page("/account").await.expect(303);
}

async fn the_console_is_noticed_by_a_running_board(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let bo = board.operator(HOME, "bo@example.org", "operator").await;
    let token = board.token(HOME, "viewer").await;
    token.get("/api/v1/vibers").await.expect(200);
    bo.page("/t/home").await.expect(200);
    board.cli(&["token", "revoke", "--team", HOME, "--name", "test viewer"]).await.good();
    board.cli(&["operator", "disable", "--email", "bo@example.org"]).await.good();
    eventually("the token is refused", || async { (token.get("/api/v1/vibers").await.status == 401).then_some(()) })
        .await;
    eventually("bo is out", || async { (bo.page("/t/home").await.status == 303).then_some(()) }).await;
    bo.try_sign_in("bo@example.org", PASSWORD).await.expect(401);
    board.cli(&["team", "suspend", "--team", HOME]).await.good();
    eventually("the team is shut", || async { (owner.page("/t/home").await.status == 403).then_some(()) }).await;
    board.cli(&["team", "suspend", "--team", HOME, "--resume"]).await.good();
    eventually("the team is open", || async { (owner.page("/t/home").await.status == 200).then_some(()) }).await;
    board.cli(&["team", "delete", "--team", HOME, "--yes"]).await.good();
    eventually("the team is gone", || async { (owner.page("/t/home").await.status == 404).then_some(()) }).await;
    board.cli(&["doctor"]).await.good();
}

async fn a_backup_comes_back(engine: Engine) {
    let mut board = Board::start(engine).await;
    board.owner().await;
    let copy = board.data().join("copy");
    let path = copy.to_str().expect("text").to_owned();
    board.cli(&["backup", &path]).await.good();
    use std::os::unix::fs::MetadataExt as _;
    assert_eq!(std::fs::metadata(&copy).expect("a file").mode() & 0o777, 0o600);
    assert_ne!(board.cli(&["backup", &path]).await.code(), 0, "nothing is written over");
    board.make_operator(HOME, "later@example.org", "viewer").await;
    assert_ne!(board.cli(&["restore", &path, "--replace"]).await.code(), 0, "a Board serves");
    board.stop().await;
    assert_ne!(board.cli(&["restore", &path]).await.code(), 0, "there is something in it");
    board.cli(&["restore", &path, "--replace"]).await.good();
    let said = board.cli(&["operator", "list", "--team", HOME]).await.good();
    assert!(said.contains("owner@example.org") && !said.contains("later@example.org"), "{said}");
    board.restart().await;
    board.anon().sign_in("owner@example.org", PASSWORD).await;
    // Half a backup is none.
    let bytes = std::fs::read(&copy).expect("the copy");
    std::fs::write(&copy, &bytes[..bytes.len() / 2]).expect("half of it");
    board.stop().await;
    assert_ne!(board.cli(&["restore", &path, "--replace"]).await.code(), 0);
    assert!(board.cli(&["operator", "list", "--team", HOME]).await.good().contains("owner@example.org"));
}

#[tokio::test]
async fn bad_configuration_is_refused_before_anything_listens() {
    let board = Board::prepare(Engine::Sqlite, &[]).await;
    let serve = |args: &[&str]| {
        let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0"].iter().chain(args).copied().collect();
        run(board.command(&args), "")
    };
    assert_eq!(serve(&["--listen", "0.0.0.0:0"]).await.code(), 2, "a flag given twice is a matter of usage");
    assert_eq!(run(board.command(&["serve", "--listen", "0.0.0.0:0"]), "").await.code(), 78);
    assert_eq!(run(board.command(&["serve", "--no-such-flag"]), "").await.code(), 2);
    std::fs::write(board.data().join("config.yaml"), "listen: 127.0.0.1:0\nlisten-on: x\n").expect("a file");
    let said = serve(&[]).await;
    assert_eq!(said.code(), 78, "{said:?}");
    assert!(said.err.contains("listen-on"), "{said:?}");
}
