//! A browser that watches itself: what ran, what was refused, and what stands in the page that no template put there.

use board_tests::{Board, Browser, Person};
use serde_json::{Value, json};

/// Names that hostile texts use, besides the collector's own address.
const HOSTILE_NAME: &str = "pwn.test";

/// A browser with an operator's cookie, told to note everything that is not the page's own doing.
pub struct PageWatch {
    pub browser: Browser,
    board: String,
}

impl PageWatch {
    /// Opens a browser that is signed in as `person`; `pwn.test` lies at `collector` (`host:port`).
    pub async fn open(board: &Board, person: &Person, collector: &str) -> Self {
        let browser = Browser::open_where(&[(HOSTILE_NAME, collector)]).await;
        browser.first_run(include_str!("hook.js")).await;
        browser.sign_in(person).await;
        Self { browser, board: board.url.clone() }
    }

    /// Goes to a page of the Board and waits until its stream lives, when it has one.
    pub async fn go(&self, path: &str) {
        self.browser.go(&format!("{}{path}", self.board)).await;
        self.browser.find("main").await;
        if self.browser.has("body[data-stream]").await {
            self.browser.find("body[data-live=on]").await;
        }
    }

    /// Panics when anything ran, was refused, asked for something elsewhere, or stands where it does not belong.
    pub async fn clean(&self, what: &str) {
        let wrong = self.browser.run(include_str!("inspect.js"), Value::Null).await;
        assert_eq!(wrong, json!([]), "{what}: {wrong:#}");
        assert_eq!(self.browser.console_errors().await, Vec::<String>::new(), "{what}");
        let here = self.browser.page.current_url().await.expect("an address");
        assert!(here.as_str().starts_with(&self.board), "{what}: led away to {here}");
    }

    /// What `script` returns in the page.
    pub async fn run(&self, script: &str) -> Value {
        self.browser.run(script, Value::Null).await
    }

    /// Waits until `script` returns true.
    pub async fn until(&self, what: &str, script: &str) {
        board_tests::eventually(what, || async { (self.run(script).await == Value::Bool(true)).then_some(()) }).await;
    }
}

/// The lines of a file of hostile texts, `{c}` replaced by the collector's address.
pub fn texts(file: &str, collector: &str) -> Vec<String> {
    let lines = file.lines().filter(|line| !line.is_empty() && !line.starts_with("%%"));
    let texts: Vec<String> = lines.map(|line| unescape(line).replace("{c}", collector)).collect();
    for text in &texts {
        assert!(text.to_lowercase().contains("pwn"), "it could not be recognised: {text:?}");
    }
    texts
}

fn unescape(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        match rest.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('\\') => text.push('\\'),
            Some('u') => {
                let code: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                text.push(code.unwrap_or_else(|| panic!("no character: {line}")));
            }
            other => panic!("no escape: {other:?} in {line}"),
        }
    }
    text
}
