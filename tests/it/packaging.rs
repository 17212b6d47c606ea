//! What is shipped beside the programs, checked without a container engine, and the one command of a second machine.

use std::{collections::BTreeMap, net::Ipv4Addr, path::Path, process::Command};

use board_tests::{
    Board, Engine, Viber,
    board::HOME,
    programs::{Process, root, run},
};
use serde::Deserialize;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The instructions of the Dockerfile, continuation lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').expect("an instruction"))
        .map(|(verb, rest)| (verb.to_owned(), rest.to_owned()))
        .collect()
}

#[test]
fn every_file_that_the_image_copies_exists_and_it_runs_as_nobody_special() {
    let instructions = instructions();
    let mut copied = 0;
    for (_, rest) in instructions.iter().filter(|(verb, rest)| verb == "COPY" && !rest.contains("--from")) {
        let words: Vec<&str> = rest.split_whitespace().collect();
        for source in &words[..words.len() - 1] {
            assert!(root().join(source).exists(), "COPY {source}: no such file");
            copied += 1;
        }
    }
    assert!(copied >= 8, "{copied}");
    // Every member of the workspace has to be there, or cargo does not even start.
    let members = read("Cargo.toml");
    let members = members.lines().find(|line| line.starts_with("members")).expect("members");
    for member in members.split('"').skip(1).step_by(2) {
        assert!(
            instructions.iter().any(|(verb, rest)| verb == "COPY" && rest.starts_with(member)),
            "{member} is not copied"
        );
    }
    let user = instructions.iter().rposition(|(verb, _)| verb == "USER").expect("a user");
    assert_ne!(instructions[user].1, "root");
    let after = &instructions[user..];
    assert!(after.iter().all(|(verb, _)| verb != "RUN" && verb != "COPY"), "nothing is done after root was left");
    assert!(instructions.iter().any(|(verb, _)| verb == "HEALTHCHECK"));
    // Its group is its own as well: one that is merely free here is another one's on the machine and in other images.
    let made = instructions.iter().find(|(_, rest)| rest.contains("useradd")).expect("the user is made").1.clone();
    let words: Vec<&str> = made.split_whitespace().collect();
    let ids: Vec<&str> =
        (words.windows(2).filter(|pair| matches!(pair[0], "--uid" | "--gid")).map(|pair| pair[1])).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

const COMPOSE_FILES: [&str; 2] = ["docker-compose.yml", "docker-compose.sqlite.yml"];

#[derive(Deserialize)]
struct Compose {
    services: BTreeMap<String, Service>,
    #[serde(default)]
    volumes: BTreeMap<String, Option<serde_json::Value>>,
    networks: BTreeMap<String, Network>,
}

#[derive(Deserialize)]
struct Network {
    ipam: AddressPlan,
}

#[derive(Deserialize)]
struct AddressPlan {
    config: Vec<AddressRange>,
}

#[derive(Deserialize)]
struct AddressRange {
    subnet: String,
    gateway: String,
    /// What containers without an address of their own get.
    ip_range: String,
}

#[derive(Deserialize)]
struct Service {
    image: Option<String>,
    build: Option<String>,
    #[serde(default)]
    profiles: Vec<String>,
    network_mode: Option<String>,
    #[serde(default)]
    networks: serde_json::Value,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    volumes: Vec<String>,
    #[serde(default)]
    ports: Vec<String>,
    #[serde(default)]
    depends_on: BTreeMap<String, Depends>,
    healthcheck: Option<serde_json::Value>,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    cap_drop: Vec<String>,
    #[serde(default)]
    cap_add: Vec<String>,
    #[serde(default)]
    security_opt: Vec<String>,
    shm_size: Option<String>,
    logging: Logging,
}

#[derive(Deserialize)]
struct Logging {
    driver: String,
}

#[derive(Deserialize)]
struct Depends {
    condition: String,
}

#[test]
fn the_compose_files_say_what_the_board_understands_and_what_is_there() {
    let help =
        Command::new(board_tests::programs::program("viber-board")).args(["serve", "--help"]).output().expect("help");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for file in COMPOSE_FILES {
        let compose: Compose = serde_saphyr::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let board = &compose.services["board"];
        assert_eq!(board.build.as_deref(), Some("."), "{file}");
        for name in board.environment.keys() {
            assert!(help.contains(name.as_str()), "{file}: the Board does not know {name}");
        }
        for (name, service) in &compose.services {
            for volume in &service.volumes {
                let from = volume.split(':').next().expect("a name");
                let is_there = match from.strip_prefix("./") {
                    Some(path) => root().join(path).exists(),
                    None => compose.volumes.contains_key(from),
                };
                assert!(is_there, "{file}: {from} is neither declared nor here");
            }
            for (other, depends) in &service.depends_on {
                assert_eq!(depends.condition, "service_healthy");
                let other_service = &compose.services[other];
                // The Board's own check is in its image.
                assert!(
                    other_service.healthcheck.is_some() || other_service.build.is_some(),
                    "{file}: nobody can tell whether {other} is healthy"
                );
            }
            assert!(
                service.build.is_some() || service.image.as_deref().is_some_and(|image| image.contains(':')),
                "{file}: pin the image of {name}"
            );
        }
    }
    // What the image sets by itself is understood, too.
    for (_, rest) in instructions().iter().filter(|(verb, _)| verb == "ENV") {
        for pair in rest.split_whitespace() {
            let name = pair.split('=').next().expect("a name");
            assert!(help.contains(name), "the Board does not know {name}");
        }
    }
}

#[test]
fn a_container_of_the_compose_files_changes_its_volumes_and_fills_no_disk_with_its_log() {
    for file in COMPOSE_FILES {
        let compose: Compose = serde_saphyr::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        for (name, service) in &compose.services {
            assert!(service.read_only, "{file}: {name} can write to its own programs");
            assert_eq!(service.cap_drop, ["ALL"], "{file}: {name}");
            let ports: &[&str] = if name == "proxy" { &["NET_BIND_SERVICE"] } else { &[] };
            assert_eq!(service.cap_add, ports, "{file}: {name}");
            assert_eq!(service.security_opt, ["no-new-privileges:true"], "{file}: {name}");
            assert_eq!(service.logging.driver, "local", "{file}: the log of {name} grows for ever");
        }
        let socket = "socket:/run/postgresql:ro".to_owned();
        if let Some(database) = compose.services.get("database") {
            assert!(compose.services["board"].volumes.contains(&socket), "{file}: the Board only uses the socket");
            // With the 64 MB that an engine gives, queries with workers fail when a few of them run at once.
            assert!(database.shm_size.is_some(), "{file}");
        }
    }
}

/// A value as compose fills it in when nobody set anything: `${NAME:-default}`.
fn without_env(value: &str) -> String {
    with_env(value, &[])
}

/// The same with some variables set.
fn with_env(value: &str, env: &[(&str, &str)]) -> String {
    let Some(at) = value.rfind("${") else { return value.to_owned() };
    let end = at + value[at..].find('}').expect("a closing brace");
    let (name, default) = value[at + 2..end].split_once(":-").unwrap_or_else(|| panic!("{value} has to be set"));
    let filled = env.iter().find(|(variable, _)| *variable == name).map_or(default, |(_, set)| set);
    with_env(&format!("{}{filled}{}", &value[..at], &value[end + 1..]), env)
}

#[tokio::test]
async fn what_compose_starts_without_any_setting_is_a_board_for_this_machine_alone() {
    for file in COMPOSE_FILES {
        let text = read(file);
        let compose: Compose = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        // No setting is needed, and none is a secret that everybody knows.
        let services: Vec<_> =
            compose.services.iter().filter(|(_, service)| service.profiles.is_empty()).map(|(name, _)| name).collect();
        assert_eq!(services.len(), 1 + usize::from(file == "docker-compose.yml"), "{file}: {services:?}");
        for (name, service) in &compose.services {
            for (variable, value) in &service.environment {
                let value = without_env(value);
                let is_secret = ["PASSWORD", "SECRET", "TOKEN", "KEY"].iter().any(|word| variable.contains(word));
                assert!(!is_secret || variable.ends_with("_FILE"), "{file}: {name} has {variable} written down");
                assert!(
                    !value.split("://").nth(1).is_some_and(|url| url.contains('@')),
                    "{file}: a password in {value}"
                );
            }
            if name != "proxy" {
                let is_own = |port: &String| port.starts_with("127.0.0.1:");
                assert!(service.ports.iter().all(is_own), "{file}: {name} is open to others without TLS");
            }
        }
        if let Some(database) = compose.services.get("database") {
            assert_eq!(database.network_mode.as_deref(), Some("none"), "its socket asks for no password");
            assert_eq!(database.environment["POSTGRES_PASSWORD_FILE"], "/proc/sys/kernel/random/uuid");
        }

        // The Board itself agrees to be started so, and says where it is found. Its port is another here.
        let data = tempfile::tempdir().expect("a folder");
        let board = &compose.services["board"];
        assert_eq!(without_env(&board.ports[0]), "127.0.0.1:7400:7400", "{file}");
        assert_eq!(without_env(&board.environment["VIBER_BOARD_LISTEN"]), "0.0.0.0:7400", "{file}");
        let serve = |more: &[(&str, &str)]| {
            let mut serve = Command::new(board_tests::programs::program("viber-board"));
            serve.arg("serve").env("VIBER_BOARD_DATA", data.path());
            for (variable, value) in &board.environment {
                if !matches!(variable.as_str(), "VIBER_BOARD_LISTEN" | "VIBER_BOARD_DATABASE_URL") {
                    serve.env(variable, without_env(value));
                }
            }
            // An address that no machine has: the case opens no port to the network.
            serve.env("VIBER_BOARD_LISTEN", "203.0.113.1:7400").envs(more.iter().copied());
            serve
        };
        // 1: the configuration is in order, but this machine does not have that address. 78: it is refused.
        let said = run(serve(&[]), "").await;
        assert_eq!(said.code(), 1, "{file}: {said:#?}");
        for refused in [
            [("VIBER_BOARD_PUBLISHED_ON_LOOPBACK", "false"), ("VIBER_BOARD_PUBLIC_URL", "")],
            [("VIBER_BOARD_PUBLISHED_ON_LOOPBACK", "true"), ("VIBER_BOARD_PUBLIC_URL", "http://board.example.org")],
        ] {
            let said = run(serve(&refused), "").await;
            assert_eq!(said.code(), 78, "{file}, {refused:?}: {said:#?}");
        }
        let said = run(serve(&[("VIBER_BOARD_PUBLIC_URL", "https://board.example.org")]), "").await;
        assert_eq!(said.code(), 1, "{file}, behind its proxy: {said:#?}");
    }
}

#[test]
fn the_proxy_of_the_compose_files_has_a_certificate_and_sends_to_the_board() {
    let caddyfile = read("Caddyfile");
    let lines: Vec<&str> =
        caddyfile.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(lines, ["{$BOARD_URL} {", "reverse_proxy board:{$BOARD_PORT:7400}", "}"]);
    for file in COMPOSE_FILES {
        let compose: Compose = serde_saphyr::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let proxy = &compose.services["proxy"];
        assert_eq!(proxy.profiles, ["tls"], "{file}: nobody asked for it");
        assert_eq!(proxy.environment["BOARD_PORT"], "${BOARD_PORT:-7400}", "{file}");
        assert!(proxy.volumes.iter().any(|volume| volume == "./Caddyfile:/etc/caddy/Caddyfile:ro"), "{file}");
    }
}

#[test]
fn the_board_of_the_compose_files_believes_nobody_but_caddy_about_addresses() {
    let number = |ip: &str| u32::from(ip.parse::<Ipv4Addr>().unwrap_or_else(|error| panic!("{ip}: {error}")));
    let holds = |range: &str, ip: u32| {
        let (first, bits) = range.split_once('/').expect("a range");
        ip >> (32 - bits.parse::<u32>().expect("bits")) == number(first) >> (32 - bits.parse::<u32>().expect("bits"))
    };
    let another: &[(&str, &str)] = &[("BOARD_NETWORK", "192.168.77")];
    for (file, env) in COMPOSE_FILES.into_iter().flat_map(|file| [(file, &[][..]), (file, another)]) {
        let compose: Compose = serde_saphyr::from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let (board, proxy) = (&compose.services["board"], &compose.services["proxy"]);
        assert_eq!(board.networks, serde_json::json!(["front"]), "{file}");
        let caddy = with_env(proxy.networks["front"]["ipv4_address"].as_str().expect("an address"), env);
        let [range] = compose.networks["front"].ipam.config.as_slice() else { panic!("{file}: one range") };
        let [subnet, gateway, others] =
            [&range.subnet, &range.gateway, &range.ip_range].map(|text| with_env(text, env));
        assert!(holds(&subnet, number(&caddy)) && holds(&subnet, number(&gateway)), "{file}: {caddy} in {subnet}");
        // Nobody else has that address: not a container, and not who comes by the published port.
        assert!(!holds(&others, number(&caddy)) && caddy != gateway, "{file}: {caddy}, {others}, {gateway}");
        let believed = &board.environment["VIBER_BOARD_TRUSTED_PROXY"];
        assert_eq!(with_env(believed, env), format!("{caddy},"), "{file}");
        let more = [env, &[("BOARD_TRUSTED_PROXY", "192.0.2.7")]].concat();
        assert_eq!(with_env(believed, &more), format!("{caddy},192.0.2.7"), "{file}: whoever runs it may add to it");
    }
}

#[tokio::test]
async fn the_images_health_check_tells_a_ready_board_from_none() {
    let check = instructions().into_iter().find(|(verb, _)| verb == "HEALTHCHECK").expect("one").1;
    let list = &check[check.find("CMD").expect("a command") + 3..];
    let words: Vec<String> = serde_json::from_str(list).expect("the exec form");
    let mut board = Board::start_with(Engine::Sqlite, &["--public-url", "https://board.example.org"]).await;
    let port = board.url.rsplit(':').next().expect("a port").to_owned();
    let command = || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("VIBER_BOARD_LISTEN", format!("0.0.0.0:{port}"));
        command
    };
    assert_eq!(run(command(), "").await.code(), 0);
    board.kill9();
    assert_ne!(run(command(), "").await.code(), 0);
}

