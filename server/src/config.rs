//! The configuration of `serve`: flags override the environment, the file and the defaults, in this order. `cli` reads
//! it; this module checks it.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

/// Shortest metrics token, characters.
const MIN_METRICS_TOKEN_CHARS: usize = 16;

/// The checked configuration of a running Board.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub database_url: String,
    /// The folder of the keys and, by default, of the SQLite database and the artifacts.
    pub data: PathBuf,
    /// Without a trailing slash; links, cookies and accepted hosts are derived from it.
    pub public_url: Option<String>,
    /// Whoever started it promises that its port can be reached from its own machine alone, whatever `listen` says: a
    /// container whose port is published on 127.0.0.1.
    pub published_on_loopback: bool,
    /// Certificate chain and key, both PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A key provided by the administrator; without it the Board keeps its own in `{data}/keys`.
    pub signing_key_file: Option<PathBuf>,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// Where `/metrics` is open, for the administrator's own network.
    pub metrics_listen: Option<SocketAddr>,
    /// The bearer token that allows reading `/metrics` on the main listener.
    pub metrics_token: Option<String>,
    /// The `daemon-agent` build for work machines; beside this program when absent.
    pub daemon_binary: Option<PathBuf>,
    /// Where blobs are kept: `file:///…` or `s3://…`; a folder of the data folder when absent.
    pub artifacts: Option<String>,
    /// The origin of the registry that skills may be taken from; none when absent.
    pub skill_registry: Option<String>,
}

/// The settings that a running Board changes when it reads its configuration again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloadable {
    pub trusted_proxies: Vec<Cidr>,
    pub metrics_token: Option<String>,
    pub daemon_binary: Option<PathBuf>,
}

/// Why a configuration is refused: exit code 78.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadConfig(pub String);

