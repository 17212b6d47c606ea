//! Keys of model providers in `secrets/`: how they get there and how they go, whoever asks for it.

use std::{fs, io, path::PathBuf};

use protocol::KeySource;

use super::{Config, ProviderApi};
use crate::home::{Home, write_private};

/// Keeps `key` in `secrets/{provider}` (0600) in place of the one before. The caller has checked both. Returns where.
pub fn save(home: &Home, provider: &str, key: &str) -> io::Result<PathBuf> {
    let path = home.secrets().join(provider);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    write_private(&path, key.as_bytes()).map_err(named)?;
    Ok(path)
}

/// Deletes `secrets/{provider}`; `None` if there was none. Returns where it was.
pub fn remove(home: &Home, provider: &str) -> io::Result<Option<PathBuf>> {
    let path = home.secrets().join(provider);
    match fs::remove_file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Whether a provider of this name can have a key. Others would become names of files.
pub fn is_known(config: &Config, provider: &str) -> bool {
    config.providers.get(provider).is_some_and(|found| found.api != ProviderApi::Demo)
}

/// Whether the Board may set or remove the key of `provider`, or why not, for people.
pub fn check_change(config: &Config, provider: &str) -> Result<(), String> {
    if !config.board_keys {
        return Err("this machine takes no keys from the Board: its config.yaml has no `boardKeys: on`".to_owned());
    }
    if !is_known(config, provider) {
        return Err(format!("no provider is called {:?} on this machine", protocol::text::head(provider, 64)));
    }
    // It would be saved, and not used.
    if config.providers.get(provider).is_some_and(|found| found.key_source == Some(KeySource::Config)) {
        return Err(format!(
            "the key of {provider} is set by apiKey in config.yaml, which has precedence: change it there"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::{ConfigSnapshot, Variables};

    fn home(config: &str) -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        fs::write(home.config(), config).expect("written");
        (folder, home)
    }

    fn config(home: &Home, variables: &Variables) -> std::sync::Arc<Config> {
        let read = ConfigSnapshot::read(home, variables);
        assert_eq!(read.error, None);
        read.config
    }

    #[test]
    fn the_board_changes_keys_only_where_config_yaml_says_so() {
        for (text, allowed) in [("", false), ("boardKeys: off", false), ("boardKeys: on", true)] {
            let (_folder, home) = home(text);
            let config = config(&home, &Variables::default());
            assert_eq!(check_change(&config, "anthropic").is_ok(), allowed, "{text}");
            assert!(check_change(&config, "demo").is_err() && check_change(&config, "../x").is_err());
            assert_eq!(config.shown.iter().any(|id| id == "openrouter"), allowed, "{text}");
        }
        for wrong in ["boardKeys: yes", "boardKeys: true", "boardKeys: [on]"] {
            let (_folder, home) = home(wrong);
            assert!(ConfigSnapshot::read(&home, &Variables::default()).error.is_some(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_closed_and_its_source_is_said() {
        let (_folder, home) = home(
            "boardKeys: on\nproviders: { mine: { api: openai, baseUrl: 'http://127.0.0.1:9', apiKey: '${MINE}' } }",
        );
        let variables = Variables::of([("OPENAI_API_KEY", "sk-env"), ("MINE", "sk-mine")]);
        let path = save(&home, "anthropic", "sk-file").expect("saved");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        let before = config(&home, &variables);
        let source = |config: &Config, id: &str| config.providers[id].key_source;
        assert_eq!(source(&before, "anthropic"), Some(KeySource::File));
        assert_eq!(source(&before, "openai"), Some(KeySource::Environment));
        assert_eq!(source(&before, "mine"), Some(KeySource::Config));
        assert_eq!(source(&before, "deepseek"), None);
        let why = check_change(&before, "mine").expect_err("config.yaml has precedence");
        assert!(why.contains("apiKey in config.yaml"), "{why}");
        save(&home, "openai", "sk-file").expect("saved");
        let after = config(&home, &variables);
        assert_eq!(source(&after, "openai"), Some(KeySource::File), "a file has precedence over the environment");
        assert_eq!(remove(&home, "anthropic").expect("removed"), Some(path));
        assert_eq!(remove(&home, "anthropic").expect("nothing to remove"), None);
        assert_eq!(source(&config(&home, &variables), "anthropic"), None);
    }
}
