//! What is attached and handed over: cards in the conversation, the composer of a session with files and with the choice of
//! who answers, and a new task.

use board_tests::{
    Engine, Fixture,
    fake_daemon::{completed, progress, text},
};
use protocol::{ArtifactId, FromDaemon, ToDaemon};
use reqwest::header;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Purpose, Shots};
use crate::composer::answers::offers;

const CHART: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 200 100\"><g fill=\"#0f766e\"><rect x=\"10\" y=\"60\" \
    width=\"30\" height=\"40\"/><rect x=\"50\" y=\"30\" width=\"30\" height=\"70\"/><rect x=\"90\" y=\"45\" width=\"30\" \
    height=\"55\"/><rect x=\"130\" y=\"10\" width=\"30\" height=\"90\"/></g></svg>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cards_and_composers_have_their_pictures() {
    visit_composers(&Purpose::Pictures(super::folder())).await;
}

/// A session with artifacts of several kinds, its composer, and that of a new task.
pub async fn visit_composers(purpose: &Purpose) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    offers(&mut fixture).await;
    let screens = Shots::on_each_screen(purpose).await;
    for shots in &screens {
        let browser = &shots.browser;
        browser.sign_in(fixture.owner()).await;
        browser.go(&format!("{}/t/home", fixture.board.url)).await;
        browser.find(".examples a").await;
        browser.sees("#choice select[name=agent]", "Coder").await;
        shots.take("home-examples").await;
    }

    fixture.begin("Which shops sell fewer shoes since June, and why?").await;
    let sales =
        b"shop,June,July,change\nOslo,412,398,-3 %\nBergen,95,31,-67 %\nTrondheim,120,131,+9 %\nMolde,44,45,+2 %\n";
    let things: Vec<(&str, &str, &str, Vec<u8>)> = vec![
        ("chart.svg", "Shoes by shop", "image/svg+xml", CHART.into()),
        ("sales.csv", "sales.csv", "text/plain", sales.to_vec()),
        (
            "why.md",
            "Why Bergen sells less",
            "text/plain",
            b"# Why\n\nThe **import** of 4 July left out\neach shop whose code begins with B.\n".to_vec(),
        ),
        ("raw.log", "raw.log", "text/plain", vec![b'x'; 2_400_000]),
    ];
    fixture.tell(vec![text("I counted what each shop sold, and drew it.\n\n")]).await;
    for (n, (name, title, sniffed, bytes)) in things.iter().enumerate() {
        let id = ArtifactId::new(1_700_000_000_000 + i64::try_from(n).expect("few")).to_string();
        let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let artifact = json!({ "id": name, "title": title, "ref": format!("artifacts/{}/{name}", fixture.task()),
            "artifactId": id, "size": bytes.len(), "sha256": sha256, "sniffed": sniffed });
        fixture.tell(vec![progress(&json!({ "type": "artifact", "artifact": artifact }))]).await;
    }
    fixture.tell(vec![text("**Bergen** lost two thirds.\n\n"), completed("")]).await;
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, fixture.session());
    screens[0].browser.go(&page).await;
    for _ in 0..3 {
        let offer = fixture.viber.until("an offer", |frame| match frame {
            ToDaemon::Request { id, method, params } if method == "artifact.offer" => Some((*id, params.clone())),
            _ => None,
        });
        let (id, params) = offer.await;
        let (.., bytes) = things.iter().find(|(name, ..)| params["name"] == *name).expect("one of them");
        let result = json!({ "size": bytes.len() });
        fixture.viber.send(&FromDaemon::Response { id, ok: true, result, error: None }).await;
        let put = reqwest::Client::new()
            .put(format!("{}/api/daemon/blobs/{}", fixture.board.url, params["artifactId"].as_str().expect("an id")))
            .bearer_auth(&fixture.viber.credential)
            .header("x-content-sha256", params["sha256"].as_str().expect("a hash"))
            .header(header::CONTENT_LENGTH, bytes.len());
        assert_eq!(put.body(bytes.clone()).send().await.expect("an answer").status(), 201);
    }
    for shots in &screens {
        let browser = &shots.browser;
        browser.go(&page).await;
        browser.sees(".cards", "Bergen").await;
        shots.take("session-cards").await;
        let bring = "const held = new DataTransfer();
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [80, 60];
            const pen = canvas.getContext('2d');
            pen.fillStyle = 'teal'; pen.fillRect(10, 10, 60, 40);
            const bytes = Uint8Array.from(atob(canvas.toDataURL().split(',')[1]), (c) => c.charCodeAt(0));
            held.items.add(new File([bytes], 'screenshot.png', { type: 'image/png' }));
            held.items.add(new File(['a,b'], 'prices for July.csv', { type: 'text/csv' }));
            document.querySelector('#composer textarea').dispatchEvent(
              new ClipboardEvent('paste', { clipboardData: held, bubbles: true, cancelable: true }));";
        browser.run(bring, Value::Null).await;
        browser.sees("#attached", "prices for July.csv").await;
        browser.fill("#content", "Compare it with this").await;
        browser.click(".answerer summary").await;
        shots.take("composer-files").await;
        browser.go(&format!("{}/t/home", fixture.board.url)).await;
        browser.run(bring, Value::Null).await;
        browser.sees("#attaching", "prices for July.csv").await;
        browser.click(".composer-options summary").await;
        shots.take("home-files").await;
    }
}