impl Config {
    /// The configuration of a Board that serves only its own machine.
    pub fn local(data: PathBuf) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7400)),
            database_url: sqlite_in(&data),
            data,
            public_url: None,
            published_on_loopback: false,
            tls: None,
            signing_key_file: None,
            trusted_proxies: Vec::new(),
            metrics_listen: None,
            metrics_token: None,
            daemon_binary: None,
            artifacts: None,
            skill_registry: None,
        }
    }

    /// The part that a running Board can change.
    pub fn reloadable(&self) -> Reloadable {
        Reloadable {
            trusted_proxies: self.trusted_proxies.clone(),
            metrics_token: self.metrics_token.clone(),
            daemon_binary: self.daemon_binary.clone(),
        }
    }

    /// The settings, by flag, that differ in `new` and that only a restart changes.
    pub fn fixed_differences(&self, new: &Self) -> Vec<&'static str> {
        let differs = [
            ("--listen", self.listen != new.listen),
            ("--database-url", self.database_url != new.database_url),
            ("--data", self.data != new.data),
            ("--public-url", self.public_url != new.public_url),
            ("--published-on-loopback", self.published_on_loopback != new.published_on_loopback),
            ("--tls-cert", self.tls.is_some() != new.tls.is_some()),
            ("--signing-key-file", self.signing_key_file.is_some() != new.signing_key_file.is_some()),
            ("--metrics-listen", self.metrics_listen != new.metrics_listen),
            ("--artifacts", self.artifacts != new.artifacts),
            ("--skill-registry", self.skill_registry != new.skill_registry),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Refuses a configuration that would expose passwords or cannot work.
    pub fn check(&self) -> Result<(), BadConfig> {
        let secure = self.public_url.as_deref().is_some_and(|url| url.starts_with("https://"));
        if !self.listen.ip().is_loopback() && self.tls.is_none() && !secure {
            // Pages, forms and vibers are then served under names of its own machine alone: `hosts`.
            let elsewhere = self.public_url.as_deref().filter(|url| !names_this_machine(url));
            if let Some(url) = elsewhere.filter(|_| self.published_on_loopback) {
                return Err(BadConfig(format!(
                    "--published-on-loopback: --public-url {url} is not an address of this machine, such as \
                     http://localhost:{}; other machines need https://…",
                    self.listen.port()
                )));
            }
            if !self.published_on_loopback {
                let why = "other machines could reach it, and passwords would cross the network in the clear";
                return Err(BadConfig(format!(
                    "--listen {}: {why}; give --tls-cert and --tls-key, or --public-url https://… of the proxy in \
                     front; a container whose port is published on 127.0.0.1 alone says so with --published-on-loopback",
                    self.listen
                )));
            }
        }
        if let Some(url) = &self.public_url {
            let authority = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            if authority.is_none_or(|a| a.is_empty() || a.contains(['/', '?', '#', '@', ' '])) {
                let form = "https://host or https://host:port, nothing after it";
                return Err(BadConfig(format!("--public-url {url}: expected {form}")));
            }
        }
        if self.metrics_token.as_ref().is_some_and(|token| token.len() < MIN_METRICS_TOKEN_CHARS) {
            return Err(BadConfig(format!("--metrics-token: shorter than {MIN_METRICS_TOKEN_CHARS} characters")));
        }
        if let Some(file) = self.daemon_binary.as_ref().filter(|file| !file.is_file()) {
            return Err(BadConfig(format!("--daemon-binary {}: there is no such file", file.display())));
        }
        Ok(())
    }

    /// Where people and vibers reach this Board, without a trailing slash.
    pub fn base_url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.public_url.clone().unwrap_or_else(|| match self.listen.ip() {
            IpAddr::V6(ip) if ip.is_loopback() => format!("{scheme}://[::1]:{}", self.listen.port()),
            ip if !ip.is_loopback() && self.published_on_loopback => {
                format!("{scheme}://localhost:{}", self.listen.port())
            }
            _ => format!("{scheme}://127.0.0.1:{}", self.listen.port()),
        })
    }

    /// Whether browsers reach it by HTTPS; cookies depend on it.
    pub fn secure(&self) -> bool {
        self.base_url().starts_with("https://")
    }

    /// The host names that it serves, in lower case, as a browser sends them.
    pub fn hosts(&self) -> Vec<String> {
        let with_default_port = |host: &str, port: &str| vec![host.to_owned(), format!("{host}:{port}")];
        if let Some(url) = &self.public_url {
            let (authority, port) = match url.strip_prefix("https://") {
                Some(authority) => (authority, "443"),
                None => (url.strip_prefix("http://").unwrap_or(url), "80"),
            };
            let authority = authority.to_ascii_lowercase();
            let bare = authority.strip_suffix(&format!(":{port}")).unwrap_or(&authority);
            return if has_port(bare) { vec![bare.to_owned()] } else { with_default_port(bare, port) };
        }
        let default = if self.tls.is_some() { 443 } else { 80 };
        let names = ["localhost", "127.0.0.1", "[::1]"];
        let port = self.listen.port();
        names
            .iter()
            .flat_map(|name| match port == default {
                true => with_default_port(name, &port.to_string()),
                false => vec![format!("{name}:{port}")],
            })
            .collect()
    }

    /// The origins of its own pages, as browsers write them: never with a default port.
    pub fn origins(&self) -> Vec<String> {
        let scheme = if self.secure() { "https" } else { "http" };
        let default = if self.secure() { ":443" } else { ":80" };
        self.hosts().iter().filter(|host| !host.ends_with(default)).map(|host| format!("{scheme}://{host}")).collect()
    }
}

/// Whether a URL's host is the machine of whoever opens it.
fn names_this_machine(url: &str) -> bool {
    let authority = url.strip_prefix("http://").unwrap_or(url);
    let host =
        authority.rsplit_once(':').map_or(authority, |(host, _)| if has_port(authority) { host } else { authority });
    let ip = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback())
}

fn has_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// The address of the SQLite database in a data folder.
pub fn sqlite_in(data: &std::path::Path) -> String {
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    format!("sqlite://{}", data.join("board.db").display())
}

/// A range of IP addresses: `10.0.0.0/8`, `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    ip: IpAddr,
    bits: u32,
}

