//! What one has not seen, and the list of sessions with its filters, as people use them.

use board_tests::{
    Board, Browser, Engine, FakeDaemon, Fixture, Person, board::HOME, browser::Scripts, fake_daemon::completed,
};

crate::on_both_databases!(
    a_new_member_has_read_what_was_before,
    filters_stand_in_the_address_and_are_taken_away_one_by_one,
);

/// What the rail says about unread sessions.
async fn unread(person: &Person) -> String {
    let page = person.page(&format!("/t/{HOME}/vibers")).await.expect(200).body;
    let count = page.split("data-unread-count=\"").nth(1).and_then(|rest| rest.split('"').next());
    let count = count.expect("a count").to_owned();
    let title = if count.is_empty() { "<title>Vibers".to_owned() } else { format!("<title>({count}) Vibers") };
    assert!(page.contains(&title), "{title}");
    count
}

/// So many sessions that ended just now.
async fn many(board: &Board, viber: &FakeDaemon, count: usize) {
    let id = match board.engine {
        Engine::Sqlite => "printf('ses_%032x', i)",
        Engine::Postgres => "'ses_' || lpad(to_hex(i), 32, '0')",
    };
    let sql = format!(
        "INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, created_at, \
         active_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         SELECT v.team_id, {id}, v.viber_id, 'default', 'Many ' || i, 'many ' || i, 'console', 1, 4000000000000 + i \
         FROM n, vibers v WHERE v.viber_id = '{}'",
        viber.id
    );
    board.sql_text(sql).await;
}

async fn a_new_member_has_read_what_was_before(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    for n in 0..3 {
        fixture.begin(&format!("goal {n}")).await;
        fixture.tell(vec![completed("done")]).await;
    }
    assert_eq!(unread(fixture.owner()).await, "3");
    let late = fixture.board.operator(HOME, "late@example.org", "viewer").await;
    assert_eq!(unread(&late).await, "");
    let list = late.page(&format!("/t/{HOME}/sessions")).await.expect(200).body;
    assert!(!list.contains("data-unread>") && !list.contains("Mark all read"), "{list}");
    fixture.begin("after they came").await;
    assert_eq!(unread(&late).await, "", "it is at work");
    fixture.tell(vec![completed("done")]).await;
    assert_eq!((unread(&late).await, unread(fixture.owner()).await), ("1".to_owned(), "4".to_owned()));
    late.post_form(&format!("/t/{HOME}/sessions/{}/seen", fixture.session()), &[]).await.expect(204);
    assert_eq!(unread(&late).await, "");
    let (viber, board) = (&fixture.viber, &fixture.board);
    many(board, viber, 95).await;
    assert_eq!((unread(&late).await, unread(fixture.owner()).await), ("95".to_owned(), "99".to_owned()));
    let again = many_more(board).await;
    assert_eq!(unread(fixture.owner()).await, "99+", "{again} more");
    // One's other pages learn that everything is read, and nobody else's count changes.
    let mut stream = fixture.owner().stream(&format!("/t/{HOME}/live?view=rail"), None).await;
    let list = fixture.owner().page(&format!("/t/{HOME}/sessions")).await.expect(200).body;
    assert!(list.contains("Mark all read") && list.contains(">Today<"), "{list}");
    let before = unread(&late).await;
    fixture.owner().post_form(&format!("/t/{HOME}/sessions/read"), &[]).await.expect(303);
    loop {
        let frame = stream.next().await.expect("an open stream");
        if frame.data.contains("data-unread-count=\"\"") {
            break;
        }
    }
    assert_eq!((unread(fixture.owner()).await, unread(&late).await), (String::new(), before));
    let list = fixture.owner().page(&format!("/t/{HOME}/sessions")).await.expect(200).body;
    assert!(!list.contains("data-unread>") && !list.contains("Mark all read"));
    let stranger = board.operator("elsewhere", "far@example.org", "owner").await;
    stranger.post_form(&format!("/t/{HOME}/sessions/read"), &[]).await.expect(404);
    assert_eq!(unread(&late).await, "99+");
}

/// Some sessions more, with ids of their own.
async fn many_more(board: &Board) -> u64 {
    board
        .sql(
            "INSERT INTO sessions (team_id, session_id, viber_id, agent_id, title, title_folded, created_by, created_at, \
             active_at) SELECT team_id, REPLACE(session_id, 'ses_000', 'ses_fff'), viber_id, agent_id, title, title_folded, \
             created_by, created_at, active_at + 500 FROM sessions WHERE title LIKE 'Many 1%'",
        )
        .await
}

