//! A headless Chromium, driven over WebDriver.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, wd::WebDriverCompatibleCommand};
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{person::Person, programs::root, viber::processes_with, wait::EVENT_TIMEOUT};

/// Between two looks at a page.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A page that takes longer to load is an error of the step that loads it.
const MAX_LOAD: Duration = Duration::from_secs(120);

/// One browser with one profile. Ends with its value.
pub struct Browser {
    pub page: Client,
    driver: Child,
    profile: TempDir,
}

/// Whether pages may run scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripts {
    On,
    Off,
}

/// What the pages are shown on.
#[derive(Clone, Copy, Debug)]
pub enum Screen {
    Desk,
    /// 390 × 844, with touch where pages may run scripts: device metrics by the driver, because a window is never narrower
    /// than 500.
    Phone,
}

impl Browser {
    /// Starts a browser with a desk's screen.
    pub async fn open(scripts: Scripts) -> Self {
        Self::open_on(Screen::Desk, scripts).await
    }

    /// Starts a browser.
    pub async fn open_on(screen: Screen, scripts: Scripts) -> Self {
        Self::open_with(screen, scripts, &[]).await
    }

    /// Starts a browser that believes of these names that they lie at these addresses (`evil.test` at `127.0.0.1`), and of
    /// all other names that they do not exist.
    pub async fn open_where(names: &[(&str, &str)]) -> Self {
        let rules = names.iter().map(|(name, address)| format!("MAP {name} {address}"));
        let rules: Vec<String> = rules.chain(["MAP * ~NOTFOUND".into(), "EXCLUDE 127.0.0.*".into()]).collect();
        let rules = format!("--host-resolver-rules={}", rules.join(", "));
        Self::open_with(Screen::Desk, Scripts::On, &[rules]).await
    }

    async fn open_with(screen: Screen, scripts: Scripts, more: &[String]) -> Self {
        let profile = tempfile::Builder::new().prefix("chromium-").tempdir().expect("a folder");
        let (driver, port) = tokio::task::spawn_blocking(start_driver).await.expect("no panic");
        let mut args: Vec<String> = [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ]
        .map(str::to_owned)
        .to_vec();
        args.push("--window-size=1280,900".to_owned());
        args.push(format!("--user-data-dir={}", profile.path().display()));
        if scripts == Scripts::Off {
            args.push("--blink-settings=scriptEnabled=false".to_owned());
        }
        args.extend_from_slice(more);
        let mut options = json!({ "args": args, "binary": root().join("scripts/headless-browser") });
        if matches!(screen, Screen::Phone) {
            // The driver's taps never return from a page without scripts; its clicks do.
            let touch = scripts == Scripts::On;
            let metrics = json!({"width": 390, "height": 844, "pixelRatio": 2.0, "touch": touch, "mobile": true});
            options["mobileEmulation"] = json!({"deviceMetrics": metrics});
        }
        let Value::Object(capabilities) = json!({
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            // A page that never comes fails its story with the address, before the runner ends it without a word.
            "timeouts": {"pageLoad": MAX_LOAD.as_millis()},
        }) else {
            unreachable!("an object above")
        };
        let page = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser session");
        Self { page, driver, profile }
    }

    /// Has the cookies that `person` has, as if they had signed in here.
    pub async fn sign_in(&self, person: &Person) {
        for pair in person.cookie().expect("signed in").split("; ") {
            let (name, value) = pair.split_once('=').expect("a cookie has a name");
            let cookie = json!({
                "name": name, "value": value, "url": person.board(), "httpOnly": true, "sameSite": "Lax",
            });
            let set = self.page.issue_cmd(ChromeCommand("Network.setCookie", cookie)).await.expect("a cookie");
            assert_eq!(set["success"], true, "{set}");
        }
    }