/// `curl` in the words of this machine's own tools, in case it is missing: install.sh asks for curl or wget.
fn has(tool: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).exists()))
}

#[tokio::test]
async fn one_command_joins_a_second_machine() {
    assert!(has("curl") || has("wget"), "install.sh needs one of them");
    let board = Board::start(Engine::Sqlite).await;
    let viewer = board.token(HOME, "viewer").await;
    let token = board.join_token(HOME).await;
    let script = board.anon().get("/install.sh").await.expect(200).body;
    assert!(script.starts_with("#!/bin/sh"), "{}", &script[..40]);
    assert!(!script.contains(&token));
    let machine = Viber::fresh("second");
    let mut install = Command::new("sh");
    install
        .args(["-s", "--", &token])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", machine.root())
        .env("OPENVIBER_HOME", machine.home())
        .current_dir(machine.root());
    let said = run(install, &script).await;
    assert_eq!(said.code(), 0, "{said:#?}");
    assert!(machine.home().join("state/credential").exists(), "{said:#?}");
    let fleet = viewer.get("/api/v1/vibers").await.expect(200).json();
    assert_eq!(fleet["items"].as_array().expect("a list").len(), 1, "{fleet}");
    let installed = board_tests::canary::files(machine.root()).into_iter().find(|file| file.ends_with("daemon-agent"));
    let installed = installed.unwrap_or_else(|| panic!("no daemon-agent below HOME: {said:#?}"));
    let mut daemon = Command::new(&installed);
    daemon.arg("run").env("OPENVIBER_HOME", machine.home()).env("HOME", machine.root());
    let _daemon = Process::start(daemon, &machine.root().join("daemon.log"));
    board_tests::eventually("the second machine is connected", || async {
        let fleet = viewer.get("/api/v1/vibers").await.expect(200).json();
        (fleet["items"][0]["contact"]["state"] == "connected").then_some(())
    })
    .await;

    let mut without = Command::new("sh");
    without.args(["-s", "--"]).env("HOME", machine.root());
    assert_ne!(run(without, &script).await.code(), 0, "without a token it says so");
}

