//! `{data}/config.yaml`: overrides the defaults, and is overridden by everything else. An unknown key is an error that names
//! the key.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{CliError, LogForm};
use crate::config::Cidr;

/// The content of the file; its keys are named like the flags.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConfigFile {
    pub listen: Option<SocketAddr>,
    pub database_url: Option<String>,
    pub public_url: Option<String>,
    #[serde(default)]
    pub published_on_loopback: bool,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub signing_key_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "ranges")]
    pub trusted_proxy: Vec<Cidr>,
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_token: Option<String>,
    pub daemon_binary: Option<PathBuf>,
    pub artifacts: Option<String>,
    pub skill_registry: Option<String>,
    pub log: Option<LogForm>,
}

/// Reads the file; an absent file sets nothing.
pub fn read(data: &Path) -> Result<ConfigFile, CliError> {
    let path = data.join("config.yaml");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(error) => return Err(CliError::Config(format!("{}: {error}", path.display()))),
    };
    if text.trim().is_empty() {
        return Ok(ConfigFile::default());
    }
    serde_saphyr::from_str(&text).map_err(|error| CliError::Config(format!("{}: {error}", path.display())))
}

fn ranges<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Cidr>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}
