//! Artifacts in the conversation: cards with a thumbnail or the beginning, each once, and honest about where they are.

use std::collections::HashSet;

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::{Screen, Scripts},
    eventually,
    hostile_site::Collector,
};
use serde_json::{Value, json};

use super::{Artifacts, Thing, noise, working};

crate::on_both_databases!(a_card_says_what_it_is_and_where);

/// The cards of a page.
trait Cards {
    async fn shows(&self, thing: &Thing, text: &str);
    /// Whether the picture of a card is drawn.
    async fn draws(&self, thing: &Thing);
}

fn card(thing: &Thing) -> String {
    format!(".card[data-artifact='{}']", thing.id)
}

impl Cards for Browser {
    async fn shows(&self, thing: &Thing, text: &str) {
        self.sees(&card(thing), text).await;
    }

    async fn draws(&self, thing: &Thing) {
        let script = format!("return document.querySelector(\"{} img\")?.naturalWidth > 0", card(thing));
        eventually("the picture is drawn", || async { (self.run(&script, Value::Null).await == true).then_some(()) })
            .await;
    }
}

/// The viber gives what it is asked for, in whatever order, until it gave all of these.
async fn gives_all(fixture: &mut Fixture<FakeDaemon>, things: &[&Thing]) {
    let mut left: HashSet<&str> = things.iter().map(|thing| thing.id.as_str()).collect();
    while !left.is_empty() {
        let offer = fixture.offered().await;
        let id = offer.params["artifactId"].as_str().expect("an id").to_owned();
        let thing = things.iter().find(|thing| thing.id == id).unwrap_or_else(|| panic!("nobody looks at {id}"));
        fixture.answer(&offer, Ok(json!({ "size": thing.bytes.len() }))).await;
        assert_eq!(fixture.put(thing, thing.bytes.clone(), None).await.0, 201);
        left.remove(id.as_str());
    }
}

fn png() -> Vec<u8> {
    use base64::Engine as _;
    let text = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}

/// A call of the tool that hands over `thing`, around its report.
async fn handed_over(fixture: &mut Fixture<FakeDaemon>, call: &str, name: &str, bytes: Vec<u8>, more: Value) -> Thing {
    let args = json!({ "id": name, "path": name });
    fixture.report(&json!({ "type": "tool-call", "callId": call, "tool": "add_artifact", "args": args })).await;
    let thing = fixture.announces(name, bytes, more).await;
    let result = json!({ "type": "tool-result", "callId": call, "tool": "add_artifact", "result": "Saved.", "ok": true,
        "durationMs": 3 });
    fixture.report(&result).await;
    thing
}

