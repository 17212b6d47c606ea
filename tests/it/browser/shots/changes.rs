//! What an agent changed, and what people write beside it: differences in the conversation, a note that is suggested for
//! memory, and comments on lines of files, waiting, being written and refused.

use board_tests::{
    Engine, Fixture,
    board::HOME,
    llm::{Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::{Purpose, Shots};
use crate::spaces::Space;

const CART: &str = "use crate::vouchers;\n\n/// What the cart costs with these vouchers.\npub fn total(codes: &[Code]) -> Result<Money> {\n    \
    let mut found = Vec::new();\n    for code in codes {\n        found.push(vouchers::one(code)?);\n    }\n    price(&found)\n}\n\n\
    fn price(found: &[Voucher]) -> Result<Money> {\n    let sum = found.iter().map(|voucher| voucher.value).sum();\n    Ok(sum)\n}\n";
const LONG_LINE: &str = "https://metrics.example.com/d/cart/latency?from=1718000000000&to=1718600000000&var-shop=oslo&var-shop=bergen&\
    var-percentile=p50&var-percentile=p95&var-percentile=p99&refresh=30s&theme=light&panelId=aLongNameWithoutAnyPlaceToBreakIt";
const MEMORY: &str = "# Memory\n\n- Prices are in `prices/`, a file for each shop.\n- The tests are slow.\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_and_comments_have_their_pictures() {
    visit_changes(&Purpose::Pictures(super::folder())).await;
}

/// A session in which files were changed, with its tabs Files and Memory.
pub async fn visit_changes(purpose: &Purpose) {
    let before = "    let mut found = Vec::new();\n    for code in codes {\n        found.push(vouchers::one(code)?);\n    }\n    price(&found)\n}\n\n\
        fn price(found: &[Voucher]) -> Result<Money> {\n    let sum = found.iter().map(|voucher| voucher.value).sum();\n    Ok(sum)\n}\n";
    let after = "    let found = vouchers::all(codes)?;\n    price(&found)\n}\n\n\
        fn price(found: &[Voucher]) -> Result<Money> {\n    let sum = found.iter().map(|voucher| voucher.value).fold(Money::ZERO, |sum, value| sum.saturating_add(value).min(Money::MAX_OF_A_CART));\n    Ok(sum)\n}\n";
    let notes = format!(
        "# Latency\n\nMeasured at {LONG_LINE}\n\n| page | before | after |\n|:--|--:|--:|\n| cart | 412 ms | 38 ms |\n"
    );
    let script = vec![
        Reply::Stream(vec![
            Piece::text("I read the vouchers at once, and write down what I measured."),
            Piece::call("c1", "edit_file", json!({ "path": "src/cart.rs", "oldText": before, "newText": after })),
            Piece::call("c2", "write_file", json!({ "path": "docs/latency.md", "content": notes })),
            Piece::call("c3", "edit_file", json!({ "path": "src/cart.rs", "oldText": "is not there", "newText": "x" })),
        ]),
        Reply::text(
            "The cart page is **as fast as before**.\n\n<memory_suggestion>\nVouchers are read at once: `vouchers::all`.\n\
             </memory_suggestion>\n\nSay when I shall look at the checkout.",
        ),
    ];
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).tools(&["memory"]).with_viber().await;
    fixture.viber.write("workspace/MEMORY.md", MEMORY);
    fixture.repository(&[("src/cart.rs", CART), ("readme.md", "# Shop\n")]);
    let task = fixture.play_with("Why is the cart page 400 ms slower?", json!({ "memoryPolicy": "propose" })).await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let session = id(&task, "sessionId");
    let page = format!("{}/t/{HOME}/sessions/{session}", fixture.board.url);
    let (space, comments) = (fixture.space(), format!("/t/{HOME}/sessions/{session}/comments"));
    let comment = async |line: &str, quote: &str, remark: &str| {
        let fields = [
            ("space", space.as_str()),
            ("path", "src/cart.rs"),
            ("place", "diff"),
            ("side", "new"),
            ("line", line),
            ("quote", quote),
            ("remark", remark),
        ];
        fixture.owner().post_form(&comments, &fields).await.expect(303);
    };
    comment(
        "5",
        "    let found = vouchers::all(codes)?;",
        "And when one of them is used twice?\nThe old code took it twice.",
    )
    .await;
    let open_all = "for (const fold of document.querySelectorAll('.calls, .call')) fold.open = true;
        document.querySelector('.call').scrollIntoView({ block: 'start' })";
    let one_more =
        "document.querySelector('.pane-space .comment-form .field-error').scrollIntoView({ block: 'center' })";
    for shots in Shots::on_each_screen(purpose).await {
        let browser = &shots.browser;
        browser.sign_in(fixture.owner()).await;
        browser.go(&format!("{page}?pane=")).await;
        browser.sees("#entries", "Suggests a note for memory").await;
        browser.find("#task-state[data-task-state=completed]").await;
        shots.take("session-suggestion").await;
        browser.run(open_all, Value::Null).await;
        browser.find(".call[open] .diff.numbered:not(.written) tr[data-op=add]").await;
        shots.take("session-changes").await;
        // By keyboard: the ring around what scrolls.
        browser.run("document.querySelector('.call .scroll-y').focus()", Value::Null).await;
        browser.press(&["\u{e010}"]).await;
        shots.take("session-changes-focus").await;

        browser.go(&format!("{page}?pane=memory")).await;
        browser.sees(".proposal", "vouchers::all").await;
        shots.take("memory-suggestion").await;

        browser.go(&format!("{page}?pane=files")).await;
        browser.sees(".pane-space .changes", "cart.rs").await;
        shots.take("files-changed").await;
        browser.click(".pane-space .change > summary:has([title='src/cart.rs'])").await;
        browser.sees(".pane-space .comment", "used twice").await;
        shots.take("files-comment").await;
        browser
            .run(
                "document.querySelector('.pane-space .line-link[data-line=\"10\"][data-side=new]').focus()",
                Value::Null,
            )
            .await;
        browser.press(&["\u{e007}"]).await;
        browser.fill(".comment-form textarea", "Why is there a bound now? Say it in a comment, or leave it out.").await;
        shots.take("files-comment-form").await;
        // What the Board refuses stays where it was written.
        let too_long = "document.querySelector('.comment-form textarea').removeAttribute('maxlength');
            document.querySelector('.comment-form [name=line]').value = '0'";
        browser.run(too_long, Value::Null).await;
        browser.click(".comment-form .primary").await;
        browser.sees(".comment-form .field-error", "from 1 on").await;
        browser.run(one_more, Value::Null).await;
        shots.take("files-comment-refused").await;
        browser.go(&format!("{}{comments}", fixture.board.url)).await;
        browser.find("#send-comments").await;
        shots.take("comments").await;
    }
}
