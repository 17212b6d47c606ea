//! Lists of a great deal: everything is reached by pages, searches and filters, and no page is long.

use std::collections::BTreeSet;

use board_tests::{
    Board, Engine, FakeDaemon, Person, board::HOME, eventually, invariants::Dump, person::escape, tasks::id,
};
use serde_json::json;

crate::on_both_databases!(
    every_viber_is_reached_by_pages_searches_and_filters,
    a_row_that_no_longer_matches_says_what_became_of_it,
    vibers_without_words_are_found_until_those_are_written,
    the_last_of_a_very_large_fleet_is_found,
    a_viber_among_many_is_chosen_with_and_without_a_script,
    playbooks_say_how_many_vibers_are_not_read,
    titles_are_found_before_and_after_they_are_indexed,
);

/// Vibers of the team.
const FLEET_SIZE: usize = 2_000;
/// More than one search reads the words of.
const VERY_LARGE_FLEET_SIZE: usize = 10_050;
/// One of so many says that it is connected.
const CONNECTED_EVERY: usize = 200;
/// Bytes of a page.
const PAGE_MAX_BYTES: usize = 150 * 1024;

/// A Board with a large fleet, and its owner.
async fn fleet(engine: Engine) -> (Board, Person) {
    fleet_of(engine, FLEET_SIZE).await
}

/// The same with so many vibers.
async fn fleet_of(engine: Engine, size: usize) -> (Board, Person) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let id = match engine {
        Engine::Sqlite => "printf('vib_%032x', i)",
        Engine::Postgres => "'vib_' || lpad(to_hex(i), 32, '0')",
    };
    let vibers = format!(
        "INSERT INTO vibers (team_id, viber_id, name, labels, contact, credential_hash, contact_since, created_at) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {size}) \
         SELECT (SELECT team_id FROM teams WHERE slug = '{HOME}'), {id}, 'Machine ' || i, '{{\"pool\":\"large\"}}', \
         CASE WHEN i % {CONNECTED_EVERY} = 0 THEN 'connected' ELSE 'disconnected' END, 'hash ' || i, 1, 1 FROM n"
    );
    board.sql_text(vibers).await;
    let words = "INSERT INTO viber_words (team_id, viber_id, words) \
                 SELECT team_id, viber_id, LOWER(name) || ' pool=large' FROM vibers";
    board.sql(words).await;
    (board, owner)
}

fn viber_id(number: usize) -> String {
    format!("vib_{number:032x}")
}

/// A page, which may only be so long.
async fn look(person: &Person, path: &str) -> String {
    let html = person.page(path).await.expect(200).body;
    assert!(html.len() <= PAGE_MAX_BYTES, "{path} has {} bytes", html.len());
    html
}

/// What stands between two marks, each time.
fn between<'h>(html: &'h str, from: &str, to: &str) -> Vec<&'h str> {
    html.split(from).skip(1).filter_map(|rest| rest.split(to).next()).collect()
}

/// The vibers that a list shows, page by page, as somebody without a script goes on.
async fn listed(person: &Person, query: &str) -> Vec<String> {
    let (mut found, mut path) = (Vec::new(), format!("/t/{HOME}/vibers{query}"));
    loop {
        let html = look(person, &path).await;
        found.extend(between(&html, "<tr id=\"", "\"").into_iter().map(str::to_owned));
        match between(&html, "<p class=\"more\"><a class=\"btn small\" href=\"", "\"").first() {
            Some(next) => path = next.replace("&#38;", "&").replace("&amp;", "&"),
            None => return found,
        }
    }
}

