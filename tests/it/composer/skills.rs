//! Skills in the composer: offered while the first word is written, chosen by keyboard and mouse, and told of before a
//! task when the machine lacks something for them.

use board_tests::{
    Browser, Engine, FakeDaemon, Fixture,
    browser::Scripts,
    eventually,
    fake_daemon::{accepted, completed, started},
};
use protocol::{AgentInfo, FromDaemon, SkillCheck, SkillInfo, SkillState, ViberState};
use serde_json::Value;

use super::{resting, session_page, until};

const TAB: &str = "\u{e004}";
const DOWN: &str = "\u{e015}";
const ESCAPE: &str = "\u{e00c}";

/// Which words are offered now.
const OFFERED: &str = "return [...document.querySelectorAll('#slash:not([hidden]) li:not([hidden]) b')]
    .map((el) => el.textContent).join(' ')";

fn skill(name: &str, description: &str) -> SkillInfo {
    SkillInfo {
        name: name.to_owned(),
        description: description.to_owned(),
        path: format!("skills/{name}"),
        agents: vec!["default".to_owned()],
        ..SkillInfo::default()
    }
}

/// The viber has two agents, and skills for the agent `default`; one of them lacks something, one is for agents alone.
async fn furnish(fixture: &mut Fixture<FakeDaemon>) {
    let agent = |id: &str, skills: &[&str]| AgentInfo {
        id: id.to_owned(),
        name: id.to_owned(),
        model: "demo/tour".to_owned(),
        max_steps: 25,
        skills: skills.iter().map(|name| (*name).to_owned()).collect(),
        not_in_effect: skills.iter().filter(|name| **name == "tables").map(|name| format!("skills: {name}")).collect(),
        ..AgentInfo::default()
    };
    let missing = |label: &str, fix: &str| SkillCheck {
        kind: "bin".to_owned(),
        label: label.to_owned(),
        ok: false,
        fix: Some(fix.to_owned()),
    };
    let tables = SkillInfo {
        state: SkillState::NeedsSetup,
        checks: vec![missing("pdftotext", "apt install poppler-utils")],
        agents: Vec::new(),
        ..skill("tables", "Reads tables")
    };
    let quiet = SkillInfo { agents_only: true, ..skill("reset-quietly", "For agents alone") };
    let skills = vec![
        skill("release-notes", "Collects merged changes"),
        skill("review_2", "Reads a change with care"),
        skill("reset", "Not what /reset means here"),
        quiet,
        tables,
    ];
    let agents = vec![agent("default", &["release-notes", "tables"]), agent("other", &[])];
    let state = ViberState { agents: Some(agents), skills: Some(skills), ..ViberState::default() };
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let path = format!("/api/v1/vibers/{}/skills", fixture.viber_id);
    eventually("the skills are known", async || {
        fixture.operator.get(&path).await.expect(200).body.contains("review_2").then_some(())
    })
    .await;
}

async fn offers(browser: &Browser, words: &str) {
    until(browser, words, &format!("{OFFERED} === '{words}'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skill_is_chosen_by_keyboard_and_by_mouse() {
    let (mut fixture, browser) = resting(Scripts::On).await;
    furnish(&mut fixture).await;
    browser.go(&session_page(&fixture)).await;
    browser.find("body[data-live=on]").await;
    browser.fill("#content", "/").await;
    offers(&browser, "/compact /context /flush /reset /release-notes /review_2").await;
    browser.sees("#slash", "Collects merged changes").await;
    browser.fill("#content", "/re").await;
    offers(&browser, "/reset /release-notes /review_2").await;
    browser.press(&[DOWN]).await;
    browser.sees("#slash li[aria-selected=true]", "/release-notes").await;
    browser.press(&[TAB]).await;
    browser.press(&["for 1.4.2"]).await;
    let written = "return document.querySelector('#content').value === '/release-notes for 1.4.2'";
    until(&browser, "the skill is written", written).await;
    browser.click("#composer button.primary").await;
    let submit = fixture.viber.submitted().await;
    assert_eq!(submit.goal, "/release-notes for 1.4.2", "the viber loads it");
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    // The mouse; words with digits and underscores; away with Escape.
    browser.go(&session_page(&fixture)).await;
    browser.fill("#content", "/review_").await;
    browser.click("#slash li:not([hidden])").await;
    until(&browser, "it is written", "return document.querySelector('#content').value === '/review_2 '").await;
    browser.fill("#content", "/rev").await;
    offers(&browser, "/review_2").await;
    browser.press(&[ESCAPE]).await;
    until(&browser, "nothing is offered", "return document.querySelector('#slash').hidden").await;
    // Another agent does not have them.
    browser.click(".answerer > summary").await;
    browser.run("document.querySelector('select[name=agent]').value = 'other'", Value::Null).await;
    browser.fill("#content", "/re").await;
    offers(&browser, "/reset").await;
    assert_eq!(browser.console_errors().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_a_skill_is_written_like_any_word() {
    let (mut fixture, browser) = resting(Scripts::Off).await;
    furnish(&mut fixture).await;
    browser.go(&session_page(&fixture)).await;
    browser.fill("#content", "/release-notes now").await;
    browser.click("#composer button.primary").await;
    assert_eq!(fixture.viber.submitted().await.goal, "/release-notes now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_task_says_what_a_skill_lacks_and_begins_with_one_that_is_ready() {
    for scripts in [Scripts::On, Scripts::Off] {
        let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
        furnish(&mut fixture).await;
        let browser = Browser::open(scripts).await;
        browser.sign_in(fixture.owner()).await;
        let home = format!("{}/t/home", fixture.board.url);
        browser.go(&home).await;
        browser.sees("#preflight", "The skill tables needs setup:").await;
        browser.sees("#preflight", "pdftotext is missing, so the agent is not offered it.").await;
        browser.sees("#preflight code", "apt install poppler-utils").await;
        assert!(!browser.text_of("#preflight").await.contains("Not in effect"), "it is said once");
        if scripts == Scripts::On {
            browser.fill("#goal", "/rel").await;
            offers(&browser, "/release-notes").await;
            browser.press(&[TAB]).await;
            let written = "return document.querySelector('#goal').value === '/release-notes '";
            until(&browser, "it is written", written).await;
        }
        browser.go(&format!("{home}?viber={}&agent=other", fixture.viber_id)).await;
        browser.find("#goal").await;
        assert!(!browser.text_of("#preflight").await.contains("needs setup"), "the other agent lists no skills");
        if scripts == Scripts::On {
            browser.fill("#goal", "/").await;
            until(&browser, "it has none", "return document.querySelector('#slash').hidden").await;
        }
    }
}