async fn filters_stand_in_the_address_and_are_taken_away_one_by_one(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("Finished by a program").await;
    fixture.tell(vec![completed("done")]).await;
    let owner = fixture.owner();
    let den = FakeDaemon::connected(&fixture.board, "den").await;
    let goal = [("goal", "Given by the owner"), ("viber", den.id.as_str()), ("key", "")];
    owner.post_form(&format!("/t/{HOME}/tasks"), &goal).await.expect(303);
    let shown = async |query: &str| {
        let page = owner.page(&format!("/t/{HOME}/sessions?{query}")).await.expect(200).body;
        let list =
            page.split("<div id=\"sessions\">").nth(1).and_then(|rest| rest.split("</div>").next()).expect("a list");
        ["Finished by a program", "Given by the owner"].map(|title| list.contains(title))
    };
    let (both, first, second, none) = ([true, true], [true, false], [false, true], [false, false]);
    let (lab, den_id) = (fixture.viber.id.clone(), den.id.clone());
    for (query, due) in [
        (String::new(), both),
        ("state=&viber=&agent=&person=&q=".to_owned(), both),
        ("state=completed".to_owned(), first),
        ("state=working".to_owned(), second),
        ("state=error".to_owned(), none),
        ("state=unread".to_owned(), first),
        (format!("viber={lab}"), first),
        (format!("viber={den_id}"), second),
        ("on=DEN".to_owned(), second),
        ("on=nowhere".to_owned(), none),
        ("agent=default".to_owned(), both),
        ("agent=other".to_owned(), none),
        ("person=me".to_owned(), second),
        ("person=%27%20OR%201=1".to_owned(), none),
        (format!("person=me&viber={den_id}&state=working&q=given"), second),
        (format!("person=me&viber={lab}"), none),
        ("archived=1&person=me".to_owned(), none),
    ] {
        assert_eq!(shown(&query).await, due, "{query}");
    }
    for unknown in ["state=lost", "viber=den", "viber=vib_00000000000000000000000000000000"] {
        owner.page(&format!("/t/{HOME}/sessions?{unknown}")).await.expect(404);
    }
    let stranger = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    stranger.page(&format!("/t/elsewhere/sessions?viber={lab}")).await.expect(404);
    // Each chip is a link to the list without its filter.
    let query = format!("q=given&state=working&viber={den_id}&person=me");
    let page = owner.page(&format!("/t/{HOME}/sessions?{query}")).await.expect(200).body;
    for (chip, without) in [
        ("State: Working", format!("q=given&#38;viber={den_id}&#38;person=me")),
        ("Viber: den", "q=given&#38;state=working&#38;person=me".to_owned()),
        ("Person: You", format!("q=given&#38;state=working&#38;viber={den_id}")),
    ] {
        assert!(
            page.contains(&format!("<a class=\"chip\" href=\"/t/{HOME}/sessions?{without}\">{chip}")),
            "{chip}: {page}"
        );
    }
    assert!(page.contains("<option value=\"working\" selected>") && page.contains("<option value=\"me\" selected>You"));
    // Groups, as in the rail.
    let page = owner.page(&format!("/t/{HOME}/sessions")).await.expect(200).body;
    let groups: Vec<&str> =
        page.split("<h2 class=\"group-head\">").skip(1).filter_map(|rest| rest.split('<').next()).collect();
    assert_eq!(groups, ["Working", "Today"]);
    // The API narrows its list, too.
    for (query, count) in [("state=working", 1), ("agentId=default", 2), ("createdBy=nobody", 0)] {
        let found = fixture.operator.get(&format!("/api/v1/sessions?{query}")).await.expect(200).json();
        assert_eq!(found["items"].as_array().map(Vec::len), Some(count), "{query}");
    }
    fixture.operator.get("/api/v1/sessions?state=lost").await.expect(422);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_script_a_list_is_narrowed_and_marked_as_read() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.begin("Finished by a program").await;
    fixture.tell(vec![completed("done")]).await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(fixture.owner()).await;
    browser.go(&format!("{}/t/{HOME}/sessions", fixture.board.url)).await;
    browser.sees("#rail-nav .count", "1").await;
    browser.click("details.narrow > summary").await;
    browser.click("select[name=state] option[value=error]").await;
    browser.click(".narrow-by button").await;
    browser.sees("body", "No session matches.").await;
    browser.sees(".filter-chips", "State: Failed").await;
    browser.click(".filter-chips a.chip").await;
    browser.sees("#sessions", "Finished by a program").await;
    browser.click("form[action$='/sessions/read'] button").await;
    browser.sees("#sessions", "Finished by a program").await;
    assert!(!browser.has("#rail-nav .count").await && !browser.has("form[action$='/sessions/read']").await);
}
