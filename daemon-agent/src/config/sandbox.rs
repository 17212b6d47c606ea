//! The section `sandbox:` of `config.yaml`: what commands may reach outside their agent's working folders.

use std::path::{Path, PathBuf};

use protocol::{ConfigError, Confinement, Granted, HiddenSecret};
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{variables::Variables, yaml::YamlFile};
use crate::{
    confinement,
    sandbox::{Network, secrets},
};

/// The section as written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSection {
    write: Vec<Spanned<String>>,
    read: Vec<Spanned<String>>,
    sockets: Vec<Spanned<String>>,
    network: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
}

/// The section, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Additional folders that commands may write to.
    pub write: Vec<PathBuf>,
    /// Hidden places that commands may read.
    pub read: Vec<PathBuf>,
    /// Sockets of the user that commands may connect to.
    pub sockets: Vec<PathBuf>,
    pub network: Network,
    /// Most memory that all processes of a command may use together, bytes; `None` means three quarters of the
    /// machine's memory.
    pub memory: Option<u64>,
}

/// A smaller memory limit is a typing error, bytes.
const MIN_MEMORY_BYTES: u64 = 16 << 20;

/// Most paths of a kind that are reported to the Board, so that the report fits a frame.
const MAX_REPORTED_PATHS: usize = 24;
/// Longest path in that report, bytes.
const MAX_REPORTED_PATH_BYTES: usize = 120;

/// Files and folders below the user's home that decide which programs run: whoever may write there can soon act outside
/// the sandbox.
const SENSITIVE_PATHS: &[(&str, &str)] = &[
    (".bashrc", "what shells run"),
    (".bash_profile", "what shells run"),
    (".bash_login", "what shells run"),
    (".profile", "what shells run"),
    (".zshrc", "what shells run"),
    (".zshenv", "what shells run"),
    (".zprofile", "what shells run"),
    (".config/fish", "what shells run"),
    (".config/environment.d", "what shells run"),
    (".gitconfig", "git's configuration, which names programs to run"),
    (".config/git", "git's configuration, which names programs to run"),
    (".cargo/config.toml", "cargo's configuration, which names programs to run"),
    (".cargo/config", "cargo's configuration, which names programs to run"),
    (".cargo/bin", "programs that are on the PATH of most people"),
    (".npmrc", "npm's configuration, which names programs to run"),
    (".config/pip", "pip's configuration, which names where packages come from"),
    (".config/autostart", "what starts with the desktop"),
    (".config/systemd", "services of the user"),
    (".local/share/systemd", "services of the user"),
    (".local/bin", "programs that are on the PATH of most people"),
    (".ssh", "who may sign in, and programs that ssh runs"),
    (".vimrc", "what editors run"),
    (".config/nvim", "what editors run"),
    (".emacs.d", "what editors run"),
];

impl SandboxSection {
    /// Returns the checked section, or what is wrong with it.
    pub fn check(&self, source: &YamlFile, variables: &Variables) -> Result<SandboxConfig, ConfigError> {
        let paths = |written: &[Spanned<String>]| -> Result<Vec<PathBuf>, ConfigError> {
            let path = |path: &Spanned<String>| variables.path(&path.value).map_err(|why| source.wrong(path, why));
            written.iter().map(path).collect()
        };
        let mut read = Vec::new();
        for opened in &self.read {
            match secrets::named(&opened.value) {
                Some(secret) => {
                    let home = variables.path("~").map_err(|why| source.wrong(opened, why))?;
                    read.extend(secret.found(&home));
                }
                None if opened.value.contains('/') => {
                    read.push(variables.path(&opened.value).map_err(|why| source.wrong(opened, why))?);
                }
                None => {
                    let words = secrets::SECRETS.iter().map(|secret| secret.word).collect::<Vec<_>>().join(", ");
                    let why = format!("{:?} is neither a path nor one of {words}", opened.value);
                    return Err(source.wrong(opened, why));
                }
            }
        }
        let network = match &self.network {
            None => Network::Open,
            Some(word) => Network::parse(&word.value).ok_or_else(|| source.wrong(word, "expected `open` or `none`"))?,
        };
        let memory = match &self.memory {
            None => None,
            Some(text) => Some(bytes(&text.value).filter(|bytes| *bytes >= MIN_MEMORY_BYTES).ok_or_else(|| {
                source.wrong(text, "expected an amount of memory such as 4GiB or 512MiB, at least 16MiB")
            })?),
        };
        Ok(SandboxConfig { write: paths(&self.write)?, read, sockets: paths(&self.sockets)?, network, memory })
    }
}

