//! Writes `defaults: { model: … }` into a `config.yaml` that has no defaults yet. What a person wrote there stays byte for
//! byte.

use std::{collections::BTreeMap, fs};

use serde::de::IgnoredAny;

use super::{Variables, machine, yaml::YamlFile};
use crate::home::{Home, replace_text};

/// How often to begin again because somebody saved the file meanwhile.
const MAX_WRITE_ATTEMPTS: usize = 4;

/// Makes `model` (`provider/model`) the one of agents that name none, or says why a person has to.
pub fn set_default_model(home: &Home, model: &str, variables: &Variables) -> Result<(), String> {
    set_meanwhile(home, model, variables, || {})
}

/// The same; `meanwhile` happens between reading and writing.
fn set_meanwhile(home: &Home, model: &str, variables: &Variables, meanwhile: impl Fn()) -> Result<(), String> {
    let path = home.config();
    if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
        return Err("config.yaml is a link: set the model there".to_owned());
    }
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let before = YamlFile::read(&path, "config.yaml").map_err(|error| error.message)?;
        let Some(after) = with_default_model(before.as_ref(), home, model, variables)? else { return Ok(()) };
        meanwhile();
        let replaced = replace_text(&path, before.as_ref().map(YamlFile::text), &after);
        if replaced.map_err(|error| format!("config.yaml: {error}"))? {
            return Ok(());
        }
    }
    Err("somebody else keeps changing config.yaml: set the model there".to_owned())
}

/// The text with the model below what is there; `None` if that says so already.
fn with_default_model(
    source: Option<&YamlFile>,
    home: &Home,
    model: &str,
    variables: &Variables,
) -> Result<Option<String>, String> {
    let before = source.map_or("", YamlFile::text);
    if let Some(source) = source {
        let config = machine::of(source, home, variables).map_err(|error| {
            let (line, why) = (error.line, error.message.lines().next().unwrap_or_default());
            let place = if line == 0 { String::new() } else { format!(" in line {line}") };
            format!("config.yaml is wrong{place} ({why}), so nothing was added: mend it and set the model there")
        })?;
        if config.default_model.as_deref() == Some(model) {
            return Ok(None);
        }
        let keys: BTreeMap<String, IgnoredAny> = source.parse().map_err(|error| error.message)?;
        if keys.contains_key("defaults") {
            return Err("config.yaml has `defaults` already: set the model there".to_owned());
        }
    }
    let newline = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    // Every JSON string is a valid YAML string.
    let quoted = serde_json::to_string(model).map_err(|error| error.to_string())?;
    let after = format!("{before}{newline}defaults: {{ model: {quoted} }}\n");
    // A file may end so that nothing can be added below (`...`, one flow mapping).
    let read = machine::of(&YamlFile::of(after.clone(), "config.yaml"), home, variables);
    match read.ok().and_then(|config| config.default_model).as_deref() == Some(model) {
        true => Ok(Some(after)),
        false => Err("config.yaml is written so that nothing can be added: set the model there".to_owned()),
    }
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
    fn what_an_editor_saves_meanwhile_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let (path, text) = (home.config(), || fs::read_to_string(home.config()).expect("there"));
        let times = std::cell::Cell::new(0);
        let saves = || {
            times.set(times.get() + 1);
            fs::write(&path, format!("maxTasks: {}\n", times.get())).expect("saved");
        };
        let none = Variables::default();
        assert!(set_meanwhile(&home, "openai/a", &none, saves).is_err_and(|why| why.contains("keeps changing")));
        assert_eq!((text().as_str(), times.get()), ("maxTasks: 4\n", MAX_WRITE_ATTEMPTS));
        let saves_once = || {
            if times.replace(0) > 0 {
                fs::write(&path, "maxTasks: 9\n").expect("saved");
            }
        };
        assert_eq!(set_meanwhile(&home, "openai/a", &none, saves_once), Ok(()));
        assert_eq!(text(), "maxTasks: 9\ndefaults: { model: \"openai/a\" }\n");
    }

    #[test]
    fn a_file_that_is_wrong_stays_as_it_is_and_its_line_is_named() {
        for (text, line) in [
            ("maxTasks: 2\nmaxTask: 3\n", 2),
            ("maxTasks: 2\n\nboardKeys: maybe\n", 3),
            ("maxTasks: 2\nsandbox: { write: [\n", 0),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            let home = Home::at(folder.path());
            home.open().expect("a home");
            fs::write(home.config(), text).expect("written");
            let why = set_default_model(&home, "openai/gpt-5", &Variables::default()).expect_err("it is wrong");
            let place = if line == 0 { "line ".to_owned() } else { format!("line {line} ") };
            assert!(why.contains(&place) && !why.contains('\n'), "{why}");
            assert_eq!(fs::read_to_string(home.config()).expect("there"), text);
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
