//! What commands do not see unless it was opened by name: the daemon's own files and the user's secrets.
//!
//! A single table with one word per group; `sandbox.read` in `config.yaml` takes the word or the path.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

/// Names in a home that belong to the daemon alone: credential and journal, configuration, keys. The predecessor kept
/// its keys in the last two.
pub const PRIVATE_NAMES: [&str; 7] =
    ["state", "config.yaml", "policy.yaml", ".env", "secrets", "openai.yaml", "config.json"];

/// The skills in a home, and which of them may be used: read by commands, and written by none.
pub const SKILLS_NAME: &str = "skills";

/// Most entries of a private folder that are examined for links that lead out of it.
const MAX_FOLDER_ENTRIES: usize = 512;

/// A group of places in a user's home folder that hold secrets of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Opens the group in `sandbox.read`.
    pub word: &'static str,
    /// Below the home folder. A `*` at the end stands for every name that begins like that.
    pub places: &'static [&'static str],
}

/// Everything that is hidden.
pub const SECRETS: &[Secret] = &[
    Secret { word: "ssh", places: &[".ssh"] },
    Secret { word: "gnupg", places: &[".gnupg"] },
    Secret { word: "aws", places: &[".aws"] },
    Secret { word: "azure", places: &[".azure"] },
    Secret { word: "gcloud", places: &[".config/gcloud", ".boto"] },
    Secret { word: "kube", places: &[".kube", ".config/k9s", ".config/helm"] },
    Secret { word: "docker", places: &[".docker", ".config/containers", ".config/podman"] },
    Secret { word: "gh", places: &[".config/gh", ".config/hub", ".config/glab-cli"] },
    Secret { word: "git", places: &[".git-credentials", ".config/git/credentials"] },
    Secret { word: "netrc", places: &[".netrc", "_netrc"] },
    Secret { word: "npm", places: &[".npmrc", ".yarnrc.yml", ".config/pnpm/auth.ini"] },
    Secret { word: "pypi", places: &[".pypirc"] },
    Secret { word: "cargo", places: &[".cargo/credentials", ".cargo/credentials.toml"] },
    Secret { word: "gem", places: &[".gem/credentials", ".local/share/gem/credentials"] },
    Secret { word: "maven", places: &[".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties"] },
    Secret { word: "composer", places: &[".composer/auth.json", ".config/composer/auth.json"] },
    Secret {
        word: "terraform",
        places: &[".terraform.d/credentials.tfrc.json", ".terraformrc", ".pulumi/credentials.json"],
    },
    Secret { word: "vault", places: &[".vault-token", ".config/sops", ".config/age"] },
    Secret { word: "rclone", places: &[".config/rclone", ".rclone.conf", ".s3cfg", ".config/borg", ".config/restic"] },
    Secret {
        word: "passwords",
        places: &[
            ".password-store",
            ".local/share/keyrings",
            ".local/share/kwalletd",
            ".kde/share/apps/kwallet",
            ".config/op",
            ".op",
            ".config/1Password",
            ".config/Bitwarden",
            ".config/Bitwarden CLI",
            ".config/keepassxc",
            ".config/KeePass",
            ".local/share/gopass",
            ".config/gopass",
        ],
    },
    Secret {
        word: "browsers",
        places: &[
            ".mozilla",
            ".config/chromium",
            ".config/google-chrome*",
            ".config/BraveSoftware",
            ".config/microsoft-edge*",
            ".config/vivaldi*",
            ".config/opera*",
            ".librewolf",
            ".thunderbird",
            "snap/firefox",
            "snap/chromium",
            "snap/brave",
            "snap/thunderbird",
            ".var/app/org.mozilla.*",
            ".var/app/org.chromium.*",
            ".var/app/com.google.Chrome*",
            ".var/app/com.brave.*",
            ".var/app/com.microsoft.Edge*",
            ".cache/mozilla",
            ".cache/chromium",
            ".cache/google-chrome*",
            ".cache/BraveSoftware",
            ".cache/microsoft-edge*",
        ],
    },
    Secret {
        word: "history",
        places: &[
            ".bash_history*",
            ".zsh_history*",
            ".zhistory",
            ".histfile",
            ".sh_history",
            ".ash_history",
            ".local/share/fish",
            ".config/fish/fish_history",
            ".python_history*",
            ".node_repl_history",
            ".irb_history",
            ".rediscli_history",
            ".psql_history*",
            ".mysql_history",
            ".mariadb_history",
            ".sqlite_history",
            ".mongosh",
            ".lesshst",
            ".viminfo",
            ".local/state/bash",
            ".local/state/zsh",
            ".local/share/atuin",
            ".wget-hsts",
        ],
    },
    Secret { word: "database", places: &[".pgpass", ".my.cnf", ".mylogin.cnf", ".config/mongosh"] },
    Secret { word: "mail", places: &[".msmtprc", ".config/msmtp", ".mbsyncrc", ".config/neomutt", ".muttrc"] },
    Secret { word: "vpn", places: &[".config/openvpn", ".config/wireguard", ".config/tailscale", ".config/protonvpn"] },
    Secret { word: "desktop", places: &[".ICEauthority", ".Xauthority", ".config/Slack", ".config/discord"] },
    Secret {
        word: "agents",
        places: &[
            ".claude/.credentials.json",
            ".codex/auth.json",
            ".gemini/oauth_creds.json",
            ".config/github-copilot",
        ],
    },
];

/// The group with this word.
pub fn named(word: &str) -> Option<&'static Secret> {
    SECRETS.iter().find(|secret| secret.word == word)
}