#[test]
fn what_is_shipped_and_measured_has_no_failpoints() {
    // The programs by themselves never have them, the whole workspace has: cargo's own word for it.
    let has = |args: &[&str]| {
        let mut tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        tree.args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none"]).args(args);
        let said = tree.current_dir(root()).output().expect("cargo");
        assert!(said.status.success(), "{args:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).lines().any(|line| line.starts_with("fail v"))
    };
    assert!(has(&["--workspace"]), "the tests' own build has failpoints");
    // What each place builds, as it stands there.
    for (file, packages) in [
        ("Dockerfile", ["-p server", "-p daemon-agent"].as_slice()),
        ("Makefile", &["-p daemon-agent"]),
        ("scripts/run", &["-p server -p daemon-agent"]),
        ("scripts/bench", &["-p server -p board-tests --no-default-features"]),
    ] {
        let text = read(file).replace("\\\n", " ");
        let builds: Vec<&str> =
            text.lines().flat_map(|line| line.split("&&")).filter(|part| part.contains("cargo build")).collect();
        assert_eq!(builds.len(), packages.len(), "{file}: {builds:?}");
        for (build, packages) in builds.iter().zip(packages) {
            let words: Vec<&str> = packages.split_whitespace().collect();
            let named = |word: &&str| build.split_whitespace().any(|other| other == *word);
            assert!(words.iter().all(named) && !build.contains("--workspace"), "{file}: {build}");
            assert!(!build.contains("--features") && !build.contains("--all-features"), "{file}: {build}");
            assert!(!has(&words), "{file} builds failpoints into what it makes: {build}");
        }
    }
}

/// Writes a program into `folder`.
fn program_in(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a program");
}

#[tokio::test]
async fn make_run_says_now_and_then_that_it_still_builds() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = folder.path().join("said");
    // A build that takes as long as it needs to be told of twice, and then fails; time passes faster for it.
    program_in(
        folder.path(),
        "cargo",
        &format!(
            "until [ \"$(grep -c 'still building' {})\" -ge 2 ]; do /bin/sleep 0.05; done; exit 7",
            said.display()
        ),
    );
    program_in(folder.path(), "npm", "exit 0");
    program_in(folder.path(), "sleep", "exec /bin/sleep 0.05");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&path)).collect();
    let mut make_run = Command::new("bash");
    make_run.arg("-c").arg(format!("{} >{} 2>&1", root().join("scripts/run").display(), said.display()));
    make_run.env("PATH", std::env::join_paths(path).expect("a path"));
    assert_eq!(run(make_run, "").await.code(), 7, "{}", std::fs::read_to_string(&said).unwrap_or_default());
}

#[test]
fn scripts_are_programs() {
    for script in [
        ".ci/run",
        "scripts/test",
        "scripts/test-long",
        "scripts/run",
        "scripts/needs",
        "scripts/assets",
        "scripts/with-postgres",
    ] {
        use std::os::unix::fs::PermissionsExt;
        let path = root().join(script);
        let mode = std::fs::metadata(&path).unwrap_or_else(|error| panic!("{script}: {error}")).permissions().mode();
        assert!(mode & 0o111 != 0, "{script} is not executable");
        assert!(Command::new("bash").arg("-n").arg(&path).status().expect("bash").success(), "{script}");
    }
    assert!(Path::new(&root().join("Makefile")).exists());
}
