//! The command line: parsing, where settings come from, exit codes.
//!
//! Exit codes: 0 success, 1 failure, 2 usage, 78 configuration (EX_CONFIG of sysexits).

mod config_file;
mod console;
mod fleet;
mod keys;
mod maintenance;
mod open;
mod people;
mod quota;
mod reload;
mod remote;
mod serve;
mod serve_lock;

use std::{fmt, path::PathBuf, process::ExitCode};

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::config::{BadConfig, Cidr, Config};

/// The Board: gives work to AI agents on your own machines, and shows what they do.
#[derive(Debug, Parser)]
#[command(name = "viber-board", version, max_term_width = 100)]
#[command(after_help = "Example: viber-board serve --data /var/lib/viber-board --public-url https://board.example.com")]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
    #[command(flatten)]
    store: StoreArgs,
    /// Print results as JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

/// Where the Board keeps its data: the same for every command.
#[derive(Clone, Debug, Args)]
pub struct StoreArgs {
    /// Folder of keys, of the SQLite database, and of config.yaml
    #[arg(long, global = true, env = "VIBER_BOARD_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// sqlite:///path or postgres://user@host/name; SQLite in the data folder when absent
    #[arg(long, global = true, env = "VIBER_BOARD_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Where artifacts are stored once they have been opened: file:///folder or s3://bucket/prefix?endpoint=…&region=…,
    /// with keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY [default: a folder in the data folder]
    #[arg(long, global = true, env = "VIBER_BOARD_ARTIFACTS", value_name = "URL")]
    artifacts: Option<String>,
    /// Format of log lines
    #[arg(long, global = true, env = "VIBER_BOARD_LOG", value_name = "FORM")]
    log: Option<LogForm>,
}

/// The format of log lines on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    #[command(flatten)]
    Local(LocalCommand),
    #[command(flatten)]
    Remote(remote::RemoteCommand),
    /// Print what a shell completes of these commands
    #[command(
        after_help = "Example: viber-board completions bash > ~/.local/share/bash-completion/completions/viber-board"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What works with the Board's data folder and database.
#[derive(Debug, Subcommand)]
enum LocalCommand {
    /// Run the Board
    #[command(
        after_help = "Example: viber-board serve --data /var/lib/viber-board --public-url https://board.example.com --listen 127.0.0.1:7400"
    )]
    Serve(ServeArgs),
    /// Print a single-use link that creates the first owner
    #[command(after_help = "Example: viber-board setup-link")]
    SetupLink,
    /// Accounts, and their roles in teams
    #[command(subcommand, after_help = "Example: viber-board operator list --team home")]
    Operator(people::OperatorCommand),
    /// Teams
    #[command(subcommand, after_help = "Example: viber-board team list")]
    Team(people::TeamCommand),
    /// API tokens
    #[command(subcommand, after_help = "Example: viber-board token add --team home --name ci --role operator")]
    Token(people::TokenCommand),
    /// Print a token that lets one machine join a team
    #[command(after_help = "Example: viber-board join-token --team home --labels gpu=yes")]
    JoinToken(fleet::JoinTokenArgs),
    /// Vibers
    #[command(subcommand, after_help = "Example: viber-board viber list --team home")]
    Viber(fleet::ViberCommand),
    /// Keys, and what to do when one may have been stolen
    #[command(subcommand, after_help = "Example: viber-board keys rotate")]
    Keys(keys::KeysCommand),
    /// The audit
    #[command(
        subcommand,
        after_help = "Example: viber-board audit accept --reason \"restored from the backup of Sunday\""
    )]
    Audit(keys::AuditCommand),
    /// Bring the database schema up to date, without serving
    #[command(after_help = "Example: viber-board migrate --data /var/lib/viber-board")]
    Migrate,
    /// Write a copy of the database to a file, even while the Board runs; or verify one
    #[command(after_help = "Example: viber-board backup /backup/board.db --blobs")]
    Backup(maintenance::BackupArgs),
    /// Replace the database with a backup; the Board must not be running
    #[command(after_help = "Example: viber-board restore /backup/board.db --data /var/lib/viber-board")]
    Restore(maintenance::RestoreArgs),
    /// Check database, keys, permissions, disk, audit and clock, and the settings that serve would have
    #[command(after_help = "Example: viber-board doctor")]
    Doctor(ServeArgs),
}

