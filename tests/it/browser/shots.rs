//! `make shots`: every page at a desk's and a phone's size, light and dark, in `target/shots`. Somebody looks at them. The
//! same rounds of pages are what `super::axe` checks.

pub mod asks;
pub mod changes;
pub mod composer;
pub mod context;
pub mod doors;
pub mod machine;
pub mod mesh;
pub mod playbooks;
pub mod readme;
pub mod skills;
pub mod talk;
pub mod waiting;

use std::{fs, path::PathBuf, sync::Mutex};

use board_tests::{
    Browser, Engine, Fixture,
    browser::{Screen, Scripts},
    fake_daemon::{completed, progress, text},
};
use protocol::{ErrorCode, EventBody, TaskError};
use serde_json::json;

const ANSWER_MARKDOWN: &str = "# What is slow, and why\n\nThe **cart page** asks for each voucher by itself[^1]. Three things follow:\n\n\
    1. `vouchers::all` reads a row at a time\n2. the index is on `shop_id`, *not* on `(shop_id, code)`\n3. each row costs \
    $t_q + t_n$\n\n| page | before | after | rows that are read for it |\n|:--|--:|--:|--:|\n| cart | 412 ms | 38 ms | 1 |\n\
    | checkout | 95 ms | 31 ms | 1 |\n\n```diff\n-    for code in codes {\n-        found.push(one(code)?);\n+    let found = \
    all(&codes)?;\n     }\n```\n\n- [x] read them at once\n- [ ] measure it in production\n\n> Nothing else changed.\n\n[^1]: \
    `src/cart.rs`, line 88.\n\n";

/// What is done with each page of the round.
pub enum Purpose {
    /// A picture in this folder.
    Pictures(PathBuf),
    /// A check by axe; what it finds.
    Axe(Mutex<Vec<String>>),
}

/// A browser on one of the round's screens.
pub struct Shots<'p> {
    pub browser: Browser,
    purpose: &'p Purpose,
    screen: &'static str,
    desk: Option<(u32, u32)>,
}

impl<'p> Shots<'p> {
    async fn on(screen: Screen, name: &'static str, desk: Option<(u32, u32)>, purpose: &'p Purpose) -> Self {
        Self { browser: Browser::open_on(screen, Scripts::On).await, purpose, screen: name, desk }
    }

    /// A desk and a phone.
    pub async fn on_each_screen(purpose: &'p Purpose) -> [Self; 2] {
        [
            Self::on(Screen::Desk, "desk", Some((1440, 900)), purpose).await,
            Self::on(Screen::Phone, "phone", None, purpose).await,
        ]
    }

    /// The page that is shown, in both schemes.
    pub async fn take(&self, name: &str) {
        for scheme in ["light", "dark"] {
            self.browser.prefer(scheme, self.desk).await;
            let name = format!("{name}-{}-{scheme}", self.screen);
            match self.purpose {
                Purpose::Pictures(folder) => self.browser.screenshot(&folder.join(format!("{name}.png"))).await,
                Purpose::Axe(found) => {
                    let here = super::axe::violations(&self.browser, scheme).await;
                    let here = here.into_iter().map(|violation| format!("{name}: {violation}"));
                    found.lock().expect("nobody panicked").extend(here);
                }
            }
        }
    }
}

/// Where pictures are.
fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/shots");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_has_its_pictures() {
    visit_every_page(&Purpose::Pictures(folder())).await;
}