async fn every_viber_is_reached_by_pages_searches_and_filters(engine: Engine) {
    let (_board, owner) = fleet(engine).await;
    let online: Vec<String> = (1..=10).map(|n| viber_id(n * CONNECTED_EVERY)).collect();
    assert_eq!(listed(&owner, "?show=online").await, online);
    assert_eq!(listed(&owner, "?show=online&q=machine+2000").await, [viber_id(2_000)]);
    assert!(listed(&owner, "?show=working").await.is_empty());
    assert!(listed(&owner, "?show=working&q=machine").await.is_empty());
    assert_eq!(listed(&owner, &format!("?q={}", escape("MACHINE 1876"))).await, [viber_id(1876)]);
    assert_eq!(listed(&owner, "?show=offline&q=pool%3Dlarge").await.len(), FLEET_SIZE - online.len());
    for nothing in ["?q=no+such+machine", "?q=%25", "?q=machine_1", "?show=online&q=machine+1876"] {
        let html = look(&owner, &format!("/t/{HOME}/vibers{nothing}")).await;
        assert!(html.contains("No viber matches."), "{nothing}");
    }
    // A filter keeps the words, and a search keeps the filter.
    let html = look(&owner, &format!("/t/{HOME}/vibers?q=large&show=offline")).await;
    assert!(html.contains("?q=large&#38;show=online\"") && html.contains("name=\"show\" value=\"offline\""));
    assert!(html.contains("2000 machines, 10 connected"));
    let all = listed(&owner, "").await;
    assert_eq!(all, (1..=FLEET_SIZE).map(viber_id).collect::<Vec<_>>(), "each once, in order of joining");
    // The live stream shows what the page shows.
    let path = format!("/t/{HOME}/live?view=vibers&q={}", escape("machine 1876"));
    let mut stream = owner.stream(&path, None).await;
    loop {
        let frame = stream.next().await.expect("the stream goes on");
        if frame.data.contains("<tr id=") {
            assert!(frame.data.contains(&viber_id(1876)), "{}", frame.data);
            break;
        }
    }
}

async fn a_row_that_no_longer_matches_says_what_became_of_it(engine: Engine) {
    let (board, owner) = fleet(engine).await;
    let html = look(&owner, &format!("/t/{HOME}/vibers?show=online&q=machine")).await;
    let address = between(&html, "data-stream=\"", "\"")[0].replace("&#38;", "&").replace("&amp;", "&");
    let disconnect = async |id: &str| {
        board.sql_text(format!("UPDATE vibers SET contact = 'disconnected' WHERE viber_id = '{id}'")).await;
    };
    let [first, second, third] = [1, 2, 3].map(|n| viber_id(n * CONNECTED_EVERY));
    // Between the page and its stream.
    disconnect(&first).await;
    let mut stream = owner.stream(&address, None).await;
    let mut shows = async |id: &str, words: &str| {
        let row = format!("<tr id=\"{id}\"");
        loop {
            let frame = stream.next().await.expect("an open stream");
            if frame.data.contains(&row) && frame.data.contains(words) {
                return;
            }
        }
    };
    shows(&first, "data-state=\"offline\"").await;
    // While the stream is open, which looks when the Board changes something.
    disconnect(&second).await;
    owner.patch(&format!("/api/v1/vibers/{first}"), &json!({ "name": "Kiln" })).await.expect(200);
    shows(&second, "data-state=\"offline\"").await;
    // It stays current from then on.
    owner.patch(&format!("/api/v1/vibers/{first}"), &json!({ "name": "Forge" })).await.expect(200);
    shows(&first, "Forge").await;
    let now = listed(&owner, "?show=online&q=machine").await;
    assert!(!now.contains(&first) && !now.contains(&second), "{now:?}");
    // One that is gone has no row: the page is fetched anew.
    owner.delete(&format!("/api/v1/vibers/{third}")).await;
    stream.until("reset").await;
}

async fn vibers_without_words_are_found_until_those_are_written(engine: Engine) {
    let (board, owner) = fleet(engine).await;
    // As the migration leaves them.
    board.sql("UPDATE viber_words SET words = NULL").await;
    let online: Vec<String> = (1..=10).map(|n| viber_id(n * CONNECTED_EVERY)).collect();
    let is_found = async || {
        assert_eq!(listed(&owner, &format!("?q={}", escape("MACHINE 1876"))).await, [viber_id(1876)]);
        assert_eq!(listed(&owner, "?show=online&q=pool%3Dlarge").await, online);
        assert!(listed(&owner, "?q=no+such+machine").await.is_empty());
    };
    is_found().await;
    eventually("all words are written", || async {
        let dump = Dump::of(&board).await.expect("the Board's database");
        let words = dump.rows("viber_words");
        (words.len() == FLEET_SIZE && words.iter().all(|row| !row["words"].is_null())).then_some(())
    })
    .await;
    is_found().await;
}