async fn a_card_says_what_it_is_and_where(engine: Engine) {
    let mut fixture = working(engine).await;
    let owner = fixture.board.owner().await;
    let text = |name: &str| json!({ "sniffed": "text/plain", "title": name });
    let first = fixture.announces("numbers.csv", b"name,value\nfirst,1\n".to_vec(), text("Numbers")).await;
    let second = fixture.announces("numbers.csv", b"name,value\nsecond,2\n".to_vec(), text("Numbers")).await;
    let large = fixture.has("large.txt", vec![b'a'; 2 * 1024 * 1024]).await;
    let of = |thing: &Thing| format!("/t/home/artifacts/{}/card", thing.id);

    // What is small is fetched, what is large is not.
    let shown = owner.page(&of(&large)).await.expect(200).body;
    assert!(shown.contains("Still on the viber. It is fetched when you open it."), "{shown}");
    let reading = tokio::spawn({
        let request = owner.request(reqwest::Method::GET, &of(&second));
        super::read(request)
    });
    fixture.gives(&second).await;
    let shown = String::from_utf8(reading.await.expect("read").bytes).expect("text");
    assert!(shown.contains("<th scope=\"col\">name</th>") && shown.contains("<td>second</td>"), "{shown}");
    assert!(shown.contains("Numbers") && shown.contains("numbers.csv · table") && shown.contains("version 2 of 2"));
    assert!(shown.contains("data-place=\"stored\"") && shown.contains("/download"), "{shown}");
    assert_eq!(shown.matches("Numbers</a>").count(), 1, "named once: {shown}");

    fixture.viber.cut();
    eventually("the viber is away", async || (fixture.facts(&first).await["state"] == "offline").then_some(())).await;
    let shown = owner.page(&of(&first)).await.expect(200).body;
    assert!(shown.contains("Still on the viber, which is offline") && shown.contains("version 1 of 2"), "{shown}");
    assert!(!shown.contains("/download"), "nothing is offered that cannot be had: {shown}");
    let shown = owner.page(&of(&second)).await.expect(200).body;
    assert!(shown.contains("<td>second</td>"), "the Board has it: {shown}");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_sees_what_was_made_without_opening_it() {
    for screen in [Screen::Desk, Screen::Phone] {
        let mut fixture = working(Engine::Sqlite).await;
        let owner = fixture.board.owner().await;
        let browser = Browser::open_on(screen, Scripts::On).await;
        browser.sign_in(&owner).await;
        let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
        browser.go(&page).await;
        browser.find("body[data-live=on]").await;

        // Live, as they are handed over: a gallery, and no second row for any of them.
        let picture = handed_over(&mut fixture, "c1", "chart.png", png(), json!({ "sniffed": "image/png" })).await;
        let table = b"name,value\nshoes,12\nhats,7\n".to_vec();
        let table = handed_over(&mut fixture, "c2", "sales.csv", table, json!({ "sniffed": "text/plain" })).await;
        let notes = b"# Notes\n\nIt is **done**.\n".to_vec();
        let notes = handed_over(&mut fixture, "c3", "notes.md", notes, json!({ "sniffed": "text/plain" })).await;
        gives_all(&mut fixture, &[&picture, &table, &notes]).await;
        browser.draws(&picture).await;
        browser.shows(&table, "shoes").await;
        browser.shows(&notes, "# Notes").await;
        browser.shows(&table, "table · 27 B").await;
        assert_eq!((browser.count(".cards").await, browser.count(".cards .card").await), (1, 3));
        assert!(!browser.content_of("#entries").await.contains("add_artifact"));

        // The same after the task has ended, and when one comes back; what was fetched is not fetched again.
        fixture.tell(vec![board_tests::fake_daemon::completed("Here they are.")]).await;
        browser.find("#task-state[data-task-state=completed]").await;
        browser.shows(&table, "shoes").await;
        browser.go(&page).await;
        browser.draws(&picture).await;
        browser.shows(&table, "shoes").await;
        browser.click(&format!("{} .card-acts a", card(&table))).await;
        browser.sees("#preview th", "name").await;
        assert_eq!(browser.console_errors().await, Vec::<String>::new());
        fixture.board.assert_invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_without_scripts_leads_to_the_artifact() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let table =
        handed_over(&mut fixture, "c1", "sales.csv", b"a,b\n".to_vec(), json!({ "sniffed": "text/plain" })).await;
    let browser = Browser::open(Scripts::Off).await;
    browser.sign_in(&owner).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.shows(&table, "table · 4 B").await;
    assert!(browser.has(&format!("{} a[download]", card(&table))).await);
    let (button, wanted) = (format!("{} .card-acts a", card(&table)), [&table]);
    tokio::join!(browser.click(&button), gives_all(&mut fixture, &wanted));
    browser.sees("#preview th", "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_comes_into_view_is_asked_of_the_viber() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let mut things = Vec::new();
    for n in 0..24 {
        let words = format!("{n}: {}\n", "a paragraph that keeps the next card far away. ".repeat(40));
        fixture.report(&json!({ "type": "text-delta", "content": words })).await;
        things.push(fixture.has(&format!("part-{n}.txt"), format!("this is {n}\n").into_bytes()).await);
    }
    let large = fixture.has("large.csv", noise(2 * 1024 * 1024)).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&owner).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.shows(&large, "Still on the viber").await;
    gives_all(&mut fixture, &[&things[23]]).await;
    browser.shows(&things[23], "this is 23").await;
    // The oldest is asked for when somebody scrolls there; `gives_all` panics when another one was before it.
    assert!(!browser.has(&format!("{}[data-filled]", card(&things[0]))).await);
    browser.run(&format!("document.querySelector(\"{}\").scrollIntoView()", card(&things[0])), Value::Null).await;
    let near: Vec<&Thing> = things.iter().collect();
    let first = async {
        loop {
            let offer = fixture.offered().await;
            let id = offer.params["artifactId"].as_str().expect("an id").to_owned();
            let thing = near.iter().find(|thing| thing.id == id).expect("one of them, and never the large one");
            fixture.answer(&offer, Ok(json!({ "size": thing.bytes.len() }))).await;
            assert_eq!(fixture.put(thing, thing.bytes.clone(), None).await.0, 201);
            if thing.id == things[0].id {
                break;
            }
        }
    };
    first.await;
    browser.shows(&things[0], "this is 0").await;
    let filled = browser.count(".card[data-filled]").await;
    assert!(filled < 12, "{filled} of {} were asked for", things.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_picture_runs_nothing_loads_nothing_and_is_not_drawn_for_hours() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let collector = Collector::start([127, 0, 0, 2]).await;
    let far = collector.address.to_string();
    let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\"";
    let svg = json!({ "sniffed": "image/svg+xml" });
    let script = format!(
        "{open} onload=\"parent.pwned=1\"><script>window.pwned = 1; fetch('http://{far}/pwn')</script>\
         <a href=\"http://{far}/pwn\"><rect width=\"20\" height=\"20\"/></a></svg>"
    );
    let running = fixture.announces("runs.svg", script.into_bytes(), svg.clone()).await;
    let loading = format!("{open}><image href=\"http://{far}/pwn-image\" width=\"20\" height=\"20\"/></svg>");
    let loading = fixture.announces("loads.svg", loading.into_bytes(), svg.clone()).await;
    let mut levels = String::from("<g id=\"a0\"><rect width=\"1\" height=\"1\"/></g>");
    for n in 1..=12 {
        levels.push_str(&format!("<g id=\"a{n}\">{}</g>", format!("<use href=\"#a{}\"/>", n - 1).repeat(10)));
    }
    let endless = fixture.announces("endless.svg", format!("{open}>{levels}</svg>").into_bytes(), svg).await;
    let mut bomb = png();
    bomb[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let bomb = fixture.announces("bomb.png", bomb, json!({ "sniffed": "image/png" })).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&owner).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    gives_all(&mut fixture, &[&running, &loading, &endless, &bomb]).await;
    browser.draws(&running).await;
    for thing in [&loading, &endless, &bomb] {
        browser.find(&format!("{}[data-filled]", card(thing))).await;
        assert!(!browser.has(&format!("{} img", card(thing))).await);
    }
    assert_eq!(browser.run("return window.pwned === undefined", Value::Null).await, true);
    assert_eq!(collector.heard(), Vec::<String>::new());
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_follows_the_contact_of_its_viber() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let large = fixture.has("large.txt", vec![b'a'; 2 * 1024 * 1024]).await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&owner).await;
    browser.go(&format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session())).await;
    browser.shows(&large, "It is fetched when you open it").await;
    fixture.viber.cut();
    browser.shows(&large, "offline").await;
    fixture.viber.connect().await;
    browser.shows(&large, "It is fetched when you open it").await;
}
