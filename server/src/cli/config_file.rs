//! `{data}/config.yaml`: the lowest layer above the defaults. An unknown key is an error that names it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Failure, LogForm};
use crate::config::Cidr;

/// What the file may say; the names are those of the flags.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    pub listen: Option<SocketAddr>,
    pub database_url: Option<String>,
    pub public_url: Option<String>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub signing_key_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "ranges")]
    pub trusted_proxy: Vec<Cidr>,
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_token: Option<String>,
    pub daemon_binary: Option<PathBuf>,
    pub artifacts: Option<String>,
    pub log: Option<LogForm>,
}

/// Reads it; an absent file says nothing.
pub fn read(data: &Path) -> Result<File, Failure> {
    let path = data.join("config.yaml");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => return Err(Failure::Config(format!("{}: {error}", path.display()))),
    };
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    serde_saphyr::from_str(&text).map_err(|error| Failure::Config(format!("{}: {error}", path.display())))
}

fn ranges<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Cidr>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}