impl Secret {
    /// Those of its places that exist, as they are written below the home folder.
    pub fn found(&self, user_home: &Path) -> Vec<PathBuf> {
        let places = self.places.iter().flat_map(|place| match place.strip_suffix('*') {
            Some(begin) => beginning(user_home, begin),
            None => vec![user_home.join(place)],
        });
        places.filter(|place| place.symlink_metadata().is_ok()).collect()
    }
}

fn beginning(user_home: &Path, begin: &str) -> Vec<PathBuf> {
    let (folder, begin) =
        begin.rsplit_once('/').map_or((user_home.to_owned(), begin), |(folder, begin)| (user_home.join(folder), begin));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let alike = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(begin)));
    alike.map(|entry| entry.path()).collect()
}

/// The home folders of this process's user, from the environment and from the system's user database.
pub fn user_homes() -> Vec<PathBuf> {
    let named = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let own = rustix::process::getuid().as_raw().to_string();
    let listed = fs::read_to_string("/etc/passwd").ok().and_then(|list| {
        let fields = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
        fields.into_iter().find(|fields| fields.get(2) == Some(&own.as_str()))?.get(5).map(PathBuf::from)
    });
    let mut homes: Vec<PathBuf> = named.into_iter().chain(listed).filter_map(|home| home.canonicalize().ok()).collect();
    homes.dedup();
    homes.retain(|home| home != Path::new("/"));
    homes
}

/// The real paths of the daemon's own files in `home`.
pub fn private(home: &Path) -> Vec<PathBuf> {
    let places = PRIVATE_NAMES.iter().flat_map(|name| real_of_private(&home.join(name)));
    sensible(places.collect(), home)
}

/// The real paths of the existing secrets that were not `opened`.
pub fn hidden(home: &Path, opened: &[PathBuf]) -> Vec<PathBuf> {
    let secrets = user_homes().into_iter().flat_map(|user| SECRETS.iter().flat_map(move |secret| secret.found(&user)));
    let closed = secrets.filter(|secret| !opened.contains(secret)).filter_map(|secret| secret.canonicalize().ok());
    sensible(closed.filter(|real| !opened.contains(real)).collect(), home)
}

/// Places of secrets and of the daemon's own files where nothing exists now, except those that were `opened`. Files
/// created there while a command runs would be visible. Names with `*` are not included.
pub fn absent(home: &Path, opened: &[PathBuf]) -> Vec<PathBuf> {
    let named = |user: PathBuf| {
        let places = SECRETS.iter().flat_map(|secret| secret.places).filter(|place| !place.ends_with('*'));
        places.map(move |place| user.join(place)).collect::<Vec<_>>()
    };
    let secrets = user_homes().into_iter().flat_map(named).chain(PRIVATE_NAMES.iter().map(|name| home.join(name)));
    secrets.filter(|place| !opened.contains(place) && place.symlink_metadata().is_err()).collect()
}

/// Leaves out places that contain the home, and links to the whole machine: they must not hide everything.
fn sensible(places: BTreeSet<PathBuf>, home: &Path) -> Vec<PathBuf> {
    places.into_iter().filter(|place| place.components().count() > 1 && !home.starts_with(place)).collect()
}

/// Where a private file or folder really lies, and where links directly in it lead: keys may be kept elsewhere.
fn real_of_private(private: &Path) -> Vec<PathBuf> {
    let Ok(real) = private.canonicalize() else { return Vec::new() };
    let entries = fs::read_dir(&real).into_iter().flatten().flatten().take(MAX_FOLDER_ENTRIES);
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let mut places: Vec<PathBuf> = links.filter_map(|link| link.path().canonicalize().ok()).collect();
    places.push(real);
    places
}

/// A path as people write it: `~` for the user's home folder.
pub fn short(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.components().count() > 1);
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => OsString::from(format!("~/{}", rest.display())).to_string_lossy().into_owned(),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_places_occur_once() {
        let words: BTreeSet<_> = SECRETS.iter().map(|secret| secret.word).collect();
        assert_eq!(words.len(), SECRETS.len());
        let places: Vec<_> = SECRETS.iter().flat_map(|secret| secret.places).collect();
        assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
        assert!(places.iter().all(|place| !place.starts_with('/') && !place.contains("..")));
    }

    #[test]
    fn links_of_the_daemons_own_files_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().canonicalize().expect("real").join(path);
        fs::create_dir_all(at("home/secrets")).expect("a folder");
        fs::create_dir_all(at("dotfiles/keys")).expect("a folder");
        for file in ["dotfiles/viber.yaml", "dotfiles/keys/openai"] {
            fs::write(at(file), "SECRET").expect("a file");
        }
        std::os::unix::fs::symlink(at("dotfiles/viber.yaml"), at("home/config.yaml")).expect("a link");
        std::os::unix::fs::symlink(at("dotfiles/keys/openai"), at("home/secrets/openai")).expect("a link");
        let closed = private(&at("home"));
        for place in ["dotfiles/viber.yaml", "dotfiles/keys/openai", "home/secrets"] {
            assert!(closed.contains(&at(place)), "{place}: {closed:?}");
        }
    }

    #[test]
    fn a_word_finds_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        for place in [".config/google-chrome-beta", ".mozilla"] {
            fs::create_dir_all(folder.path().join(place)).expect("a folder");
        }
        let found = named("browsers").expect("a word").found(folder.path());
        assert_eq!(found, [folder.path().join(".mozilla"), folder.path().join(".config/google-chrome-beta")]);
    }
}
