//! Writes `defaults: { model: … }` into a `config.yaml` that has no defaults yet. What a person wrote there stays byte for
//! byte.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, de::IgnoredAny};

use super::{Variables, machine, yaml::YamlFile};
use crate::home::{Home, write_private};

/// Makes `model` (`provider/model`) the one of agents that name none, or says why a person has to.
pub fn set_default_model(home: &Home, model: &str, variables: &Variables) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Written {
        defaults: Defaults,
    }
    #[derive(Deserialize)]
    struct Defaults {
        model: String,
    }
    let path = home.config();
    if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
        return Err("config.yaml is a link: set the model there".to_owned());
    }
    let source = YamlFile::read(&path, "config.yaml").map_err(|error| error.message)?;
    let before = source.as_ref().map_or("", YamlFile::text);
    let keys: BTreeMap<String, IgnoredAny> = match &source {
        Some(source) => source.parse().map_err(|error| error.message)?,
        None => BTreeMap::new(),
    };
    if keys.contains_key("defaults") {
        return match machine::read(home, variables) {
            Ok(config) if config.default_model.as_deref() == Some(model) => Ok(()),
            _ => Err("config.yaml has `defaults` already: set the model there".to_owned()),
        };
    }
    let newline = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    // Every JSON string is a valid YAML string.
    let quoted = serde_json::to_string(model).map_err(|error| error.to_string())?;
    let after = format!("{before}{newline}defaults: {{ model: {quoted} }}\n");
    // A file may end so that nothing can be added below (`...`, one flow mapping).
    let read = YamlFile::of(after.clone(), "config.yaml").parse::<Written>();
    if read.map(|read| read.defaults.model).ok().as_deref() != Some(model) {
        return Err("config.yaml is written so that nothing can be added: set the model there".to_owned());
    }
    write_private(&path, after.as_bytes()).map_err(|error| format!("config.yaml: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigSnapshot;

    fn after(text: &str, model: &str) -> (Result<(), String>, String, Option<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        fs::write(home.config(), text).expect("written");
        let done = set_default_model(&home, model, &Variables::default());
        let read = ConfigSnapshot::read(&home, &Variables::default());
        assert_eq!(read.error, None, "{text}");
        (done, fs::read_to_string(home.config()).expect("there"), read.config.default_model.clone())
    }

    #[test]
    fn the_model_is_added_below_what_a_person_wrote() {
        for text in ["", "# only a comment", "maxTasks: 2 # mine\n"] {
            let (done, written, model) = after(text, "openai/gpt-5");
            assert_eq!((done, model.as_deref()), (Ok(()), Some("openai/gpt-5")), "{text}");
            assert!(written.starts_with(text), "{written}");
        }
    }

    #[test]
    fn what_a_person_chose_is_never_replaced() {
        for text in ["defaults: { model: openai/gpt-4 }\n", "{ maxTasks: 2 }\n", "maxTasks: 2\n...\n"] {
            let (done, written, model) = after(text, "openai/gpt-5");
            assert!(done.is_err(), "{text}");
            assert_eq!((written.as_str(), model.as_deref() == Some("openai/gpt-5")), (text, false));
        }
        assert_eq!(after("defaults: { model: openai/gpt-5 }\n", "openai/gpt-5").0, Ok(()), "a retry");
        let (done, _, model) = after("", "openai/x\" }\nboardKeys: on #");
        assert_eq!((done, model.as_deref()), (Ok(()), Some("openai/x\" }\nboardKeys: on #")), "a name stays a name");
    }
}
