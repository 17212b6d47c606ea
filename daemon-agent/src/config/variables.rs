//! The environment that configuration may refer to: the process's own, then the home's `.env`.

use std::{collections::BTreeMap, path::PathBuf};

use crate::home::{Home, read_plain};

/// Names and values, captured once: reading files later does not depend on changes of the process's environment.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// The process's environment; `.env` is added with each snapshot.
    pub fn of_process() -> Self {
        Self(std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect())
    }

    /// Exactly these variables.
    pub fn of<const N: usize>(pairs: [(&str, &str); N]) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// These variables, with those of the home's `.env` for names that are not set.
    pub fn with_file(&self, home: &Home) -> Self {
        let mut all = self.clone();
        let text = read_plain(&home.root().join(".env")).unwrap_or_default();
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let line = line.strip_prefix("export ").unwrap_or(line);
            if let Some((name, value)) = line.split_once('=') {
                let value = value.trim();
                let unquoted =
                    ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q)).unwrap_or(value);
                all.0.entry(name.trim().to_owned()).or_insert_with(|| unquoted.to_owned());
            }
        }
        all
    }

    /// The value of a variable that is set and not empty.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Replaces every `${NAME}` in `text`, or returns the first name that is not set.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let (mut filled, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start + 2..].find('}') else { break };
            let name = &rest[start + 2..start + 2 + length];
            filled.push_str(&rest[..start]);
            filled.push_str(self.value(name).ok_or_else(|| name.to_owned())?);
            rest = &rest[start + 3 + length..];
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// An absolute path with `~` and `${NAME}` replaced, or what is wrong with it.
    pub fn path(&self, text: &str) -> Result<PathBuf, String> {
        let filled = self.fill(text).map_err(|name| format!("the variable {name} is not set"))?;
        if filled.contains('\0') {
            return Err("a path must not contain NUL".to_owned());
        }
        let path = match filled.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                let home = self.value("HOME").ok_or("~ needs HOME to be set")?;
                PathBuf::from(format!("{home}{rest}"))
            }
            _ => PathBuf::from(&filled),
        };
        if path.is_absolute() { Ok(path) } else { Err(format!("{filled} is not absolute (or below ~)")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_missing_ones_named() {
        let variables = Variables::of([("KEY", "k1"), ("HOME", "/home/mia")]);
        assert_eq!(variables.fill("a${KEY}b${KEY}").as_deref(), Ok("ak1bk1"));
        assert_eq!(variables.fill("${NONE}"), Err("NONE".to_owned()));
        assert_eq!(variables.fill("open ${KEY").as_deref(), Ok("open ${KEY"));
        assert_eq!(variables.path("~/code"), Ok(PathBuf::from("/home/mia/code")));
        assert!(variables.path("code").is_err() && variables.path("~mia/x").is_err());
    }
}