async fn the_last_of_a_very_large_fleet_is_found(engine: Engine) {
    let (_board, owner) = fleet_of(engine, VERY_LARGE_FLEET_SIZE).await;
    let last = viber_id(VERY_LARGE_FLEET_SIZE);
    let words = escape(&format!("machine {VERY_LARGE_FLEET_SIZE}"));
    let choice = look(&owner, &format!("/t/{HOME}/preflight?find={words}")).await;
    assert_eq!(offered(&choice), BTreeSet::from([String::new(), last.clone()]));
    assert!(!choice.contains("Not all vibers were searched"));
    assert_eq!(listed(&owner, &format!("?q={words}")).await, [last]);
}

/// The vibers that a new task may be given to.
fn offered(html: &str) -> BTreeSet<String> {
    let select = between(html, "name=\"viber\"", "</select>").concat();
    between(&select, "<option value=\"", "\"").into_iter().map(str::to_owned).collect()
}

async fn a_viber_among_many_is_chosen_with_and_without_a_script(engine: Engine) {
    let (_board, owner) = fleet(engine).await;
    let home = look(&owner, &format!("/t/{HOME}")).await;
    let first = offered(&home);
    assert!(first.len() <= 40 && first.contains("") && first.contains(&viber_id(2_000)), "connected ones come first");
    assert!(home.contains("name=\"find\""), "the others are found by their words");
    // The one that an address names is there, and chosen.
    let named = look(&owner, &format!("/t/{HOME}?viber={}", viber_id(1777))).await;
    assert!(named.contains(&format!("<option value=\"{}\" selected>", viber_id(1777))));
    // With a script the choice is fetched anew, without one the form comes back with what was written.
    let choice = look(&owner, &format!("/t/{HOME}/preflight?find={}", escape("machine 1777"))).await;
    assert_eq!(offered(&choice), BTreeSet::from(["".to_owned(), viber_id(1777)]));
    let fields = [("goal", "Kept as it is"), ("find", "machine 1777"), ("look", "yes"), ("viber", "")];
    let form = owner.post_form(&format!("/t/{HOME}/tasks"), &fields).await.expect(200).body;
    assert!(form.contains(">Kept as it is</textarea>"));
    assert_eq!(offered(&form), BTreeSet::from(["".to_owned(), viber_id(1777)]));
    let none = look(&owner, &format!("/t/{HOME}?find=no+such+machine")).await;
    assert!(none.contains("No viber matches.") && none.contains("form id=\"composer\""));
    let sessions = look(&owner, &format!("/t/{HOME}/sessions")).await;
    assert!(!sessions.contains("Kept as it is"), "nothing was submitted");
}

async fn titles_are_found_before_and_after_they_are_indexed(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let viber = FakeDaemon::enrol(&board, "lab").await;
    let mut sessions = Vec::new();
    for n in 0..40 {
        let task = operator.submit(viber.id.as_str(), &format!("Look for needle {n}")).await;
        sessions.push(id(&task, "sessionId").to_owned());
    }
    let found = async |title: &str| {
        let page =
            operator.get(&format!("/api/v1/sessions?limit=200&title={}", escape(title))).await.expect(200).json();
        page["items"].as_array().expect("a list").len()
    };
    assert_eq!((found("NEEDLE").await, found("needle 39").await, found("9").await), (40, 1, 4));
    let indexed = async |title: &str| {
        eventually("every title is indexed", || async {
            let dump = Dump::of(&board).await.expect("the Board's database");
            let titles = dump.rows("session_titles").iter().filter(|row| row["title"] == title);
            (dump.rows("unindexed_titles").is_empty() && titles.count() == 1).then_some(())
        })
        .await;
    };
    indexed("look for needle 39").await;
    assert_eq!((found("NEEDLE").await, found("needle 39").await, found("9").await), (40, 1, 4));
    assert_eq!(found(&"needle ".repeat(100)[..]).await, 0, "no title is so long");
    let path = format!("/api/v1/sessions/{}", sessions[39]);
    operator.patch(&path, &json!({ "title": "A haystack" })).await.expect(200);
    assert_eq!((found("needle").await, found("hayst").await), (39, 1));
    indexed("a haystack").await;
    assert_eq!((found("needle").await, found("hayst").await), (39, 1));
    assert!([200, 204].contains(&operator.delete(&path).await.status));
    assert_eq!(found("hayst").await, 0);
    board.assert_invariants().await;
}

async fn playbooks_say_how_many_vibers_are_not_read(engine: Engine) {
    let (_board, owner) = fleet(engine).await;
    let html = look(&owner, &format!("/t/{HOME}/playbooks")).await;
    assert!(html.contains("1970 more vibers are not looked at here"), "{html}");
}
