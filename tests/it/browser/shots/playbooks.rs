//! Playbooks: the files, the form, a run that waits for a person, one that failed, one that is done.

use board_tests::{Engine, Fixture, Person, board::HOME, eventually, llm::Reply};

use super::{Purpose, Shots};
use crate::browser::playbooks::{BROKEN, RELEASE_NOTES, hands_over_notes, hidden, started};

const NIGHTLY: &str = "# Playbook: nightly-import\n\n## Goal\nTake in the price lists of the day.\n\n## Steps\n1. [default] Fetch \
    the lists\n   - Gives: lists.csv\n   - Limits: minutes 20, tokens 90000\n2. [default] Compare them with yesterday\n3. \
    [default] Tell the shops\n   - After: 1, 2\n   - Approve: after\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn playbooks_have_their_pictures() {
    visit_playbooks(&Purpose::Pictures(super::folder())).await;
}

async fn shows(owner: &Person, run: &str, text: &str) {
    eventually(text, async || owner.page(run).await.expect(200).body.contains(text).then_some(())).await;
}

/// Files with and without mistakes, and runs in each state.
pub async fn visit_playbooks(purpose: &Purpose) {
    // The first run hands over its notes and waits, the second one forgets what it has to give.
    let script = hands_over_notes().into_iter().chain([Reply::text("The lists are away.")]).chain(hands_over_notes());
    let script: Vec<Reply> = script.chain([Reply::text("It is public.")]).collect();
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).tools(&["artifact"]).with_viber().await;
    let owner = fixture.owner();
    let screens = Shots::on_each_screen(purpose).await;
    let url = fixture.board.url.clone();
    for shots in &screens {
        shots.browser.sign_in(owner).await;
        shots.browser.go(&format!("{url}/t/{HOME}/playbooks")).await;
        shots.browser.sees("main", "No playbook there yet").await;
        shots.take("playbooks-first").await;
    }
    for (name, text) in [("broken", BROKEN), ("nightly-import", NIGHTLY), ("release-notes", RELEASE_NOTES)] {
        fixture.viber.write(&format!("workspace/playbooks/{name}.md"), text);
    }
    let form = |name: &str| format!("/t/{HOME}/vibers/{}/playbooks/{name}", fixture.viber_id);
    let waits = started(owner, &form("release-notes"), &[("input.version", "4.12.0")]).await;
    shows(owner, &waits, "Gate before step 2").await;
    let failed = started(owner, &form("nightly-import"), &[]).await;
    shows(owner, &failed, "data-state=\"failed\"").await;
    let done = started(owner, &form("release-notes"), &[("input.version", "4.11.2")]).await;
    shows(owner, &done, "Gate before step 2").await;
    let digest = hidden(&owner.page(&done).await.expect(200).body, "digest");
    owner.post_form(&format!("{done}/steps/2/allow"), &[("digest", digest.as_str())]).await.expect(303);
    shows(owner, &done, "2 of 2 done").await;
    for shots in &screens {
        let browser = &shots.browser;
        let pages = [
            ("playbooks", format!("/t/{HOME}/playbooks")),
            ("playbook-form", form("release-notes")),
            ("playbook-broken", form("broken")),
            ("playbook-gate", waits.clone()),
            ("playbook-failed", failed.clone()),
            ("playbook-done", done.clone()),
            ("playbook-stop", format!("{waits}/stop")),
            ("playbook-runs", format!("/t/{HOME}/playbook-runs")),
            ("sessions-with-gates", format!("/t/{HOME}/sessions")),
        ];
        for (name, path) in pages {
            browser.go(&format!("{url}{path}")).await;
            browser.find("h1").await;
            shots.take(name).await;
        }
        browser.go(&format!("{url}{}", form("release-notes"))).await;
        browser.click(".start-run button.primary").await;
        browser.sees(".start-run .field-error", "is missing").await;
        shots.take("playbook-missing").await;
    }
    for run in [&waits, &failed] {
        owner.post_form(&format!("{run}/stop"), &[]).await.expect(303);
    }
}
