//! The command line: parsing, where its values come from, exit codes.
//!
//! 0 done, 1 failed, 2 usage, 78 configuration (sysexits' EX_CONFIG).

mod console;
mod file;
mod fleet;
mod keep;
mod keys;
mod open;
mod people;
mod quota;
mod reload;
mod serve;
mod serving;

use std::{fmt, path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{BadConfig, Cidr, Config};

/// The Board: gives work to AI agents on your own machines, and shows what they do.
#[derive(Debug, Parser)]
#[command(name = "viber-board", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    store: Store,
}

/// Where the Board keeps what it knows: the same for every verb.
#[derive(Clone, Debug, Args)]
pub struct Store {
    /// Folder of keys, of the SQLite database, and of config.yaml
    #[arg(long, global = true, env = "VIBER_BOARD_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// sqlite:///path or postgres://user@host/name; SQLite in the data folder when absent
    #[arg(long, global = true, env = "VIBER_BOARD_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Where artifacts are kept once they were opened: file:///folder or s3://bucket/prefix?endpoint=…&region=…, keys in
    /// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY [default: a folder of the data folder]
    #[arg(long, global = true, env = "VIBER_BOARD_ARTIFACTS", value_name = "URL")]
    artifacts: Option<String>,
    /// How log lines look
    #[arg(long, global = true, env = "VIBER_BOARD_LOG", value_name = "FORM")]
    log: Option<LogForm>,
}

/// How log lines look on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogForm {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the Board
    Serve(Serve),
    /// Print a one-use link that makes the first owner
    SetupLink,
    /// Accounts, and their roles in teams
    #[command(subcommand)]
    Operator(people::OperatorVerb),
    /// Teams
    #[command(subcommand)]
    Team(people::TeamVerb),
    /// API tokens
    #[command(subcommand)]
    Token(people::TokenVerb),
    /// Print a token that lets one machine join a team
    JoinToken(fleet::JoinToken),
    /// Vibers
    #[command(subcommand)]
    Viber(fleet::ViberVerb),
    /// Keys, and what to do when somebody may have got hold of one
    #[command(subcommand)]
    Keys(keys::KeysVerb),
    /// The audit
    #[command(subcommand)]
    Audit(keys::AuditVerb),
    /// Bring the database up to date, without serving
    Migrate,
    /// Write a copy of the database to a file, while the Board runs; or verify one
    Backup(keep::Backup),
    /// Put a backup in place of the database; the Board must not run
    Restore(keep::Restore),
    /// Check database, keys, permissions, disk, audit and clock
    Doctor,
}

/// What only `serve` takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Serve {
    /// Address and port [default: 127.0.0.1:7400]
    #[arg(long, env = "VIBER_BOARD_LISTEN", value_name = "ADDRESS")]
    listen: Option<std::net::SocketAddr>,
    /// Where people and vibers reach it, when that is not the address it listens on
    #[arg(long, env = "VIBER_BOARD_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
    /// Certificate chain (PEM)
    #[arg(long, env = "VIBER_BOARD_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, env = "VIBER_BOARD_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Key that signs session cookies, shared by replicas; the Board makes its own when absent
    #[arg(long, env = "VIBER_BOARD_SIGNING_KEY_FILE", value_name = "FILE")]
    signing_key_file: Option<PathBuf>,
    /// Proxy whose X-Forwarded-For is believed; may be given several times
    #[arg(long, env = "VIBER_BOARD_TRUSTED_PROXY", value_name = "CIDR", value_delimiter = ',')]
    trusted_proxy: Vec<Cidr>,
    /// A second address that answers /metrics, /healthz and /readyz to anybody who reaches it
    #[arg(long, env = "VIBER_BOARD_METRICS_LISTEN", value_name = "ADDRESS")]
    metrics_listen: Option<std::net::SocketAddr>,
    /// Bearer token for /metrics on the main address, where it does not exist without one
    #[arg(long, env = "VIBER_BOARD_METRICS_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    metrics_token: Option<String>,
    /// The daemon-agent build that work machines download [default: beside this program]
    #[arg(long, env = "VIBER_BOARD_DAEMON_BINARY", value_name = "FILE")]
    daemon_binary: Option<PathBuf>,
}

/// How a verb fails.
#[derive(Debug)]
pub enum Failure {
    /// Exit 1.
    Failed(String),
    /// Exit 2.
    Usage(String),
    /// Exit 78.
    Config(String),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(_) => 78,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Usage(why) | Self::Config(why)) = self;
        f.write_str(why)
    }
}

impl From<BadConfig> for Failure {
    fn from(bad: BadConfig) -> Self {
        Self::Config(bad.0)
    }
}