/// Goes to every page, in each of its states, on a desk and a phone.
pub async fn visit_every_page(purpose: &Purpose) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    let screens = Shots::on_each_screen(purpose).await;
    let url = fixture.board.url.clone();
    for shots in &screens {
        shots.browser.go(&format!("{url}/login")).await;
        shots.browser.find("input[name=password]").await;
        shots.take("login").await;
        shots.browser.sign_in(fixture.owner()).await;
        shots.browser.go(&format!("{url}/t/home")).await;
        shots.browser.find("#composer").await;
        shots.take("home-first").await;
    }
    for goal in ["Import the June price list", "Draft the access review"] {
        fixture.begin(goal).await;
        fixture.tell(vec![text("All 1,204 rows are in."), completed("All 1,204 rows are in.")]).await;
    }
    fixture.begin("Rotate the couriers' keys").await;
    let error = TaskError {
        code: ErrorCode::ProviderAuth,
        message: "openai: the key was refused (invalid x-api-key (HTTP 401))".to_owned(),
        retryable: false,
        suggestion: None,
        details: None,
    };
    fixture.tell(vec![EventBody::Error { error }]).await;
    let failed = format!("{url}/t/home/sessions/{}", fixture.session());
    fixture.begin("Why is the cart page 400 ms slower since Tuesday?").await;
    let page = format!("{url}/t/home/sessions/{}", fixture.session());
    // Somebody else is there, and writes.
    let yuki = fixture.board.operator("home", "yuki@example.org", "operator").await;
    fixture.board.sql("UPDATE operators SET name = 'Yuki Tanaka' WHERE email = 'yuki@example.org'").await;
    let _looks = yuki.stream(&format!("/t/home/live?view=session:{}", fixture.session()), None).await;
    let writing = format!("/t/home/sessions/{}/writing", fixture.session());
    fixture.tell(vec![progress(&json!({"type": "reasoning-delta", "content": "The **index** may be missing."}))]).await;
    for shots in &screens {
        shots.browser.go(&page).await;
        shots.browser.sees("#dock-state", "Reasoning").await;
        shots.take("session-reasoning").await;
    }
    let (begun, rest) = ANSWER_MARKDOWN.split_at(ANSWER_MARKDOWN.find("| checkout").expect("a row"));
    fixture.tell(vec![text(begun)]).await;
    for shots in &screens {
        shots.browser.find("[data-open=text] table").await;
        yuki.post_form(&writing, &[]).await.expect(204);
        shots.browser.sees("#writing", "is writing").await;
        shots.take("session-writing").await;
    }
    fixture.tell(vec![text(rest)]).await;
    fixture.tell(vec![completed("")]).await;
    for shots in &screens {
        let browser = &shots.browser;
        browser.find(".prose sup").await;
        browser.find("#task-state[data-task-state=completed]").await;
        shots.take("session").await;
        if shots.desk.is_some() {
            browser.press(&["\u{e009}k\u{e000}"]).await;
            browser.find("#palette[open] [aria-selected=true]").await;
            shots.take("palette").await;
            // Once out of the palette, once out of the composer.
            browser.press(&["\u{e00c}", "\u{e00c}"]).await;
            browser.press(&["?"]).await;
            browser.find("#keys[open]").await;
            shots.take("keys").await;
        }
        browser.go(&failed).await;
        browser.sees("#dock-state", "HTTP 401").await;
        shots.take("session-failed").await;
        let pages = [
            ("home", String::new()),
            ("sessions", "/sessions".to_owned()),
            ("sessions-narrowed", "/sessions?state=completed&agent=default".to_owned()),
            ("search", "/search?q=cart".to_owned()),
            ("vibers", "/vibers".to_owned()),
            ("viber", format!("/vibers/{}", fixture.viber_id)),
            ("memory", format!("/vibers/{}/memory", fixture.viber_id)),
            ("live", format!("/vibers/{}/live", fixture.viber_id)),
            ("settings", "/settings".to_owned()),
            ("members", "/settings/members".to_owned()),
            ("invitations", "/settings/invitations".to_owned()),
            ("tokens", "/settings/tokens".to_owned()),
            ("connect", "/settings/connect".to_owned()),
            ("audit", "/settings/audit".to_owned()),
            ("approvals", "/settings/approvals".to_owned()),
            ("prices", "/settings/prices".to_owned()),
            ("mesh", "/settings/mesh".to_owned()),
            ("not-found", "/sessions/ses_00000000000000000000000000000000".to_owned()),
        ];
        for (name, path) in pages {
            browser.go(&format!("{url}/t/home{path}")).await;
            browser.find("h1").await;
            shots.take(name).await;
        }
        browser.go(&format!("{url}/account")).await;
        browser.find("h1").await;
        shots.take("account").await;
    }
}
