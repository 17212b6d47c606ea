//! The search in messages: on its page, from there to the message, and by the API; of one's own team alone.

use std::time::Duration;

use board_tests::{
    Board, Engine, Fixture, Neighbour, Person,
    board::HOME,
    eventually,
    fake_daemon::{completed, text},
    person::escape,
    within,
};
use serde_json::Value;

crate::on_both_databases!(
    a_word_leads_to_its_message,
    what_is_older_than_the_index_is_indexed_and_the_page_says_so,
    hits_are_counted_page_by_page,
    what_one_team_writes_does_not_wait_for_what_another_one_wrote_long_ago,
);

/// Texts that are older than the index: more than one turn of the scheduler's takes.
const OLDER_TEXTS: usize = 1_000;
/// It takes a tenth of a core.
const INDEX_TIMEOUT: Duration = Duration::from_secs(120);

async fn hits(person: &Person, query: &str) -> Vec<Value> {
    let found = person.get(&format!("/api/v1/search?q={}&limit=200", escape(query))).await.expect(200).json();
    assert_eq!(found["next"], Value::Null);
    found["items"].as_array().expect("a list").clone()
}

/// Waits until a search finds so many.
async fn finds(person: &Person, query: &str, count: usize) -> Vec<Value> {
    eventually(&format!("{count} times {query}"), || async {
        let found = hits(person, query).await;
        (found.len() == count).then_some(found)
    })
    .await
}

/// The snippet of a hit, with its words in brackets.
fn snippet(hit: &Value) -> String {
    let pieces = hit["snippet"].as_array().expect("pieces").iter();
    pieces
        .map(|piece| {
            let text = piece["text"].as_str().expect("a text");
            if piece["hit"] == true { format!("[{text}]") } else { text.to_owned() }
        })
        .collect()
}

async fn a_word_leads_to_its_message(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    let stranger = fixture.board.operator("elsewhere", "far@example.org", "owner").await;
    let program = fixture.board.token("elsewhere", "owner").await;
    fixture.begin("Why is the <b>voucher</b> slow?").await;
    let session = fixture.session().to_owned();
    let answer = "The `PaymentStep` asks for each voucher.\n\n<script>alert('pwn')</script>";
    fixture.tell(vec![text(answer), completed(answer)]).await;
    let found = finds(&fixture.operator, "VOUCHER", 2).await;
    assert_eq!(snippet(&found[1]), "Why is the <b>[voucher]</b> slow?");
    assert_eq!(snippet(&found[0]), "The `PaymentStep` asks for each [voucher]. <script>alert('pwn')</script>");
    assert_eq!(
        (&found[0]["sessionId"], &found[0]["role"], &found[0]["seq"]),
        (&session.clone().into(), &"assistant".into(), &2.into())
    );
    let found = finds(&fixture.operator, "payment voucher", 1).await;
    assert_eq!(snippet(&found[0]), "The `[Payment]Step` asks for each [voucher]. <script>alert('pwn')</script>");
    // The page marks the words and shows everything else as text.
    let owner = fixture.owner();
    let page = owner.page(&format!("/t/{HOME}/search?q=voucher")).await.expect(200).body;
    assert!(page.contains("Why is the &#60;b&#62;<mark>voucher</mark>&#60;/b&#62; slow?"), "{page}");
    assert!(!page.contains("<script>alert") && !page.contains("still being indexed"), "{page}");
    let address = format!("/t/{HOME}/sessions/{session}");
    assert!(page.contains(&format!("href=\"{address}#m-2\"")), "{page}");
    // A message that is not among the newest is on a page of its own.
    for n in 0..12 {
        let goal = format!("go on {n}: {}", "word ".repeat(3_000));
        owner.post_form(&format!("{address}/messages"), &[("content", &goal), ("key", "")]).await.expect(303);
    }
    finds(&fixture.operator, "on word go", 12).await;
    let page = owner.page(&format!("/t/{HOME}/search?q=payment")).await.expect(200).body;
    let link = format!("{address}?before=3#m-2");
    assert!(page.contains(&format!("href=\"{link}\"")), "{page}");
    assert!(!owner.page(&address).await.expect(200).body.contains("id=\"m-2\""), "not on the newest page");
    let older = owner.page(link.split('#').next().expect("an address")).await.expect(200).body;
    assert!(older.contains("id=\"m-2\"") && older.contains("PaymentStep"));
    // Nothing of it is found by anybody else, nor after it was deleted.
    assert!(hits(&program, "voucher").await.is_empty());
    stranger.page(&format!("/t/{HOME}/search?q=voucher")).await.expect(404);
    for query in ["", "%22", "%27%20OR%201=1", "no%20such%20word"] {
        let page = owner.page(&format!("/t/{HOME}/search?q={query}")).await.expect(200).body;
        assert!(!page.contains("<mark>"), "{query}");
    }
    owner.post_form(&format!("{address}/delete"), &[]).await.expect(303);
    assert!(hits(&fixture.operator, "voucher").await.is_empty());
    fixture.board.assert_invariants().await;
}

