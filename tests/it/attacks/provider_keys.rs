//! A181 to A184: a model provider's key that is sent from the page is on the viber and nowhere else, goes only where the
//! machine allows it, and a viber that lies about it gains nothing.
//!
//! The ledger knows each key: `assert_invariants` looks for it in the database, the data folder and the log.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use board_tests::{
    Engine, FakeBoard, FakeDaemon, Fixture, Llm, Person, Viber, canary::Canary, eventually, fake_board::Behaviour,
    llm::Reply,
};
use protocol::{FromDaemon, KeyOffer, KeySource, ProviderInfo, ToDaemon, ViberState};
use reqwest::header;
use rustls::crypto::{
    aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305 as HPKE,
    hpke::{Hpke as _, HpkePublicKey},
};
use serde_json::{Value, json};

const AGENT: &str = "name: Default\nmode: always_execute\nmaxSteps: 5\ntools: [file]\n";

/// `config.yaml` of a machine with the provider `acme`, whose endpoint is `llm`, and no key.
fn config(llm: &Llm, more: &str) -> String {
    format!("providers:\n  acme: {{ api: openai, baseUrl: {}/v1 }}\n{more}", llm.url)
}

fn secret_file(viber: &Viber, provider: &str) -> PathBuf {
    viber.home().join("secrets").join(provider)
}

fn form<'a>(key: &'a str, model: &'a str) -> [(&'static str, &'a str); 3] {
    [("provider", "acme"), ("api_key", key), ("model", model)]
}

/// The audit's rows about keys, action and detail, as soon as there are `n`: on PostgreSQL they get their numbers late.
async fn noted(owner: &Person, n: usize) -> Vec<(String, String)> {
    eventually("the audit's rows", || async {
        let all = owner.get("/api/v1/audit").await.expect(200).json();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let rows = all["items"].as_array().expect("rows").iter().rev();
        let ours = rows.filter(|row| text(row, "action").starts_with("provider_key."));
        let found: Vec<_> = ours.map(|row| (text(row, "action"), text(row, "detail"))).collect();
        (found.len() >= n).then_some(found)
    })
    .await
}

