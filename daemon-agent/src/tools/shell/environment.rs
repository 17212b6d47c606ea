//! A command's environment variables and private folders.

use std::{ffi::OsString, fs::DirBuilder, io, os::unix::fs::DirBuilderExt, path::Path};

use crate::hold::inherited_variables;

/// A command's whole environment, taken from the daemon's: the usual names, and `more` that the agent's file lists.
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
    scratch: &Path,
) -> Vec<(OsString, OsString)> {
    let mut env = inherited_variables(own, more);
    env.push(("TMPDIR".into(), scratch.into()));
    env
}

/// Creates a folder that only its owner may enter, with missing folders above it.
pub fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_behind_and_named_variables_go_along() {
        let own =
            [("PATH", "/bin"), ("OPENAI_API_KEY", "sk-1"), ("LC_ALL", "C"), ("CARGO_HOME", "/c"), ("TMPDIR", "/x")];
        let own = own.map(|(name, value)| (name.into(), value.into()));
        let env = environment(own, &["CARGO_HOME".into()], Path::new("/tmp/t"));
        let names: Vec<_> = env.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(names, ["PATH=/bin", "LC_ALL=C", "CARGO_HOME=/c", "TMPDIR=/tmp/t"]);
    }
}