async fn what_is_older_than_the_index_is_indexed_and_the_page_says_so(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.begin("a needle of today").await;
    fixture.tell(vec![completed("")]).await;
    finds(&fixture.operator, "needle", 1).await;
    write_older_texts(&fixture.board, engine, OLDER_TEXTS).await;
    let path = format!("/t/{HOME}/search?q=needle");
    let page = fixture.owner().page(&path).await.expect(200).body;
    assert!(page.contains("Older messages are still being indexed") && page.contains("of today"), "{page}");
    let found = fixture.operator.get("/api/v1/search?q=needle").await.expect(200).json();
    assert_eq!(found["indexing"], true);
    let ready = within(INDEX_TIMEOUT, "all of them are indexed", || async {
        let page = fixture.owner().page(&path).await.expect(200).body;
        (!page.contains("still being indexed")).then_some(page)
    });
    let page = ready.await;
    assert!(page.contains("of today"), "the newest first: {page}");
    assert_eq!(hits(&fixture.operator, "needle 1").await.len(), 1, "the oldest of all");
    assert_eq!(
        snippet(&hits(&fixture.operator, &format!("needle {OLDER_TEXTS}")).await[0]),
        format!("[needle] [{OLDER_TEXTS}]")
    );
}

/// As after an upgrade: texts that are older than the index in the session of the only task, and nobody has begun.
async fn write_older_texts(board: &Board, engine: Engine, count: usize) {
    let id = match engine {
        Engine::Sqlite => "printf('msg_%032x', i)",
        Engine::Postgres => "'msg_' || lpad(to_hex(i), 32, '0')",
    };
    let many = format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})");
    board
        .sql_text(format!(
            "INSERT INTO messages (team_id, session_id, seq, message_id, role, author, task_id, attempt, created_at) {many} \
             SELECT t.team_id, t.session_id, i + 100, {id}, 'user', t.created_by, t.task_id, 0, i FROM n, tasks t"
        ))
        .await;
    board
        .sql_text(format!(
            "INSERT INTO parts (team_id, message_id, idx, kind, body, created_at) {many} SELECT t.team_id, {id}, 0, 'text', \
             '{{\"type\":\"text\",\"text\":\"needle ' || i || '\"}}', i FROM n, tasks t"
        ))
        .await;
    board.sql("DELETE FROM unindexed_texts").await;
    let sql = "INSERT INTO unindexed_history (team_id, message_id, idx) SELECT team_id, 'msh', 0 FROM teams WHERE slug = 'home'";
    board.sql(sql).await;
}

async fn what_one_team_writes_does_not_wait_for_what_another_one_wrote_long_ago(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let neighbour = Neighbour::of(&fixture.board).await;
    fixture.begin("a needle of today").await;
    finds(&fixture.operator, "needle", 1).await;
    // Much more than the other one would wait for.
    write_older_texts(&fixture.board, engine, 20 * OLDER_TEXTS).await;
    within(INDEX_TIMEOUT, "the history has its first turn", || async {
        let found = fixture.operator.get("/api/v1/search?q=needle").await.expect(200).json();
        assert_eq!(found["indexing"], true, "it takes very much longer than this");
        (found["items"].as_array().expect("a list").len() > 1).then_some(())
    })
    .await;
    neighbour.operator.submit(neighbour.viber.id.as_str(), "another needle").await;
    assert_eq!(snippet(&finds(&neighbour.operator, "needle", 1).await[0]), "another [needle]");
    let found = fixture.operator.get("/api/v1/search?q=needle").await.expect(200).json();
    assert_eq!(found["indexing"], true, "the history still waits");
}

async fn hits_are_counted_page_by_page(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    for n in 0..30 {
        fixture.begin(&format!("needle {n}")).await;
        fixture.tell(vec![completed("")]).await;
    }
    finds(&fixture.operator, "needle", 30).await;
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page =
            fixture.operator.get(&format!("/api/v1/search?q=needle&limit=7&cursor={cursor}")).await.expect(200).json();
        all.extend(page["items"].as_array().expect("a list").iter().map(snippet));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(all, (0..30).rev().map(|n| format!("[needle] {n}")).collect::<Vec<_>>());
    let page = fixture.owner().page(&format!("/t/{HOME}/search?q=needle")).await.expect(200).body;
    assert_eq!(page.matches("<mark>").count(), 25);
    let next =
        page.split("<p class=\"more\"><a class=\"btn small\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
    let next = next.expect("a next page").replace("&#38;", "&");
    let page = fixture.owner().page(&next).await.expect(200).body;
    assert_eq!(page.matches("<mark>").count(), 5);
    for bad in ["cursor=x", "limit=0", "what=1", "cursor=c2VhcmNoHy0x"] {
        fixture.operator.get(&format!("/api/v1/search?q=needle&{bad}")).await.expect(422);
    }
    fixture.operator.get("/api/v1/search").await.expect(422);
}