async fn from_the_page(engine: Engine) {
    let fixture = Fixture::on(engine).owner().scripted_model([Reply::text("Done.")]).with_enrolled_viber().await;
    fixture.viber.write("config.yaml", &config(&fixture.llm, "boardKeys: on\n"));
    fixture.viber.write("agents/default.yaml", AGENT);
    let fixture = fixture.running().await;
    let (board, owner, viber) = (&fixture.board, fixture.owner(), &fixture.viber);
    let key = Canary::new("a provider's key");
    board.ledger().secret("a provider's key", &key.secret);
    let page = format!("/t/home/vibers/{}", fixture.viber_id);

    // Before: the home page offers the form, the viber's page too, and neither has a key.
    let home = owner.page("/t/home").await.expect(200).body;
    for part in ["id=\"key-card-title\"", "type=\"password\"", "autocomplete=\"off\"", "<option selected>acme</option>"]
    {
        assert!(home.contains(part), "{part} is not in {home}");
    }
    assert!(owner.page(&page).await.expect(200).body.contains("openai, no key"));

    // Only an admin: whoever may give tasks may not choose who is paid and who reads along.
    let operator = board.operator("home", "op@example.org", "operator").await;
    operator.post_form(&format!("{page}/key"), &form(&key.secret, "")).await.expect(403);
    assert!(!operator.page(&page).await.expect(200).body.contains("name=\"api_key\""));
    // What is no key comes back in words, and the form without it.
    for bad in [String::new(), format!("{} two", key.secret), "k".repeat(9000), format!("{}\u{e9}", key.secret)] {
        let back = owner.post_form(&format!("{page}/key"), &form(&bad, "scripted")).await.expect(422).body;
        assert!(back.contains("that is not a key") && back.contains("value=\"scripted\""), "{back}");
        key.not_in("the form that came back", &back);
    }
    for strange in ["nobody", "demo", "../state/credential", ""] {
        let fields = [("provider", strange), ("api_key", key.secret.as_str())];
        let back = owner.post_form(&format!("{page}/key"), &fields).await;
        assert!([409, 422].contains(&back.status), "{strange}: {}", back.status);
        key.not_in("a refusal", &back.body);
    }
    assert!(!secret_file(viber, "acme").exists());

    // A plain form: the key is there, closed, and the page says where from.
    let sent = owner.post_form(&format!("{page}/key"), &form(&key.secret, "acme/scripted")).await.expect(303);
    assert_eq!(sent.header("location"), format!("{page}#providers"));
    key.not_in("the answer", &format!("{:?}{}", sent.headers, sent.body));
    let file = secret_file(viber, "acme");
    assert_eq!(fs::read_to_string(&file).expect("the key"), key.secret);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let shown = owner.page(&page).await.expect(200).body;
    assert!(shown.contains("openai, key from a file in secrets/"), "{shown}");
    key.not_in("the viber's page", &shown);
    let provider = owner.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
    let provider = provider["providers"].as_array().expect("a list").iter().find(|p| p["id"] == "acme").cloned();
    let provider = provider.expect("acme");
    assert_eq!(
        (&provider["hasKey"], &provider["keySource"], &provider["acceptsKey"]),
        (&json!(true), &json!("file"), &json!(true))
    );

    // The agent, which names no model, uses it at once; so does the test.
    let test = owner.post_form(&format!("{page}/test"), &[("provider", "acme")]).await.expect(200).body;
    assert!(test.contains("acme/scripted answered"), "{test}");
    let task = fixture.play("say done").await;
    assert_eq!(task["state"], "completed", "{task}");
    let bearer = format!("Bearer {}", key.secret);
    let requests = fixture.llm.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|request| request.headers[header::AUTHORIZATION.as_str()] == bearer.as_str()));
    assert!(
        !owner.page("/t/home").await.expect(200).body.contains("key-card-title"),
        "there is nothing to add any more"
    );

    // Again, with another key and a fragment's answer, which tests it; the person's model stays.
    let second = Canary::new("a second key");
    board.ledger().secret("a second key", &second.secret);
    let request = owner.form(&format!("{page}/key"), &form(&second.secret, "")).header("HX-Request", "true");
    let fragment = owner.send(request).await.expect(200).body;
    assert!(fragment.contains("Saved on the machine") && fragment.contains("acme/scripted answered"), "{fragment}");
    second.not_in("the fragment", &fragment);
    assert_eq!(fs::read_to_string(&file).expect("the key"), second.secret);

    // And away with it.
    owner.post_form(&format!("{page}/key/remove"), &[("provider", "acme")]).await.expect(303);
    assert!(!file.exists());
    assert!(owner.page(&page).await.expect(200).body.contains("openai, no key"));
    owner.post_form(&format!("{page}/key/remove"), &[("provider", "acme")]).await.expect(303);

    let said = |action: &str| (action.to_owned(), "acme on lab".to_owned());
    let all = ["provider_key.set", "provider_key.set", "provider_key.remove", "provider_key.remove"].map(said);
    assert_eq!(noted(owner, all.len()).await, all);
    for secret in [&key, &second] {
        secret.not_in("the daemon's log", &viber.log());
        secret.not_below(&viber.home(), |file| file.starts_with(viber.home().join("secrets")));
    }
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a181_a_key_from_the_page_is_on_the_viber_and_nowhere_else_sqlite() {
    from_the_page(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a181_a_key_from_the_page_is_on_the_viber_and_nowhere_else_postgres() {
    from_the_page(Engine::Postgres).await;
}

/// A daemon at a Board that does as it likes.
async fn at_a_hostile_board(llm: &Llm, more: &str) -> (FakeBoard, Viber) {
    let board = FakeBoard::start(Behaviour::Serve).await;
    let mut viber = Viber::fresh("lab");
    board.enrol(&viber);
    viber.write("config.yaml", &config(llm, more));
    viber.write("agents/default.yaml", AGENT);
    viber.run();
    (board, viber)
}

/// What a Board sends that seals `key` for an offer.
fn sealed(viber: &Viber, provider: &str, offer: &KeyOffer, key: &str) -> Value {
    let credential: Value =
        serde_json::from_str(&fs::read_to_string(viber.home().join("state/credential")).expect("there")).expect("JSON");
    let id = credential["viberId"].as_str().expect("an id").parse().expect("an id");
    let public = HpkePublicKey(BASE64_URL_SAFE_NO_PAD.decode(&offer.public_key).expect("base64"));
    let context = protocol::provider_key::seal_context(&id, provider, &offer.offer);
    let info = protocol::provider_key::PROVIDER_KEY_SEAL;
    let (encapsulated, sealed) = HPKE.seal(info, &context, key.as_bytes(), &public).expect("a public key");
    let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    json!({ "provider": provider, "offer": offer.offer, "encapsulated": text(&encapsulated.0), "sealed": text(&sealed) })
}

async fn offered(board: &FakeBoard, provider: &str) -> KeyOffer {
    let offer = board.ask("provider.key.offer", json!({ "provider": provider })).await.expect("an offer");
    serde_json::from_value(offer).expect("an offer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a182_a_viber_takes_no_key_that_its_machine_did_not_allow() {
    let llm = Llm::start([]).await;
    // Off unless the file says on, whatever the Board asks.
    for off in ["", "boardKeys: off\n"] {
        let (board, viber) = at_a_hostile_board(&llm, off).await;
        viber.write("secrets/acme", "sk-there-before");
        let offer = KeyOffer { offer: "x".to_owned(), public_key: BASE64_URL_SAFE_NO_PAD.encode([9; 32]) };
        for (method, params) in [
            ("provider.key.offer", json!({ "provider": "acme" })),
            ("provider.key.set", sealed(&viber, "acme", &offer, "sk-planted")),
            ("provider.key.remove", json!({ "provider": "acme" })),
        ] {
            let why = board.ask(method, params).await.expect_err(method);
            assert!(why.contains("takes no keys from the Board"), "{method}: {why}");
        }
        assert_eq!(fs::read_to_string(secret_file(&viber, "acme")).expect("there"), "sk-there-before");
    }

    let more =
        "  mine: { api: openai, baseUrl: \"http://127.0.0.1:9/v1\", apiKey: \"sk-of-the-file\" }\nboardKeys: on\n";
    let (board, viber) = at_a_hostile_board(&llm, more).await;
    // What has precedence would make the new key useless, and it says so.
    let why = board.ask("provider.key.offer", json!({ "provider": "mine" })).await.expect_err("config.yaml");
    assert!(why.contains("apiKey in config.yaml") && !why.contains("sk-of"), "{why}");
    // Names become names of files.
    for strange in ["../state/credential", "demo", "", ".", "x/y", "a\u{0}b", &"n".repeat(10_000)] {
        assert!(board.ask("provider.key.offer", json!({ "provider": strange })).await.is_err(), "{strange:?}");
        let offer = offered(&board, "acme").await;
        assert!(board.ask("provider.key.set", sealed(&viber, strange, &offer, "sk-planted")).await.is_err());
    }
    // A recorded one sets nothing again: not later, not for another provider, not after a new start.
    let offer = offered(&board, "acme").await;
    let recorded = sealed(&viber, "acme", &offer, "sk-of-ada-0123456789");
    board.ask("provider.key.set", recorded.clone()).await.expect("set");
    assert_eq!(fs::read_to_string(secret_file(&viber, "acme")).expect("there"), "sk-of-ada-0123456789");
    board.ask("provider.key.remove", json!({ "provider": "acme" })).await.expect("removed");
    let why = board.ask("provider.key.set", recorded.clone()).await.expect_err("a second time");
    assert!(why.contains("used up or too old"), "{why}");
    let mut moved = sealed(&viber, "acme", &offered(&board, "acme").await, "sk-of-ada-0123456789");
    moved["provider"] = json!("openai");
    board.ask("provider.key.set", moved).await.expect_err("for another provider");
    for (name, junk) in [("sealed", json!("AAAA")), ("encapsulated", json!("")), ("sealed", json!(7))] {
        let mut broken = sealed(&viber, "acme", &offered(&board, "acme").await, "sk-of-ada-0123456789");
        broken[name] = junk;
        let why = board.ask("provider.key.set", broken).await.expect_err(name);
        assert!(!why.contains("sk-of-ada-0123456789"), "{why}");
    }
    for bad in ["", "two words", "a\nb", "\u{1b}[2J", &"k".repeat(8193)] {
        let offer = offered(&board, "acme").await;
        assert!(board.ask("provider.key.set", sealed(&viber, "acme", &offer, bad)).await.is_err(), "{bad:?}");
    }
    // A model's name is a name, and what a person chose is not replaced.
    let with_model = async |model: &str| {
        let mut named = sealed(&viber, "acme", &offered(&board, "acme").await, "sk-of-ada-0123456789");
        named["model"] = json!(model);
        board.ask("provider.key.set", named).await
    };
    assert!(with_model("x\" }\nboardKeys: off #").await.is_err());
    assert_eq!(with_model("scripted").await.expect("set"), json!({}));
    let note = with_model("other").await.expect("set");
    assert!(note["note"].as_str().is_some_and(|note| note.contains("defaults")), "{note}");
    let config = fs::read_to_string(viber.home().join("config.yaml")).expect("there");
    assert!(
        config.starts_with("providers:\n") && config.ends_with("defaults: { model: \"acme/scripted\" }\n"),
        "{config}"
    );
    let names: Vec<_> = fs::read_dir(viber.home().join("secrets")).expect("there").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    Canary::of("a provider's key", "sk-of-ada-0123456789").not_in("the daemon's log", &viber.log());
}

/// A fake viber says that it takes keys for `acme`; answers where the form is sent.
async fn takes_keys(fixture: &mut Fixture<FakeDaemon>) -> String {
    let page = format!("/t/home/vibers/{}", fixture.viber_id);
    let provider =
        ProviderInfo { id: "acme".into(), api: "openai".into(), accepts_key: true, ..ProviderInfo::default() };
    let state = ViberState { providers: Some(vec![provider]), ..ViberState::default() };
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let shows = || async { fixture.owner().page(&page).await.expect(200).body.contains("api_key").then_some(()) };
    eventually("the form", shows).await;
    format!("{page}/key")
}

/// The next request of this method, and its number; others are refused.
async fn requested(viber: &mut FakeDaemon, wanted: &str) -> (u64, Value) {
    loop {
        let (id, method, params) = viber
            .until(wanted, |frame| match frame {
                ToDaemon::Request { id, method, params } => Some((*id, method.clone(), params.clone())),
                _ => None,
            })
            .await;
        if method == wanted {
            return (id, params);
        }
        viber.send(&FromDaemon::Response { id, ok: false, result: Value::Null, error: Some("no".into()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a183_a_viber_that_lies_about_keys_gains_nothing_and_the_board_shows_none() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let path = takes_keys(&mut fixture).await;
    let key = Canary::new("a provider's key");
    fixture.board.ledger().secret("a provider's key", &key.secret);
    let Fixture { board, viber, .. } = &mut fixture;
    let owner = board.operator("home", "boss@example.org", "admin").await;
    let fields = form(&key.secret, "");
    // Public keys that are none: nothing leaves the Board.
    for public_key in ["", "AAAA", "<script>", &BASE64_URL_SAFE_NO_PAD.encode([0; 32])] {
        let answers = async {
            let (id, params) = requested(viber, "provider.key.offer").await;
            assert_eq!(params, json!({ "provider": "acme" }));
            let result = json!({ "offer": "o", "publicKey": public_key });
            viber.send(&FromDaemon::Response { id, ok: true, result, error: None }).await;
        };
        let (back, ()) = tokio::join!(owner.post_form(&path, &fields), answers);
        let back = back.expect(422).body;
        assert!(back.contains("not understood"), "{back}");
        key.not_in("the form that came back", &back);
    }

    // A good one: the frame holds the key sealed, and an answer that repeats it is not repeated.
    let (public, _private) = HPKE.generate_key_pair().expect("a pair");
    let offer = json!({ "offer": "o", "publicKey": BASE64_URL_SAFE_NO_PAD.encode(public.0) });
    let answers = async {
        let (id, _) = requested(viber, "provider.key.offer").await;
        viber.send(&FromDaemon::Response { id, ok: true, result: offer, error: None }).await;
        let (id, params) = requested(viber, "provider.key.set").await;
        key.not_in("the link", &params.to_string());
        let error = Some(format!("no, {} is <b>wrong</b>", key.secret));
        viber.send(&FromDaemon::Response { id, ok: false, result: Value::Null, error }).await;
    };
    let (back, ()) = tokio::join!(owner.post_form(&path, &fields), answers);
    let back = back.expect(422).body;
    key.not_in("the refusal", &back);
    assert!(back.contains("no, … is") && !back.contains("<b>wrong"), "{back}");
    let rows = noted(&owner, 2).await;
    let actions: Vec<_> = rows.iter().map(|row| row.0.as_str()).collect();
    assert_eq!(actions, ["provider_key.set", "provider_key.unconfirmed"], "nothing is noted that was not sent");

    // It goes away in the middle: said, and nothing hangs.
    let goes = async {
        requested(viber, "provider.key.offer").await;
        viber.cut();
    };
    let (back, ()) = tokio::join!(owner.post_form(&path, &fields), goes);
    let back = back.expect(409).body;
    assert!(back.contains("not connected"), "{back}");
    key.not_in("the form that came back", &back);
    fixture.board.assert_invariants().await;
}

/// What a viber says of the test that follows is shown without the key, should it repeat that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a183_a_test_that_repeats_the_key_is_not_quoted_with_it() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let path = takes_keys(&mut fixture).await;
    let key = Canary::new("a provider's key");
    fixture.board.ledger().secret("a provider's key", &key.secret);
    let Fixture { board, viber, .. } = &mut fixture;
    let owner = board.operator("home", "boss@example.org", "admin").await;
    for works in [true, false] {
        let (public, _private) = HPKE.generate_key_pair().expect("a pair");
        let offer = json!({ "offer": "o", "publicKey": BASE64_URL_SAFE_NO_PAD.encode(public.0) });
        let said = format!("you sent {}", key.secret);
        let answers = async {
            let (id, _) = requested(viber, "provider.key.offer").await;
            viber.send(&FromDaemon::Response { id, ok: true, result: offer, error: None }).await;
            let (id, _) = requested(viber, "provider.key.set").await;
            viber.send(&FromDaemon::Response { id, ok: true, result: json!({}), error: None }).await;
            let provider = ProviderInfo {
                id: "acme".into(),
                api: "openai".into(),
                accepts_key: true,
                has_key: true,
                key_source: Some(KeySource::File),
                ..ProviderInfo::default()
            };
            let state = ViberState { providers: Some(vec![provider]), ..ViberState::default() };
            viber.send(&FromDaemon::State(Box::new(state))).await;
            let (id, _) = requested(viber, "provider.test").await;
            let result = if works { json!({ "sentence": said }) } else { Value::Null };
            viber.send(&FromDaemon::Response { id, ok: works, result, error: (!works).then(|| said.clone()) }).await;
        };
        let request = owner.form(&path, &form(&key.secret, "")).header("HX-Request", "true");
        let (back, ()) = tokio::join!(owner.send(request), answers);
        let back = back.expect(200).body;
        key.not_in("the outcome of a test", &back);
        assert!(back.contains("you sent …"), "{back}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a184_keys_are_sent_no_faster_than_people_send_them() {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let path = takes_keys(&mut fixture).await;
    let Fixture { board, viber, .. } = &mut fixture;
    let owner = board.operator("home", "boss@example.org", "admin").await;
    let mut sent = Vec::new();
    for n in 0..12 {
        let key = format!("sk-{n}");
        let fields = form(&key, "");
        let mut post = std::pin::pin!(owner.post_form(&path, &fields));
        let answer = tokio::select! {
            answer = &mut post => answer,
            (id, _) = requested(viber, "provider.key.offer") => {
                let refused = FromDaemon::Response { id, ok: false, result: Value::Null, error: Some("no".into()) };
                viber.send(&refused).await;
                post.await
            }
        };
        sent.push(answer.status);
    }
    assert_eq!(sent.iter().filter(|status| **status == 422).count(), 10, "{sent:?}");
    assert_eq!(sent[10..], [429, 429]);
    board.assert_invariants().await;
}
