//! Agents that give work to each other: a session with children in each state, its tree, what a viber reports, the settings.

use board_tests::{board::HOME, fake_daemon::text};
use protocol::{ErrorCode, EventBody, TaskError};

use super::{Purpose, Shots};
use crate::{browser::mesh::with_children, mesh::end_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mesh_has_its_pictures() {
    visit_mesh(&Purpose::Pictures(super::folder())).await;
}

/// Children that work, are done and have failed, one of them with a child of its own.
pub async fn visit_mesh(purpose: &Purpose) {
    let goals = [
        ("tester", "Review the queue of cart changes"),
        ("tester", "Run the kiosk suite against the new cart"),
        ("coder", "Update the page about vouchers"),
    ];
    let (fixture, den, mut lead, mut children, page) = with_children(&goals).await;
    children[0].completes(&den, "Two remarks, none that blocks.").await;
    children[1].asks(&den, "call_below", ("coder", "lab"), "Build the kiosk image").await;
    let error = TaskError {
        code: ErrorCode::ToolFailed,
        message: "The page is not where it was. Nothing was changed.".to_owned(),
        retryable: true,
        suggestion: None,
        details: None,
    };
    children[2].tell(&den, vec![EventBody::Error { error }]).await;
    for call in ["call_0", "call_2"] {
        end_of(&fixture.viber, call).await;
    }
    lead.tell(&fixture.viber, vec![text("The review has nothing that blocks. I wait for the suite.")]).await;
    let url = &fixture.board.url;
    for shots in &Shots::on_each_screen(purpose).await {
        let browser = &shots.browser;
        browser.sign_in(fixture.owner()).await;
        browser.go(&page).await;
        browser.find("details.child details.child").await;
        browser.find("details.child[data-state=failed]").await;
        shots.take("mesh-children").await;
        browser.go(&format!("{page}?pane=tree")).await;
        browser.find("#pane .family").await;
        shots.take("mesh-tree").await;
        for (name, path) in [
            ("mesh-settings", format!("/t/{HOME}/settings/mesh")),
            ("mesh-live", format!("/t/{HOME}/vibers/{}/live", den.id)),
        ] {
            browser.go(&format!("{url}{path}")).await;
            browser.find("h1").await;
            shots.take(name).await;
        }
    }
    fixture.board.assert_invariants().await;
}
