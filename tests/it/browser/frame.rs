//! The frame around what is not a page of its own: refusals within a team, the audit, the way back from the account; and
//! what of it comes over the wire.

use std::collections::BTreeMap;

use board_tests::{Board, Engine, Fixture, Neighbour, bench::loaded_files};
use reqwest::header;

/// The page of something that is not there.
async fn refused(person: &board_tests::Person, path: &str) -> String {
    person.page(path).await.expect(404).body
}

async fn what_is_not_there_keeps_the_rail_of_ones_team(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    let neighbour = Neighbour::of(&fixture.board).await;
    fixture.begin("A session in the rail").await;
    let owner = fixture.owner();
    let nobodys = refused(owner, "/t/home/sessions/ses_00000000000000000000000000000000").await;
    assert!(nobodys.contains(r#"id="rail-sessions""#) && nobodys.contains("A session in the rail"), "{nobodys}");
    assert!(nobodys.contains("There is nothing at this address"), "{nobodys}");
    // A foreign thing is an unknown one, to the letter; so is a path that no page has.
    let foreign = refused(owner, &format!("/t/home/vibers/{}", neighbour.viber.id)).await;
    assert_eq!(foreign, refused(owner, "/t/home/vibers/vib_00000000000000000000000000000000").await);
    assert_eq!(foreign, refused(owner, "/t/home/no/such/page").await);
    // A team that one is not in is one that does not exist, and nothing of any team is shown.
    let elsewhere = refused(owner, "/t/elsewhere").await;
    assert_eq!(elsewhere, refused(owner, "/t/nobody").await);
    assert_eq!(elsewhere, refused(owner, "/t/elsewhere/no/such/page").await);
    assert!(!elsewhere.contains("rail-sessions") && !elsewhere.contains("A session in the rail"), "{elsewhere}");
    let anon = fixture.board.anon();
    assert!(!refused(&anon, "/t/home/no/such/page").await.contains("rail-sessions"));
    fixture.board.assert_invariants().await;
}

async fn the_audit_speaks_names(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    let neighbour = Neighbour::of(&fixture.board).await;
    fixture.begin("Rotate the <b>keys</b>").await;
    let owner = fixture.owner();
    let (session, viber) = (fixture.session().to_owned(), fixture.viber_id.clone());
    owner.post_form(&format!("/t/home/sessions/{session}/rename"), &[("title", "Keys & more")]).await.expect(303);
    owner.post_form(&format!("/t/home/vibers/{viber}/rename"), &[("name", "kiln")]).await.expect(303);
    let page = owner.page("/t/home/settings/audit").await.expect(200).body;
    let session_link =
        format!(r#"renamed the session <a class="link" href="/t/home/sessions/{session}">Keys &#38; more</a>"#);
    assert!(page.contains(&session_link), "{page}");
    assert!(
        page.contains(&format!(r#"renamed the viber <a class="link" href="/t/home/vibers/{viber}">kiln</a>"#)),
        "{page}"
    );
    assert!(page.contains(&format!(r#"gave a task in <a class="link" href="/t/home/sessions/{session}">"#)), "{page}");
    assert!(page.contains("<code class=\"mono\">session.rename"), "what a program calls it stands there too: {page}");
    // What is gone has no link and no name; what is another team's has neither, whatever the row says.
    owner.post_form(&format!("/t/home/sessions/{session}/delete"), &[]).await.expect(303);
    let page = owner.page("/t/home/settings/audit").await.expect(200).body;
    assert!(
        !page.contains(&format!("href=\"/t/home/sessions/{session}\"")) && page.contains("deleted a session"),
        "{page}"
    );
    assert!(!page.contains(neighbour.viber.id.as_str()) && !page.contains("/t/elsewhere"), "{page}");
    fixture.board.assert_invariants().await;
}

async fn the_account_leads_back(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    board.make_operator("second", "owner@example.org", "viewer").await;
    let back = async |path: &str| {
        let page = owner.page(path).await.expect(200).body;
        let at = page.find(r#"id="back" href=""#).expect("a way back");
        page[at..].split('"').nth(3).expect("an address").to_owned()
    };
    let home = owner.page("/t/second").await.expect(200).body;
    assert!(home.contains(r#"href="/account?team=second""#), "{home}");
    assert_eq!(back("/account?team=second").await, "/t/second");
    assert_eq!(back("/account?team=home").await, "/t/home");
    board.make_operator("elsewhere", "far@example.org", "owner").await;
    for other in ["elsewhere", "nobody", "%22%3E", "//evil.test"] {
        let to = back(&format!("/account?team={other}")).await;
        assert!(to == "/t/home" || to == "/t/second", "{other}: {to}");
    }
    board.assert_invariants().await;
}

/// What a browser without a cache receives for the home page, compressed bytes at most.
const MAX_COLD_HOME_BYTES: usize = 60_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cold_home_is_small_over_the_wire() {
    const HOME_PATH: &str = "/t/home";
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("A session in the rail").await;
    let cookie = fixture.owner().cookie().expect("signed in");
    let html = fixture.owner().page(HOME_PATH).await.expect(200).body;
    // Bodies as they are received.
    let client = reqwest::Client::builder().gzip(false).no_proxy().build().expect("a client");
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    for path in loaded_files(&html).into_iter().chain([HOME_PATH]) {
        let request = client.get(format!("{}{path}", fixture.board.url)).header(header::COOKIE, &cookie);
        let answer = request.header(header::ACCEPT_ENCODING, "br, gzip").send().await.expect("an answer");
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        bytes.insert(path, answer.bytes().await.expect("a body").len());
    }
    let sum: usize = bytes.values().sum();
    let has = |end: &str| bytes.keys().any(|path| path.ends_with(end));
    assert!(has(".css") && has(".js") && has(".svg"), "{bytes:#?}");
    assert!(sum <= MAX_COLD_HOME_BYTES, "{sum} bytes: {bytes:#?}");
}

on_both_databases!(what_is_not_there_keeps_the_rail_of_ones_team, the_audit_speaks_names, the_account_leads_back,);
