//! What `serve` was told: flags, environment, file, defaults, in this order.

use std::{net::SocketAddr, path::PathBuf};

/// The checked configuration of a running Board.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub database_url: String,
    /// Keys, the SQLite database, backups by default.
    pub data: PathBuf,
    /// Without a trailing slash; what links, cookies and accepted hosts follow.
    pub public_url: Option<String>,
    /// Peers whose `X-Forwarded-*` is believed, as CIDR.
    pub trusted_proxies: Vec<String>,
}
