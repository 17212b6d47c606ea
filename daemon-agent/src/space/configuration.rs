//! Checks a repository's configuration before git uses it: it is read completely, or the repository is refused with the
//! reason.

use std::{
    fs,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    SpaceError,
    git::Git,
    repository::{Repository, real},
};

/// Largest configuration file, bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;
/// Most bytes of all keys and values, including the file that each comes from.
const MAX_LIST_BYTES: usize = 1024 * 1024;
/// Most filters, which are disabled by name; a repository with more is refused.
const MAX_FILTERS: usize = 100;
/// Most files that a configuration may include.
const MAX_INCLUDES: usize = 20;

/// A setting as git reports it.
struct Setting {
    /// The file that contains it.
    origin: PathBuf,
    key: String,
    value: String,
}

/// The filters that the repository's configuration names. Reading it starts nothing.
pub async fn filters(git: &Git) -> Result<Vec<String>, SpaceError> {
    let repository = git.repository().clone();
    let checked = tokio::task::spawn_blocking(move || check_own(&repository));
    checked.await.map_err(|error| SpaceError::Git(error.to_string()))??;
    let mut settings = list(git, &["--no-includes"]).await?;
    // Includes are checked before git follows them.
    let (mut files, mut followed, mut read) = (Vec::new(), Vec::new(), 0);
    loop {
        files.extend(settings.iter().skip(read).filter_map(include));
        read = settings.len();
        let Some(file) = files.pop() else { break };
        followed.push(file.clone());
        if followed.len() > MAX_INCLUDES {
            return Err(SpaceError::Unreadable("it includes too many files".to_owned()));
        }
        let (repository, checked) = (git.repository().clone(), file.clone());
        let checked = tokio::task::spawn_blocking(move || check_file(&repository, &checked));
        if checked.await.map_err(|error| SpaceError::Git(error.to_string()))?? {
            let name = file.to_str().ok_or_else(|| SpaceError::Unreadable("it is not UTF-8 text".to_owned()))?;
            settings.extend(list(git, &["--no-includes", "--file", name]).await?);
        }
    }
    if !followed.is_empty() {
        // Check that git can follow all of them, too.
        list(git, &["--includes"]).await?;
    }
    let mut names: Vec<String> = settings.iter().filter_map(|setting| filter(&setting.key)).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() > MAX_FILTERS {
        return Err(SpaceError::Unreadable("it names too many filters".to_owned()));
    }
    Ok(names)
}

/// Checks the files that git reads by default.
fn check_own(repository: &Repository) -> Result<(), SpaceError> {
    let (own, common) = (&repository.git, &repository.common);
    for file in [common.join("config"), own.join("config"), own.join("config.worktree")] {
        if fs::symlink_metadata(&file).is_ok() {
            check_file(repository, &file)?;
        }
    }
    Ok(())
}

/// Whether the file exists; an existing one must be readable completely.
fn check_file(repository: &Repository, file: &Path) -> Result<bool, SpaceError> {
    let unreadable = |why: &str| Err(SpaceError::Unreadable(why.to_owned()));
    let real = match real(file) {
        Ok(real) => real,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(_) => return unreadable("one of its files cannot be opened"),
    };
    if !repository.holds(&real) {
        return Err(SpaceError::Elsewhere("a file that its configuration includes".to_owned()));
    }
    let mut bytes = Vec::new();
    let opened = crate::home::open_plain(&real, rustix::fs::OFlags::NOFOLLOW);
    if opened.and_then(|opened| opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).is_err() {
        return unreadable("one of its files cannot be opened");
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return unreadable("it is larger than 256 KiB");
    }
    if std::str::from_utf8(&bytes).is_err() || bytes.contains(&0) {
        return unreadable("it is not UTF-8 text");
    }
    Ok(true)
}

async fn list(git: &Git, which: &[&str]) -> Result<Vec<Setting>, SpaceError> {
    let args = [&["config", "--list", "--show-origin", "-z"], which].concat();
    let output = git.ask(&args, MAX_LIST_BYTES).await;
    let output = output.map_err(|trouble| match trouble {
        SpaceError::Git(why) => SpaceError::Unreadable(why),
        other => other,
    })?;
    if output.cut {
        return Err(SpaceError::Unreadable("it contains too much".to_owned()));
    }
    settings(&output.bytes).ok_or_else(|| SpaceError::Unreadable("it is not UTF-8 text".to_owned()))
}

/// Parses `origin NUL key [LF value] NUL`, repeated.
fn settings(bytes: &[u8]) -> Option<Vec<Setting>> {
    let mut words = bytes.split(|byte| *byte == 0);
    let mut settings = Vec::new();
    while let (Some(origin), Some(setting)) = (words.next(), words.next()) {
        let setting = std::str::from_utf8(setting).ok()?;
        let (key, value) = setting.split_once('\n').unwrap_or((setting, ""));
        let origin = Path::new(std::ffi::OsStr::from_bytes(origin.strip_prefix(b"file:").unwrap_or_default()));
        settings.push(Setting { origin: origin.to_owned(), key: key.to_owned(), value: value.to_owned() });
    }
    Some(settings)
}

/// The file that a setting includes. Paths that git would look for in a home lie outside in any case.
fn include(setting: &Setting) -> Option<PathBuf> {
    let (section, rest) = setting.key.split_once('.')?;
    let includes = section.eq_ignore_ascii_case("include") || section.eq_ignore_ascii_case("includeif");
    if !includes || !rest.rsplit('.').next()?.eq_ignore_ascii_case("path") {
        return None;
    }
    if setting.value.starts_with(['~', '%']) {
        return Some(PathBuf::from("/"));
    }
    Some(setting.origin.parent().unwrap_or(Path::new("/")).join(&setting.value))
}

/// The name of the filter that a key belongs to.
fn filter(key: &str) -> Option<String> {
    let (section, rest) = key.split_once('.')?;
    let (name, _) = rest.rsplit_once('.')?;
    section.eq_ignore_ascii_case("filter").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_known_by_its_key_however_it_is_called() {
        assert_eq!(filter("filter.lfs.clean").as_deref(), Some("lfs"));
        assert_eq!(filter("filter.a.b = c.process").as_deref(), Some("a.b = c"));
        assert_eq!(filter("filter..clean").as_deref(), Some(""));
        for other in ["core.editor", "filter.clean", "filters.x.clean", ""] {
            assert_eq!(filter(other), None);
        }
    }

    #[test]
    fn what_a_configuration_includes_is_found() {
        let output = b"file:/r/.git/config\0include.path\nmore\0file:/r/.git/config\0core.bare\0\
                     command line:\0includeIf.gitdir:/x.y/.path\n/etc/x\0file:/r/a\0include.path\n~/x\0";
        let found: Vec<_> = settings(output).expect("text").iter().filter_map(include).collect();
        assert_eq!(found, [Path::new("/r/.git/more"), Path::new("/etc/x"), Path::new("/")]);
        assert!(settings(b"file:/x\0filter.\xff.clean\nx\0").is_none());
    }
}