impl From<crate::error::Error> for Failure {
    fn from(error: crate::error::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<crate::db::Error> for Failure {
    fn from(error: crate::db::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
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
            // Nobody is left to tell when even printing fails.
            error.print().ok();
            return ExitCode::from(code);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&Failure::Failed(format!("cannot start: {error}"))),
    };
    match runtime.block_on(dispatch(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    console::complain(failure);
    ExitCode::from(failure.code())
}

async fn dispatch(cli: Cli) -> Result<(), Failure> {
    let (flags, verb) = match cli.verb {
        Verb::Serve(flags) => (flags, None),
        verb => (Serve::default(), Some(verb)),
    };
    let source = Source { store: cli.store, flags };
    let (config, log) = source.settle()?;
    console::log(log.unwrap_or(LogForm::Text), verb.is_none());
    let Some(verb) = verb else { return serve::run(config, source).await };
    match verb {
        Verb::Serve(_) => serve::run(config, source).await,
        Verb::SetupLink => people::setup_link(&config).await,
        Verb::Operator(verb) => people::operator(&config, verb).await,
        Verb::Team(verb) => people::team(&config, verb).await,
        Verb::Token(verb) => people::token(&config, verb).await,
        Verb::JoinToken(flags) => fleet::join_token(&config, flags).await,
        Verb::Viber(verb) => fleet::viber(&config, verb).await,
        Verb::Keys(verb) => keys::keys(&config, verb).await,
        Verb::Audit(verb) => keys::audit(&config, verb).await,
        Verb::Migrate => keep::migrate(&config).await,
        Verb::Backup(flags) => keep::backup(&config, flags).await,
        Verb::Restore(flags) => keep::restore(&config, flags).await,
        Verb::Doctor => keep::doctor(&config).await,
    }
}

/// Where the configuration comes from. It can be asked again: the file may say something else then.
#[derive(Clone, Debug)]
pub struct Source {
    store: Store,
    flags: Serve,
}

impl Source {
    fn settle(&self) -> Result<(Config, Option<LogForm>), Failure> {
        settle(self.store.clone(), self.flags.clone())
    }
}

/// Flags and environment (clap's part) over the file over defaults.
fn settle(store: Store, flags: Serve) -> Result<(Config, Option<LogForm>), Failure> {
    let data = store.data.unwrap_or_else(|| PathBuf::from("data"));
    let file = file::read(&data)?;
    let mut config = Config::local(data);
    if let Some(url) = store.database_url.or(file.database_url) {
        config.database_url = url;
    }
    let url = &config.database_url;
    if !["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(Failure::Config("--database-url: expected sqlite:///path or postgres://…".into()));
    }
    if let Some(listen) = flags.listen.or(file.listen) {
        config.listen = listen;
    }
    let public_url = flags.public_url.or(file.public_url);
    config.public_url = public_url.map(|url| url.trim_end_matches('/').to_owned());
    config.tls = flags.tls_cert.zip(flags.tls_key).or(file.tls_cert.zip(file.tls_key));
    config.signing_key_file = flags.signing_key_file.or(file.signing_key_file);
    config.trusted_proxies = if flags.trusted_proxy.is_empty() { file.trusted_proxy } else { flags.trusted_proxy };
    config.metrics_listen = flags.metrics_listen.or(file.metrics_listen);
    config.metrics_token = flags.metrics_token.or(file.metrics_token);
    config.daemon_binary = flags.daemon_binary.or(file.daemon_binary);
    config.artifacts = store.artifacts.or(file.artifacts);
    Ok((config, store.log.or(file.log)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_flags_beat_the_file() {
        Cli::command().debug_assert();
        let folder = tempfile::tempdir().expect("a folder");
        let store = |url: Option<&str>| Store {
            data: Some(folder.path().to_owned()),
            database_url: url.map(str::to_owned),
            artifacts: None,
            log: None,
        };
        std::fs::write(folder.path().join("config.yaml"), "listen: 127.0.0.1:9\nlog: json\n").expect("a file");
        let (config, log) = settle(store(None), Serve::default()).expect("settled");
        assert_eq!((config.listen.port(), log), (9, Some(LogForm::Json)));
        let flags = Serve { listen: "127.0.0.1:10".parse().ok(), ..Serve::default() };
        assert_eq!(settle(store(None), flags).expect("settled").0.listen.port(), 10);
        assert!(matches!(settle(store(Some("mysql://x")), Serve::default()), Err(Failure::Config(_))));
        std::fs::write(folder.path().join("config.yaml"), "lisen: 127.0.0.1:9\n").expect("a file");
        let Err(Failure::Config(why)) = settle(store(None), Serve::default()) else { panic!("an unknown key passed") };
        assert!(why.contains("lisen") && why.contains("config.yaml"), "{why}");
    }
}