impl Cidr {
    /// Whether the address lies in it.
    pub fn holds(&self, ip: IpAddr) -> bool {
        match (self.ip, ip.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                own.to_bits().checked_shr(32 - self.bits) == ip.to_bits().checked_shr(32 - self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                own.to_bits().checked_shr(128 - self.bits) == ip.to_bits().checked_shr(128 - self.bits)
            }
            _ => false,
        }
    }
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
        let bad = || format!("{text:?} is not an address or a range like 10.0.0.0/8");
        let ip: IpAddr = ip.parse().map_err(|_| bad())?;
        let max_bits = if ip.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(max_bits), str::parse).map_err(|_| bad())?;
        if bits > max_bits { Err(bad()) } else { Ok(Self { ip, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, public_url: Option<&str>) -> Config {
        let mut config = Config::local("/tmp/x".into());
        config.listen = listen.parse().expect("an address");
        config.public_url = public_url.map(str::to_owned);
        config
    }

    #[test]
    fn an_open_port_needs_tls_or_an_https_proxy() {
        assert!(config("127.0.0.1:7400", None).check().is_ok());
        assert!(config("0.0.0.0:7400", None).check().is_err());
        assert!(config("0.0.0.0:7400", Some("http://board.example")).check().is_err());
        assert!(config("0.0.0.0:7400", Some("https://board.example")).check().is_ok());
        for url in ["board.example", "https://", "https://b/x", "https://u@b", "ftp://b"] {
            assert!(config("127.0.0.1:1", Some(url)).check().is_err(), "{url}");
        }
    }

    #[test]
    fn a_port_published_on_loopback_serves_its_own_machine_alone() {
        let published = |url: Option<&str>| {
            let mut config = config("0.0.0.0:7400", url);
            config.published_on_loopback = true;
            config
        };
        let own = published(None);
        assert!(own.check().is_ok());
        assert_eq!(own.base_url(), "http://localhost:7400");
        assert_eq!(own.hosts(), ["localhost:7400", "127.0.0.1:7400", "[::1]:7400"], "no other machine's name for it");
        for url in
            ["http://localhost:8000", "http://LOCALHOST", "http://127.0.0.1:7400", "http://[::1]:7400", "http://[::1]"]
        {
            assert!(published(Some(url)).check().is_ok(), "{url}");
        }
        assert!(published(Some("https://board.example")).check().is_ok(), "a proxy with a certificate is in front");
        for url in
            ["http://board.example", "http://10.0.0.7:7400", "http://0.0.0.0:7400", "http://localhost.example:7400"]
        {
            let Err(BadConfig(why)) = published(Some(url)).check() else { panic!("{url}") };
            assert!(why.starts_with("--published-on-loopback"), "{why}");
        }
        assert!(config("0.0.0.0:7400", Some("http://localhost:7400")).check().is_err(), "it has to be said");
    }

    #[test]
    fn hosts_and_origins_are_exact() {
        let local = config("127.0.0.1:7400", None);
        assert_eq!(local.hosts(), ["localhost:7400", "127.0.0.1:7400", "[::1]:7400"]);
        assert_eq!(local.origins()[0], "http://localhost:7400");
        let public = config("127.0.0.1:7400", Some("https://Board.Example"));
        assert_eq!(public.hosts(), ["board.example", "board.example:443"]);
        assert_eq!(public.origins(), ["https://board.example"]);
        assert_eq!(config("127.0.0.1:7400", Some("https://b:8443")).hosts(), ["b:8443"]);
    }

    #[test]
    fn a_range_holds_its_addresses() {
        let range: Cidr = "10.1.0.0/16".parse().expect("a range");
        assert!(range.holds("10.1.2.3".parse().expect("ip")) && !range.holds("10.2.0.1".parse().expect("ip")));
        assert!(range.holds("::ffff:10.1.2.3".parse().expect("ip")));
        let all: Cidr = "::/0".parse().expect("a range");
        assert!(all.holds("2001:db8::1".parse().expect("ip")) && !all.holds("10.0.0.1".parse().expect("ip")));
        for bad in ["10.0.0.0/33", "x", "10.0.0.0/", ""] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }
}