fn display_path(path: &Path) -> String {
    protocol::text::head(&secrets::short(path), MAX_REPORTED_PATH_BYTES).to_owned()
}

/// `4GiB`, `512 MiB`, `4G`, or plain bytes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let shift = match text.get(digits..)?.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

impl SandboxConfig {
    /// Most memory that all processes of a command may use together, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let machine = rustix::system::sysinfo();
        self.memory.unwrap_or(machine.totalram as u64 * u64::from(machine.mem_unit) / 4 * 3)
    }

    /// What is reported to the Board: what is confined on this machine, what was granted, and what is hidden.
    pub fn confinement(&self) -> Confinement {
        let found = confinement::found();
        let short = |paths: &[PathBuf]| {
            paths.iter().take(MAX_REPORTED_PATHS).map(|path| display_path(path)).collect::<Vec<_>>()
        };
        let hidden = |secret: &secrets::Secret| {
            let there = secrets::user_homes().iter().flat_map(|home| secret.found(home)).collect::<Vec<_>>();
            let there: Vec<_> = there.into_iter().filter(|place| !self.read.contains(place)).collect();
            (!there.is_empty()).then(|| HiddenSecret { word: secret.word.to_owned(), places: short(&there) })
        };
        Confinement {
            layers: found.layers.names().map(str::to_owned).collect(),
            subjects: confinement::description::subjects(found, self.network, self.memory_bytes()),
            granted: Granted {
                write: short(&self.write),
                read: short(&self.read),
                sockets: short(&self.sockets),
                network: self.network.as_str().to_owned(),
                memory: Some(self.memory_bytes()),
            },
            hidden: secrets::SECRETS.iter().filter(|_| found.layers.confine()).filter_map(hidden).collect(),
        }
    }

    /// Warnings about grants that allow more than they appear to.
    pub fn warnings(&self, user_home: &Path, path: &[PathBuf]) -> Vec<String> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let overlaps = |grant: &Path, other: &Path| {
            let (grant, other) = (real(grant), real(other));
            grant.starts_with(&other) || other.starts_with(&grant)
        };
        let mut warnings = Vec::new();
        for grant in &self.write {
            let decisive = SENSITIVE_PATHS.iter().find(|(place, _)| overlaps(grant, &user_home.join(place)));
            let on_path = path.iter().find(|folder| folder.is_absolute() && overlaps(grant, folder));
            let why = match (on_path, decisive) {
                (Some(folder), _) => format!("{} is on the PATH", folder.display()),
                (None, Some((place, what))) => format!("~/{place} is {what}"),
                (None, None) => continue,
            };
            warnings.push(format!(
                "sandbox.write: {}: {why}: a command that writes there acts outside of the sandbox later",
                grant.display()
            ));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read() {
        for (text, expected) in [
            ("4GiB", Some(4 << 30)),
            ("512 MiB", Some(512 << 20)),
            ("1073741824", Some(1 << 30)),
            ("8g", Some(8 << 30)),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        for text in ["", "GiB", "4 elephants", "-1", "99999999999999999TiB"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn grants_that_lead_out_are_told() {
        let home = tempfile::tempdir().expect("a folder");
        let at = |path: &str| home.path().join(path);
        for folder in [".cargo/bin", ".cargo/registry", ".config", "tools"] {
            std::fs::create_dir_all(at(folder)).expect("a folder");
        }
        let warnings = |grant: &str| {
            let sandbox = SandboxConfig { write: vec![at(grant)], ..SandboxConfig::default() };
            sandbox.warnings(home.path(), &[at("tools"), "relative".into()])
        };
        for grant in [".cargo", ".cargo/bin", ".config", "tools", "tools/deep", ".bashrc", ".config/systemd/user"] {
            assert_eq!(warnings(grant).len(), 1, "{grant}");
        }
        for grant in [".cargo/registry", ".cargo/git", ".cache", "code"] {
            assert!(warnings(grant).is_empty(), "{grant}");
        }
        assert!(warnings("tools")[0].contains("PATH"));
    }
}
