//! What models cost a team: kept by version, shown with what lacks a price, sent with each task.

use board_tests::{
    Answer, Engine, FakeDaemon, Fixture, Person,
    fake_daemon::{accepted, completed, started},
    tasks::id,
};
use serde_json::{Value, json};

crate::on_both_databases!(prices_go_with_every_task, prices_are_changed_on_their_page, prices_are_bounded);

const PRICES: &str = "/api/v1/prices";
const PAGE: &str = "/t/home/settings/prices";

fn list() -> Value {
    json!({ "prices": [{ "model": "acme/m1", "input": 3.0, "output": 15.0, "cachedInput": 0.3 },
        { "model": "acme/*", "input": 1.0, "output": 2.0 }] })
}

async fn put_over(person: &Person, version: &str, body: &Value) -> Answer {
    person.send(person.request(reqwest::Method::PUT, PRICES).header("if-match", version).json(body)).await
}

async fn prices_go_with_every_task(engine: Engine) {
    let mut fixture: Fixture<FakeDaemon> = Fixture::on(engine).owner().with_fake().await;
    let admin = fixture.board.token("home", "admin").await;
    let none = fixture.operator.get(PRICES).await.expect(200);
    assert_eq!((none.json(), none.headers["etag"].to_str().ok()), (json!({ "prices": [] }), Some("\"0\"")));
    fixture.operator.put(PRICES, &list()).await.expect(403);
    let stored = put_over(&admin, "\"0\"", &list()).await.expect(200);
    assert_eq!((stored.json(), stored.headers["etag"].to_str().ok()), (list(), Some("\"1\"")));
    let late = put_over(&admin, "\"0\"", &json!({ "prices": [] })).await.expect(412);
    assert_eq!((late.code().as_str(), late.json()["current"].as_str()), ("stale", Some("1")));
    assert_eq!(fixture.operator.get(PRICES).await.expect(200).json(), list());

    // Also with a session's first task, which is sent without reading anything back.
    let viber = fixture.viber_id.clone();
    let task = fixture.operator.submit(&viber, "One").await;
    let first = fixture.viber.submitted().await;
    fixture.viber.report(&first.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    fixture.operator.follow_up(&task, "Two").await;
    let next = fixture.viber.submitted().await;
    for submit in [first, next] {
        let sent: Vec<_> =
            submit.prices.iter().map(|price| (price.model.as_str(), price.input, price.cached)).collect();
        assert_eq!(sent, [("acme/m1", 3.0, Some(0.3)), ("acme/*", 1.0, None)]);
    }
    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).body;
    assert!(audit.contains("prices.change"), "{audit}");

    let stranger = fixture.board.operator("elsewhere", "stranger@example.org", "owner").await;
    assert_eq!(stranger.get(PRICES).await.expect(200).json(), json!({ "prices": [] }));
    stranger.put(PRICES, &json!({ "prices": [] })).await.expect(200);
    assert_eq!(fixture.operator.get(PRICES).await.expect(200).json(), list());
    assert!(!id(&task, "id").is_empty());
    fixture.board.assert_invariants().await;
}

async fn prices_are_changed_on_their_page(engine: Engine) {
    let fixture: Fixture<FakeDaemon> = Fixture::on(engine).owner().with_fake().await;
    let owner = fixture.owner();
    let refused = owner.post_form(PAGE, &[("version", "0"), ("prices", "acme/m1 three 4")]).await.expect(422).body;
    assert!(refused.contains("acme/m1 three 4") && refused.contains("is no price"), "{refused}");
    owner.post_form(PAGE, &[("version", "0"), ("prices", "acme/m1 3 15 0.3\r\n\r\nacme/* $1 2")]).await.expect(303);
    assert_eq!(owner.get(PRICES).await.expect(200).json(), list());
    let shown = owner.page(PAGE).await.expect(200).body;
    assert!(shown.contains("acme/m1 3 15 0.3\nacme/* 1 2") && shown.contains("Changed last by owner"), "{shown}");
    let late = owner.post_form(PAGE, &[("version", "0"), ("prices", "m9 1 1")]).await.expect(409).body;
    assert!(late.contains("Somebody else changed") && late.contains("m9 1 1") && late.contains("acme/* 1 2"), "{late}");
    assert!(late.contains(r#"name="version" value="1""#), "saving again replaces what is shown: {late}");
    let viewer = fixture.board.operator("home", "vera@example.org", "viewer").await;
    let page = viewer.page(PAGE).await.expect(200).body;
    assert!(page.contains("readonly") && !page.contains(">Save<"), "{page}");
    viewer.post_form(PAGE, &[("version", "1"), ("prices", "")]).await.expect(403);
    fixture.board.assert_invariants().await;
}

async fn prices_are_bounded(engine: Engine) {
    let fixture: Fixture<FakeDaemon> = Fixture::on(engine).owner().with_fake().await;
    let price = |model: &str, input: f64| json!({ "model": model, "input": input, "output": 1.0 });
    let many: Vec<Value> = (0..101).map(|n| price(&format!("m{n}"), 1.0)).collect();
    for (prices, code) in [
        (vec![price("", 1.0)], "bad_price"),
        (vec![price("two words", 1.0)], "bad_price"),
        (vec![price(&"x".repeat(201), 1.0)], "bad_price"),
        (vec![price("m", -1.0)], "bad_price"),
        (vec![price("m", 1e9)], "bad_price"),
        (vec![price("m", 1.0), price("m", 2.0)], "bad_price"),
        (many, "too_many_prices"),
    ] {
        let answer = fixture.owner().put(PRICES, &json!({ "prices": prices })).await.expect(422);
        assert_eq!(answer.code(), code, "{prices:?}");
    }
    assert_eq!(fixture.owner().get(PRICES).await.expect(200).json(), json!({ "prices": [] }));
    fixture.board.assert_invariants().await;
}
