//! What a command finds around itself: its environment and its private folders.

use std::{
    ffi::{OsStr, OsString},
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::leftovers::{self, Note};

/// What every command may know of the daemon's environment; keys of providers are not among it.
const PASSED: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "TERM", "TZ", "SHELL"];
/// Where programs are looked for when the daemon itself was started without a PATH.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The whole environment of a command, out of the daemon's own: the usual names, and `more` that the agent's file names.
pub fn environment(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
    scratch: &Path,
) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsStr| {
        let name = name.to_string_lossy();
        PASSED.contains(&&*name) || name.starts_with("LC_") || more.iter().any(|more| *more == name)
    };
    let mut env: Vec<_> = own.into_iter().filter(|(name, _)| passed(name) && name != "TMPDIR").collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), USUAL_PATH.into()));
    }
    env.push(("TMPDIR".into(), scratch.into()));
    env
}

/// Makes a folder that only its owner may enter, with those above it.
pub fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The private TMPDIR of one attempt, removed with all in it once it is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// There until the folder is gone: a kill leaves none behind.
    note: Option<Note>,
}

impl Scratch {
    /// Short, because programs put sockets there (108 bytes at most), and outside the home, whose place is not ours
    /// to choose.
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
