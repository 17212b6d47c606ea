//! The README's pictures: a session at work with its plan beside it, on a desk and on a phone. `docs/session.png` is
//! `readme-desk-light.png`, `docs/phone.png` is `readme-phone-light.png`.

use board_tests::{
    Engine, Fixture,
    board::HOME,
    llm::{Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::{Purpose, Shots};

const CART: &str = "use crate::vouchers;\n\npub fn total(codes: &[Code]) -> Result<Money> {\n    let mut found = Vec::new();\n    \
    for code in codes {\n        found.push(vouchers::one(code)?);\n    }\n    price(&found)\n}\n";
const FOUND: &str = "The cart page asks for **each voucher by itself**: 40 codes are 40 reads. I read them at once.\n\n\
    | page | before | after |\n|:--|--:|--:|\n| cart | 412 ms | 38 ms |\n| checkout | 95 ms | 31 ms |\n\nNow the tests.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readme_has_its_pictures() {
    visit_readme(&Purpose::Pictures(super::folder())).await;
}

/// A session at work, with its plan beside it where there is room.
pub async fn visit_readme(purpose: &Purpose) {
    let plan = |states: [&str; 4]| {
        let titles = ["Find what is slow", "Read vouchers at once", "Run the tests", "Measure it again"];
        let steps: Vec<Value> =
            titles.iter().zip(states).map(|(title, status)| json!({ "title": title, "status": status })).collect();
        json!({ "goal": "The cart page is as fast as before", "steps": steps })
    };
    let edit = json!({
        "path": "src/cart.rs",
        "oldText": "    let mut found = Vec::new();\n    for code in codes {\n        found.push(vouchers::one(code)?);\n    }\n",
        "newText": "    let found = vouchers::all(codes)?;\n",
    });
    let tests = "for t in empty one many expired twice; do echo \"test cart::vouchers_$t ... ok\"; done; sleep 600";
    let script = vec![
        Reply::Stream(vec![
            Piece::text("I look at how the cart page reads its vouchers."),
            Piece::call("c1", "update_plan", plan(["working", "pending", "pending", "pending"])),
            Piece::call("c2", "read_file", json!({ "path": "src/cart.rs" })),
        ]),
        Reply::Stream(vec![
            Piece::call("c3", "edit_file", edit),
            Piece::call("c4", "update_plan", plan(["done", "done", "working", "pending"])),
        ]),
        Reply::Stream(vec![Piece::text(FOUND), Piece::call("c5", "shell", json!({ "command": tests }))]),
    ];
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).tools(&["plan"]).with_viber().await;
    fixture.viber.write_at(&fixture.viber.space().join("src/cart.rs"), CART);
    for sql in [
        "UPDATE teams SET name = 'Fernworks'",
        "UPDATE vibers SET name = 'kiln-03'",
        "UPDATE operators SET name = 'Inès Marchetti'",
    ] {
        fixture.board.sql(sql).await;
    }
    let said = [
        ("goal", "Why is the cart page 400 ms slower since Tuesday?"),
        ("viber", fixture.viber_id.as_str()),
        ("key", ""),
    ];
    let page =
        fixture.owner().post_form(&format!("/t/{HOME}/tasks"), &said).await.expect(303).header("location").to_owned();
    for (shots, pane) in Shots::on_each_screen(purpose).await.iter().zip(["?pane=plan", ""]) {
        shots.browser.sign_in(fixture.owner()).await;
        shots.browser.go(&format!("{}{page}{pane}", fixture.board.url)).await;
        shots.browser.sees(".call[data-state=working] .out", "vouchers_twice ... ok").await;
        shots.take("readme").await;
    }
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    fixture.operator.stop(id(&tasks["items"][0], "id")).await.expect(200);
}
