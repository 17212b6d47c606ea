//! The editor in a browser: with scripts and an editor on the machine at the same time, and without scripts.

use board_tests::{
    Browser, Engine, Fixture,
    browser::{Screen, Scripts},
    eventually,
};

use super::Workspace;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_made_changed_from_both_sides_renamed_and_deleted() {
    let fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    let browser = Browser::open(Scripts::On).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}{}", fixture.board.url, fixture.page("").trim_end_matches('/'))).await;
    browser.fill("#new", "notes.md").await;
    browser.click("form.inline-form button").await;
    browser.fill("#file", "# Notes\n\nA **first** line.\n").await;
    browser.click("#editor button.primary").await;
    browser.sees("#file-view", "A first line.").await;
    eventually("it is on the disk", async || {
        fixture.on_disk("notes.md").filter(|text| text.starts_with("# Notes\n\nA **first** line."))
    })
    .await;

    // Somebody types here; an editor on the machine saves meanwhile: told at once, and nothing typed is lost.
    browser.find("body[data-live=on]").await;
    browser.click("#file-view a.primary").await;
    browser.find("body[data-live=on]").await;
    browser.fill("#file", "# Notes\n\nWritten here.\n").await;
    fixture.editor("notes.md", "# Notes\n\nWritten there.\n").await;
    browser.sees("#file-news", "It changed on the machine").await;
    let typed = browser.run("return document.querySelector('#file').value", serde_json::Value::Null).await;
    assert_eq!(typed.as_str().map(str::trim_end), Some("# Notes\n\nWritten here."));
    browser.click("#editor button.primary").await;
    browser.sees("#draft", "both versions are between conflict markers").await;
    assert_eq!(fixture.on_disk("notes.md").as_deref(), Some("# Notes\n\nWritten there.\n"));
    browser.fill("#merged", "# Notes\n\nWritten by both.\n").await;
    browser.click("#draft button").await;
    browser.sees("#file-view", "Written by both.").await;

    browser.click("#file-view details summary").await;
    browser.fill("#to", "kept/notes.md").await;
    browser.click("#file-view form.inline-form button:not(.danger)").await;
    browser.sees("#file-view", "Written by both.").await;
    assert!(fixture.on_disk("notes.md").is_none() && fixture.on_disk("kept/notes.md").is_some());
    browser.click("#file-view details summary").await;
    browser.click("#file-view button.danger").await;
    eventually("it is gone", async || fixture.on_disk("kept/notes.md").is_none().then_some(())).await;
    let trash = std::fs::read_dir(fixture.viber.home().join("workspace/.trash")).expect("a trash folder");
    assert!(trash.count() > 0, "what was deleted can be had back");
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_on_a_phone_the_same_forms_do() {
    let fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    fixture.put("todo.md", Some(""), "- [ ] call\n").await.expect(200);
    let browser = Browser::open_on(Screen::Phone, Scripts::Off).await;
    browser.sign_in(&fixture.board.owner().await).await;
    browser.go(&format!("{}{}", fixture.board.url, fixture.page("todo.md"))).await;
    browser.click("#file-view a.primary").await;
    browser.fill("#file", "- [x] call\n").await;
    browser.click("#editor button.primary").await;
    browser.find("#file-view input[type=checkbox][checked]").await;
    assert_eq!(fixture.on_disk("todo.md").as_deref(), Some("- [x] call\n"));
    fixture.board.assert_invariants().await;
}