/// The options of `serve`.
#[derive(Clone, Debug, Default, Args)]
pub struct ServeArgs {
    /// Address and port [default: 127.0.0.1:7400]
    #[arg(long, env = "VIBER_BOARD_LISTEN", value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,
    /// URL at which people and vibers reach it, when that is not the address it listens on
    #[arg(long, env = "VIBER_BOARD_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Promise that the port can be reached from this machine alone, whatever --listen says: for a container whose port is
    /// published on 127.0.0.1. Allows a --listen beyond loopback without TLS, under names of this machine
    #[arg(long, env = "VIBER_BOARD_PUBLISHED_ON_LOOPBACK")]
    published_on_loopback: bool,
    /// Certificate chain (PEM)
    #[arg(long, env = "VIBER_BOARD_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, env = "VIBER_BOARD_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Key that signs session cookies, shared by replicas [default: the Board makes its own]
    #[arg(long, env = "VIBER_BOARD_SIGNING_KEY_FILE", value_name = "FILE")]
    signing_key_file: Option<PathBuf>,
    /// Proxy whose X-Forwarded-For is believed; may be given several times
    #[arg(long, env = "VIBER_BOARD_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',', value_parser = proxy)]
    trusted_proxy: Vec<Option<Cidr>>,
    /// Second address that serves /metrics, /healthz and /readyz to anybody who can reach it
    #[arg(long, env = "VIBER_BOARD_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<std::net::SocketAddr>,
    /// Bearer token for /metrics on the main address, which has no /metrics without one
    #[arg(long, env = "VIBER_BOARD_METRICS_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    metrics_token: Option<String>,
    /// The daemon-agent build that work machines download [default: the one beside this program]
    #[arg(long, env = "VIBER_BOARD_DAEMON_BINARY", value_name = "FILE")]
    daemon_binary: Option<PathBuf>,
    /// Registry of skills with the API of ClawHub that admins of teams may add from, such as https://clawhub.ai; the Board
    /// calls it directly, without a proxy [default: none]
    #[arg(long, env = "VIBER_BOARD_SKILL_REGISTRY", value_name = "URL")]
    skill_registry: Option<String>,
}

/// A range of a list; none where a container's environment was put together from variables that are not all set.
fn proxy(text: &str) -> Result<Option<Cidr>, String> {
    if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
}

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// Exit 1.
    Failed(String),
    /// Exit 2.
    Usage(String),
    /// Exit 78.
    Config(String),
}

impl CliError {
    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(_) => 78,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Usage(why) | Self::Config(why)) = self;
        f.write_str(why)
    }
}

impl From<BadConfig> for CliError {
    fn from(bad: BadConfig) -> Self {
        Self::Config(bad.0)
    }
}

impl From<crate::error::Error> for CliError {
    fn from(error: crate::error::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<crate::db::DbError> for CliError {
    fn from(error: crate::db::DbError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Parses the command line and does what it says.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // When even printing fails, there is nobody left to tell.
            error.print().ok();
            return ExitCode::from(code);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&CliError::Failed(format!("cannot start: {error}"))),
    };
    match runtime.block_on(dispatch(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &CliError) -> ExitCode {
    console::complain(error);
    ExitCode::from(error.code())
}

async fn dispatch(cli: Cli) -> Result<(), CliError> {
    if cli.json {
        if matches!(cli.command, CliCommand::Local(LocalCommand::Serve(_)) | CliCommand::Completions { .. }) {
            return Err(CliError::Usage(
                "this command has no results to print as JSON; for log lines: --log json".into(),
            ));
        }
        console::use_json();
    }
    let command = match cli.command {
        CliCommand::Local(command) => command,
        CliCommand::Remote(command) => {
            console::log(cli.store.log.unwrap_or(LogForm::Text), false);
            return remote::run(command).await;
        }
        CliCommand::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "viber-board", &mut std::io::stdout());
            return Ok(());
        }
    };
    let (flags, command) = match command {
        LocalCommand::Serve(flags) => (flags, None),
        LocalCommand::Doctor(flags) => (flags.clone(), Some(LocalCommand::Doctor(flags))),
        command => (ServeArgs::default(), Some(command)),
    };
    let source = ConfigSource { store: cli.store, flags };
    let (config, log) = source.settle()?;
    console::log(log.unwrap_or(LogForm::Text), command.is_none());
    let Some(command) = command else { return serve::run(config, source).await };
    match command {
        LocalCommand::Serve(_) => serve::run(config, source).await,
        LocalCommand::SetupLink => people::setup_link(&config).await,
        LocalCommand::Operator(command) => people::operator(&config, command).await,
        LocalCommand::Team(command) => people::team(&config, command).await,
        LocalCommand::Token(command) => people::token(&config, command).await,
        LocalCommand::JoinToken(flags) => fleet::join_token(&config, flags).await,
        LocalCommand::Viber(command) => fleet::viber(&config, command).await,
        LocalCommand::Keys(command) => keys::keys(&config, command).await,
        LocalCommand::Audit(command) => keys::audit(&config, command).await,
        LocalCommand::Migrate => maintenance::migrate(&config).await,
        LocalCommand::Backup(flags) => maintenance::backup(&config, flags).await,
        LocalCommand::Restore(flags) => maintenance::restore(&config, flags).await,
        LocalCommand::Doctor(_) => maintenance::doctor(&config).await,
    }
}

/// Where the configuration comes from. It can be read again: the file may have changed.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    store: StoreArgs,
    flags: ServeArgs,
}

impl ConfigSource {
    fn settle(&self) -> Result<(Config, Option<LogForm>), CliError> {
        settle(self.store.clone(), self.flags.clone())
    }
}

