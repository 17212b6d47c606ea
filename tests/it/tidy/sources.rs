//! The files of this repository that people write.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// One file.
pub struct Source {
    /// From the root, with slashes.
    pub path: String,
    pub text: String,
}

impl Source {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the file is the module `place` or lies below it.
    pub fn is_in(&self, place: &str) -> bool {
        self.path.strip_prefix(place).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    /// The top-level module of a crate that the file belongs to.
    pub fn room(&self) -> String {
        let below = self.path.split_once("/src/").map_or("", |(_, below)| below);
        below.split('/').next().unwrap_or("").trim_end_matches(".rs").to_owned()
    }

    /// Without comments, so that prose binds nobody.
    pub fn code(&self) -> String {
        let lines = self.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The code up to the module of tests at its end.
    pub fn code_without_tests(&self) -> String {
        if self.path.ends_with("/tests.rs") {
            return String::new();
        }
        let code = self.code();
        let end = code.find("#[cfg(test)]").unwrap_or(code.len());
        code[..end].to_owned()
    }
}

/// The repository.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned())
}

/// One file by its path from the root.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every source that people write, in a fixed order.
pub fn all() -> &'static [Source] {
    static ALL: OnceLock<Vec<Source>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut found = Vec::new();
        for folder in ["protocol", "server", "daemon-agent", "tests", "migrations", "templates", "static", "scripts"] {
            walk(&root().join(folder), &mut found);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(found.len() > 100, "tidy looks in the wrong place");
        found
    })
}

fn walk(folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            // Built or fetched, not written.
            if !["target", "node_modules", "vendor"].contains(&name.as_str()) && !name.starts_with('.') {
                walk(&path, found);
            }
            continue;
        }
        let written = ["rs", "sql", "html", "css", "js", "sh", "md", "toml"];
        let known = path.extension().is_some_and(|extension| written.iter().any(|known| extension == *known));
        if !known && folder.file_name().is_none_or(|folder| folder != "scripts") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
        found.push(Source { path, text });
    }
}
