//! A command's environment variables and private folders.

use std::{
    ffi::{OsStr, OsString},
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::leftovers::{self, LeftoverNote};

/// Variables of the daemon's environment that every command gets; providers' keys are not among them.
const INHERITED_VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "TERM", "TZ", "SHELL"];
/// Where programs are searched for if the daemon itself was started without a PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command's whole environment, taken from the daemon's: the usual names, and `more` that the agent's file lists.
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
    scratch: &Path,
) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsStr| {
        let name = name.to_string_lossy();
        INHERITED_VARIABLES.contains(&&*name) || name.starts_with("LC_") || more.iter().any(|more| *more == name)
    };
    let mut env: Vec<_> = own.into_iter().filter(|(name, _)| passed(name) && name != "TMPDIR").collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    env.push(("TMPDIR".into(), scratch.into()));
    env
}

/// Creates a folder that only its owner may enter, with missing folders above it.
pub fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The private TMPDIR of one attempt, removed with everything in it once it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Exists until the folder is gone, so that a kill leaves nothing behind.
    note: Option<LeftoverNote>,
}

impl Scratch {
    /// Short, because programs put sockets there (108 bytes at most), and outside the home, whose path may be long.
    pub fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("viber-{}", uuid::Uuid::now_v7().simple()));
        let note = leftovers::note(&path);
        // Not recursive: it must be new.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, note: Some(note) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(note) = self.note.take() {
            leftovers::remove_noted(std::mem::take(&mut self.path), note);
        }
    }
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

    #[test]
    fn a_scratch_folder_is_private_and_goes_away() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Scratch::new().expect("a folder");
        let path = scratch.path().to_owned();
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(path.join("x"), "x").expect("writable");
        drop(scratch);
        assert!(!path.exists());
    }
}