/// Flags and environment (which clap reads) override the file, which overrides the defaults.
fn settle(store: StoreArgs, flags: ServeArgs) -> Result<(Config, Option<LogForm>), CliError> {
    let data = store.data.unwrap_or_else(|| PathBuf::from("data"));
    let file = config_file::read(&data)?;
    let mut config = Config::local(data);
    if let Some(url) = store.database_url.or(file.database_url) {
        config.database_url = url;
    }
    let url = &config.database_url;
    if !["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(CliError::Config("--database-url: expected sqlite:///path or postgres://…".into()));
    }
    if let Some(listen) = flags.listen.or(file.listen) {
        config.listen = listen;
    }
    // A container's environment can only be empty where a variable is not set.
    let public_url = flags.public_url.filter(|url| !url.is_empty()).or(file.public_url);
    config.published_on_loopback = flags.published_on_loopback || file.published_on_loopback;
    config.public_url = public_url.map(|url| url.trim_end_matches('/').to_owned());
    config.tls = flags.tls_cert.zip(flags.tls_key).or(file.tls_cert.zip(file.tls_key));
    config.signing_key_file = flags.signing_key_file.or(file.signing_key_file);
    let proxies: Vec<Cidr> = flags.trusted_proxy.into_iter().flatten().collect();
    config.trusted_proxies = if proxies.is_empty() { file.trusted_proxy } else { proxies };
    config.metrics_listen = flags.metrics_listen.or(file.metrics_listen);
    config.metrics_token = flags.metrics_token.or(file.metrics_token);
    config.daemon_binary = flags.daemon_binary.or(file.daemon_binary);
    config.artifacts = store.artifacts.or(file.artifacts);
    config.skill_registry = flags.skill_registry.filter(|url| !url.is_empty()).or(file.skill_registry);
    Ok((config, store.log.or(file.log)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command, with the words that lead to it.
    fn commands<'c>(command: &'c clap::Command, path: &str, found: &mut Vec<(String, &'c clap::Command)>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            commands(below, &path, found);
            found.push((path, below));
        }
    }

    #[test]
    fn every_command_says_what_its_words_mean_and_has_an_example_that_it_takes() {
        let mut cli = Cli::command();
        cli.build();
        let mut found = Vec::new();
        commands(&cli, "viber-board", &mut found);
        found.push(("viber-board".to_owned(), &cli));
        assert!(found.len() > 40, "{}", found.len());
        for (path, command) in found {
            assert!(command.get_about().is_some_and(|about| !about.to_string().trim().is_empty()), "{path}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.trim().is_empty(), "{path}: {}", argument.get_id());
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = help.strip_prefix("Example: ").unwrap_or_else(|| panic!("{path}: no example"));
            assert!(example.starts_with(&path), "{path}: {example}");
            // As a shell would take it apart.
            let given = example.split(['<', '>']).next().unwrap_or_default();
            let quoted = given.split('"').enumerate();
            let words: Vec<&str> = quoted
                .flat_map(|(n, part)| if n % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
                .collect();
            let more = if path.contains(" task") || path.contains(" session") {
                &["--board", "https://board.example.com", "--token", "vbt_x"][..]
            } else {
                &[]
            };
            Cli::try_parse_from(words.iter().chain(more)).unwrap_or_else(|error| panic!("{example}: {error}"));
        }
    }

    #[test]
    fn the_command_line_is_sound_and_flags_beat_the_file() {
        Cli::command().debug_assert();
        let folder = tempfile::tempdir().expect("a folder");
        let store = |url: Option<&str>| StoreArgs {
            data: Some(folder.path().to_owned()),
            database_url: url.map(str::to_owned),
            artifacts: None,
            log: None,
        };
        std::fs::write(folder.path().join("config.yaml"), "listen: 127.0.0.1:9\nlog: json\n").expect("a file");
        let (config, log) = settle(store(None), ServeArgs::default()).expect("settled");
        assert_eq!((config.listen.port(), log), (9, Some(LogForm::Json)));
        let flags = ServeArgs { listen: "127.0.0.1:10".parse().ok(), ..ServeArgs::default() };
        assert_eq!(settle(store(None), flags).expect("settled").0.listen.port(), 10);
        let proxies = |list: &str| {
            let line = ["viber-board", "serve", "--trusted-proxy", list];
            let CliCommand::Local(LocalCommand::Serve(flags)) = Cli::try_parse_from(line).ok()?.command else {
                return None;
            };
            Some(settle(store(None), flags).expect("settled").0.trusted_proxies.len())
        };
        assert_eq!(["", "10.0.0.2,", "10.0.0.2,::1/128", "10.0.0.2,x"].map(proxies), [Some(0), Some(1), Some(2), None]);
        assert!(matches!(settle(store(Some("mysql://x")), ServeArgs::default()), Err(CliError::Config(_))));
        std::fs::write(folder.path().join("config.yaml"), "lisen: 127.0.0.1:9\n").expect("a file");
        let Err(CliError::Config(why)) = settle(store(None), ServeArgs::default()) else {
            panic!("an unknown key passed")
        };
        assert!(why.contains("lisen") && why.contains("config.yaml"), "{why}");
    }
}