    /// Goes to an address.
    pub async fn go(&self, url: &str) {
        // What is submitted in a browser is seen by nobody else.
        if let Some(end) = url.find("://").map(|at| at + 3) {
            let host = url[end..].find('/').map_or(url.len(), |slash| end + slash);
            crate::ledger::at(&url[..host]).somebody_else_submits();
        }
        self.page.goto(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// The path of the page that is shown.
    pub async fn path(&self) -> String {
        self.page.current_url().await.expect("an address").path().to_owned()
    }

    /// The element that `css` finds, as soon as there is one.
    pub async fn find(&self, css: &str) -> Element {
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            if let Ok(element) = self.page.find(Locator::Css(css)).await {
                return element;
            }
            if Instant::now() > end {
                panic!("no {css} on {}:\n{}", self.path().await, self.text().await);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Whether `css` finds something now.
    pub async fn has(&self, css: &str) -> bool {
        self.page.find(Locator::Css(css)).await.is_ok()
    }

    /// How many elements `css` finds now.
    pub async fn count(&self, css: &str) -> usize {
        self.page.find_all(Locator::Css(css)).await.map_or(0, |all| all.len())
    }

    /// Types into a field that is empty or whose content is replaced.
    pub async fn fill(&self, css: &str, text: &str) {
        let field = self.find(css).await;
        field.clear().await.unwrap_or_else(|error| panic!("{css}: {error}"));
        field.send_keys(text).await.unwrap_or_else(|error| panic!("{css}: {error}"));
    }

    /// Clicks what `css` finds.
    pub async fn click(&self, css: &str) {
        let end = Instant::now() + EVENT_TIMEOUT;
        while let Err(error) = self.find(css).await.click().await {
            // An update took it away in between: nothing was clicked.
            assert!(error.is_stale_element_reference() && Instant::now() < end, "{css}: {error}");
        }
    }

    /// Presses keys, one after the other, where the focus is: WebDriver's codes for those that are no characters. A modifier
    /// is held for the next key.
    pub async fn press(&self, keys: &[&str]) {
        for key in keys {
            let target = self.page.active_element().await.expect("something has the focus");
            target.send_keys(key).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        }
    }

    /// The text that a reader sees on the whole page.
    pub async fn text(&self) -> String {
        self.text_of("body").await
    }

    /// The text that a reader sees in the first element that `css` finds, or "".
    pub async fn text_of(&self, css: &str) -> String {
        match self.page.find(Locator::Css(css)).await {
            Ok(element) => element.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// All text in the first element that `css` finds, also what is folded or scrolled away.
    pub async fn content_of(&self, css: &str) -> String {
        loop {
            // An update may take it away in between.
            if let Ok(content) = self.find(css).await.prop("textContent").await {
                return content.unwrap_or_default();
            }
        }
    }

    /// Waits until a reader sees `text` in what `css` finds.
    pub async fn sees(&self, css: &str, text: &str) {
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            let shown = self.text_of(css).await;
            if shown.contains(text) {
                return;
            }
            if Instant::now() > end {
                panic!("{css} does not show {text:?} on {} but:\n{shown}", self.path().await);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// An attribute of the first element that `css` finds.
    pub async fn attribute(&self, css: &str, name: &str) -> Option<String> {
        self.page.find(Locator::Css(css)).await.ok()?.attr(name).await.ok().flatten()
    }

    /// What the console holds at level SEVERE since the last call: refused scripts and styles, failed loads, errors.
    pub async fn console_errors(&self) -> Vec<String> {
        let log = self.page.issue_cmd(ConsoleLog).await.expect("the console's log");
        let lines = log.as_array().cloned().unwrap_or_default();
        let severe = lines.iter().filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Runs a script in the page; it sees `argument` as `arguments[0]` and returns a value.
    pub async fn run(&self, script: &str, argument: Value) -> Value {
        self.page.execute(script, vec![argument]).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Runs a script in every page and frame from now on, before anything else in it.
    pub async fn first_run(&self, script: &str) {
        let command = ChromeCommand("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}));
        self.page.issue_cmd(command).await.expect("a script for every page");
    }

    /// Shows pages from now on as to somebody who prefers this, on a desk of this size when one is given.
    pub async fn prefer(&self, scheme: &str, desk: Option<(u32, u32)>) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.page.issue_cmd(ChromeCommand("Emulation.setEmulatedMedia", features)).await.expect("a scheme");
        if let Some((width, height)) = desk {
            let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
            self.page.issue_cmd(ChromeCommand("Emulation.setDeviceMetricsOverride", metrics)).await.expect("a size");
        }
    }

    /// What Chromium has counted of the tab since it began to: `LayoutDuration`, `TaskDuration` and the like in seconds of
    /// the thread's processor time, `JSHeapUsedSize` in bytes, after everything that nobody holds was collected.
    pub async fn counters(&self) -> BTreeMap<String, f64> {
        let enable = ChromeCommand("Performance.enable", json!({"timeDomain": "threadTicks"}));
        for command in [enable, ChromeCommand("HeapProfiler.collectGarbage", json!({}))] {
            self.page.issue_cmd(command).await.expect("a command of Chromium's");
        }
        let counted = self.page.issue_cmd(ChromeCommand("Performance.getMetrics", json!({}))).await.expect("counters");
        let counters = counted["metrics"].as_array().into_iter().flatten();
        counters.filter_map(|one| Some((one["name"].as_str()?.to_owned(), one["value"].as_f64()?))).collect()
    }

    /// Goes back to the page before, as the browser's button does.
    pub async fn back(&self) {
        self.page.back().await.expect("the page before");
    }

    /// Writes what the page looks like to `path` as PNG.
    pub async fn screenshot(&self, path: &Path) {
        let png = self.page.screenshot().await.expect("a screenshot");
        std::fs::write(path, png).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Closes the tab and opens an empty one, as a person does who comes back later.
    pub async fn close_tab(&self) {
        let next = self.page.new_window(true).await.expect("a new tab");
        self.page.close_window().await.expect("the old tab closes");
        self.page.switch_to_window(next.handle).await.expect("the new tab");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        // Chromium's own processes carry our profile's path; nobody else's do.
        for (pid, _) in processes_with(&self.profile.path().display().to_string()) {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// How often it is tried: of the port that it finds free for one family of addresses the other may be taken.
const DRIVER_STARTS: usize = 5;

fn start_driver() -> (Child, u16) {
    (0..DRIVER_STARTS).find_map(|_| try_driver()).expect("chromedriver tells its port")
}

fn try_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver is installed: see scripts/needs");
    let mut lines = BufReader::new(driver.stdout.take().expect("piped")).lines();
    let port = loop {
        let Some(line) = lines.next() else {
            let _ = driver.wait();
            return None;
        };
        let line = line.expect("text");
        if let Some((_, rest)) = line.split_once("started successfully on port ") {
            break rest.trim_end_matches('.').parse().expect("a port");
        }
    };
    // It must not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}

/// ChromeDriver's own way to the console's log.
#[derive(Debug)]
struct ConsoleLog;

impl WebDriverCompatibleCommand for ConsoleLog {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

/// A command of Chromium's own protocol, handed on by ChromeDriver.
#[derive(Debug)]
struct ChromeCommand(&'static str, Value);

impl WebDriverCompatibleCommand for ChromeCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(json!({"cmd": self.0, "params": self.1}).to_string()))
    }
}
