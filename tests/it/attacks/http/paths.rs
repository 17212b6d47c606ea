//! A95, A96: addresses that are not what they seem, and files that are not there.

use board_tests::{Engine, Fixture, RawConnection, board::HOME, tasks::id, wait::EVENT_TIMEOUT};

use futures_util::{StreamExt as _, stream};

use super::{ANY_ENGINE, served};

crate::on_both_databases!(a95_no_spelling_of_an_address_gets_round_its_guard);

/// Spellings of guarded addresses that some servers take for the address itself.
fn spellings(task: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for path in ["/api/v1/tokens", "/api/v1/members", "/api/v1/audit", "/t/home/settings/members"] {
        let (folder, name) = path.rsplit_once('/').expect("a slash");
        all.extend([
            format!("{folder}/../{}{path}", folder.trim_start_matches('/')),
            format!("/static/..{path}"),
            format!("/static/%2e%2e{path}"),
            format!("/healthz/..{path}"),
            format!("/healthz/..;{path}"),
            format!("{folder}/./{name}"),
            format!("{folder}/%2e/{name}"),
            format!("{folder}//{name}"),
            format!("/{path}"),
            format!("{path}/"),
            format!("{path}//"),
            format!("{path};x"),
            format!("{path};/"),
            format!("{path}%00"),
            format!("{path}%20"),
            format!("{path}%0a"),
            format!("{path}%2f"),
            format!("{path}.json"),
            format!("{path}%23"),
            format!("{path}\\"),
            path.replacen('/', "/%2f", 1),
            path.replacen('/', "\\", 1),
            path.to_uppercase(),
            format!("{folder}/%{:02x}{}", name.as_bytes()[0], &name[1..]),
        ]);
    }
    for wrong in ["%00", "%2F", "%2e%2e", "..%2f..", "%ff", "%", "%zz", "%E2%80%AE", "'", "%27%20OR%201=1", "*"] {
        all.push(format!("/api/v1/tasks/{wrong}"));
        all.push(format!("/api/v1/tasks/{task}{wrong}"));
        all.push(format!("/api/v1/sessions/{wrong}/messages"));
        all.push(format!("/t/home/sessions/{wrong}"));
        all.push(format!("/t/{wrong}/vibers"));
        all.push(format!("/t/home{wrong}/vibers"));
        all.push(format!("/invite/{wrong}"));
        all.push(format!("/setup/{wrong}"));
    }
    all
}

async fn a95_no_spelling_of_an_address_gets_round_its_guard(engine: Engine) {
    let (Fixture { board, operator, .. }, host) = served(engine).await;
    let viber = board_tests::FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(viber.id.as_str(), "a secret goal").await;
    let viewer = board.token(HOME, "viewer").await;
    let person = board.operator(HOME, "vi@example.org", "viewer").await;
    let cookie = format!("Cookie: {}\r\nX-Team: {HOME}\r\n", person.cookie().expect("signed in"));
    let token = format!("Authorization: Bearer {}\r\n", viewer.bearer().expect("a token"));
    let all = spellings(id(&task, "id"));
    let asked = all.iter().flat_map(|path| {
        [("nobody", ""), ("a viewer's token", &token), ("a viewer's cookie", &cookie)].map(|who| (path, who))
    });
    let ask = |(path, (who, credential)): (&String, (&'static str, &str))| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{credential}Connection: close\r\n\r\n");
        let (board, path) = (&board, path.clone());
        async move { (who, path, RawConnection::ask(board, request.as_bytes(), EVENT_TIMEOUT).await) }
    };
    let mut answers = stream::iter(asked.map(ask)).buffer_unordered(16);
    while let Some((who, path, heard)) = answers.next().await {
        let statuses = heard.statuses();
        let [status] = statuses[..] else { panic!("{who} {path}: {heard:?}") };
        let page = path.starts_with("/t/");
        // A code that was never given out looks like one that is used up.
        let code = path.starts_with("/invite/") || path.starts_with("/setup/");
        // Whoever has no credential is asked for one wherever a guard stands; nobody is let through.
        let refused = match status {
            400 | 404 => true,
            410 => code,
            401 | 303 => who == "nobody" || (page && who == "a viewer's token"),
            _ => false,
        };
        assert!(refused, "{who} {path}: {status}\n{}", heard.text);
        // Within their team's frame a member sees the sessions of its rail, and nothing more.
        let in_rail = usize::from(page && status == 404 && who == "a viewer's cookie");
        assert!(heard.text.matches("a secret goal").count() <= in_rail, "{who} {path}");
    }
    drop(answers);
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a96_there_are_no_files_but_the_listed_ones() {
    let (Fixture { board, operator, .. }, host) = served(ANY_ENGINE).await;
    let page = board.anon().page("/login").await.expect(200).body;
    let at = page.find("href=\"/static/").expect("a style sheet") + 6;
    let sheet = page[at..].split('"').next().expect("an address").to_owned();
    let folder = sheet.rsplit_once('/').expect("a folder").0.to_owned();
    assert_eq!(board.anon().get(&sheet).await.status, 200);
    let mut paths: Vec<String> = [
        "/static/",
        "/static",
        "/static/..%2f",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/static/../../etc/passwd",
        "/static/x/..%2f..%2fboard.db",
        "/static/%2e%2e/board.db",
        "/static/....//board.db",
        "/static/x/%00",
        "/static//etc/passwd",
        "/static/x/C:%5cboot.ini",
        "/.git/config",
        "/.git/HEAD",
        "/.env",
        "/.htaccess",
        "/.ssh/id_rsa",
        "/.well-known/",
        "/board.db",
        "/board.db-wal",
        "/data/board.db",
        "/keys/signing.key",
        "/data/keys/signing.key",
        "/serve.lock",
        "/board.log",
        "/debug",
        "/debug/pprof",
        "/debug/vars",
        "/server-status",
        "/actuator/env",
        "/console",
        "/phpinfo.php",
        "/swagger-ui",
        "/graphql",
        "/backup.sql",
        "/Cargo.toml",
        "/src/main.rs",
        "/templates/",
        "/migrations/sqlite/",
        "/package.json",
        "/node_modules/htmx.org/dist/htmx.js",
        "/robots.txt.bak",
        "/download/",
        "/download/../board.db",
        "/download/daemon-agent/../../keys",
        "/install.sh.bak",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.extend(
        ["board.css.map", "live.js.map", "board.js.map", "htmx.js.map", "", "..%2fboard.css"]
            .map(|name| format!("{folder}/{name}")),
    );
    paths.extend([
        format!("{sheet}.map"),
        format!("{sheet}/"),
        format!("{sheet}%00"),
        sheet.replace("board.css", "BOARD.CSS"),
    ]);
    let token = format!("Authorization: Bearer {}\r\n", operator.bearer().expect("a token"));
    for path in paths {
        for credential in ["", &token] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{credential}Connection: close\r\n\r\n");
            let heard = RawConnection::ask(&board, request.as_bytes(), EVENT_TIMEOUT).await;
            assert_eq!(heard.statuses(), [404], "{path}: {}", heard.text);
        }
    }
    for credential in ["", &token, "Authorization: Bearer metrics\r\n"] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n{credential}Connection: close\r\n\r\n");
        let heard = RawConnection::ask(&board, request.as_bytes(), EVENT_TIMEOUT).await;
        assert!([401, 404].contains(&heard.statuses()[0]), "/metrics: {}", heard.text);
    }
    board.assert_invariants().await;
}
