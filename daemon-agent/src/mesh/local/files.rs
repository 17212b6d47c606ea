//! Files that come with what people say on the machine: copied when it is said, put beside the workspace when an agent is
//! told of them.

use std::{
    fs, io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use protocol::{ArtifactId, Attachment, LocalFile, UserMessage};
use rustix::fs::OFlags;

use super::{
    say::{SayError, refused},
    store::{SaidMessage, stage},
};
use crate::{
    artifacts::measure,
    home::{Home, open_plain},
    mesh::Mesh,
    sandbox::secrets,
};

/// Largest file that comes with a message, bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Files that are no agent's to read, whoever names them: what a message names may be a link that an agent made.
#[derive(Clone)]
struct ClosedPlaces {
    home: Home,
    /// Hidden places that agents of this machine may read.
    opened: Vec<PathBuf>,
    /// The adapter's own folder, in which it puts what arrived.
    own: PathBuf,
}

impl Mesh {
    /// Copies the files that a message names into `folder`.
    pub(super) async fn stage_files(
        &self,
        origin: &str,
        folder: &Path,
        message: &UserMessage,
    ) -> Result<Vec<Attachment>, SayError> {
        let opened = self.files().borrow().config.sandbox.read.clone();
        let closed = ClosedPlaces { home: self.home().clone(), opened, own: self.home().adapter_state(origin) };
        let mut staged: Vec<Attachment> = Vec::new();
        for file in &message.attachments {
            let is_plain = self.home().attachment("task", &file.name).is_some();
            if !is_plain || staged.iter().any(|known| known.name == file.name) {
                let why = format!("{:?} is no plain name of a file, or a second one", file.name);
                return Err(refused("bad_file", &why));
            }
            if !Path::new(&file.path).is_absolute() {
                return Err(refused("bad_file", &format!("{:?} is not an absolute path", file.path)));
            }
            let (folder, file, now) = (folder.to_owned(), file.clone(), self.clock().now().millis());
            let closed = closed.clone();
            let copied = tokio::task::spawn_blocking(move || copy(&folder, &file, now, &closed));
            match copied.await.map_err(io::Error::other).flatten() {
                Ok(attachment) => staged.push(attachment),
                Err(error) if is_disk(&error) => return Err(SayError::Disk(error)),
                Err(error) => return Err(refused("bad_file", &error.to_string())),
            }
        }
        Ok(staged)
    }

    /// Puts the files of a message where `place` says. Returns those that are there, and a remark on the others for the
    /// agent.
    pub(super) async fn place_files(
        &self,
        said: &SaidMessage,
        place: impl Fn(&str) -> Option<PathBuf>,
    ) -> (Vec<Attachment>, String) {
        let folder = self.shared.local.store.staged(&said.origin, &said.message.id);
        let (mut placed, mut missing) = (Vec::new(), String::new());
        for file in &said.files {
            let way = place(&file.name).and_then(|place| {
                place.strip_prefix(self.home().workspace()).ok().and_then(Path::to_str).map(str::to_owned)
            });
            let (workspace, from) = (self.workspace(), folder.join(&file.name));
            let put = tokio::task::spawn_blocking(move || {
                let way = way.ok_or_else(|| io::Error::other("its name is no plain one"))?;
                let mut staged = open_plain(&from, OFlags::NOFOLLOW)?;
                workspace.place_file(&way, &mut staged).map_err(io::Error::other)
            });
            match put.await.map_err(io::Error::other).flatten() {
                Ok(()) => placed.push(file.clone()),
                Err(error) => {
                    let name = protocol::text::head(&file.name, 100);
                    missing.push_str(&format!("\n\n(The file {name:?} could not be put in its place: {error}.)"));
                }
            }
        }
        (placed, missing)
    }
}

/// Whether the machine's own disk is the cause, so that it may work later.
fn is_disk(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
    )
}

impl ClosedPlaces {
    /// Refuses an open file that lies in one of them, wherever the path led that it was opened by. Blocks.
    fn admit(&self, file: &fs::File) -> io::Result<()> {
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if self.own.canonicalize().is_ok_and(|own| real.starts_with(own)) {
            return Ok(());
        }
        let home = self.home.root().canonicalize()?;
        let mut closed = secrets::private(&home);
        closed.extend(secrets::hidden(&home, &self.opened));
        // Files of the kernel tell of the daemon itself.
        closed.extend(["/proc", "/sys"].map(PathBuf::from));
        match closed.iter().any(|closed| real.starts_with(closed)) {
            true => Err(io::Error::new(io::ErrorKind::PermissionDenied, "agents may not read it")),
            false => Ok(()),
        }
    }
}

fn copy(folder: &Path, file: &LocalFile, now: i64, closed: &ClosedPlaces) -> io::Result<Attachment> {
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.path));
    let mut from = open_plain(Path::new(&file.path), OFlags::empty()).map_err(at)?;
    closed.admit(&from).map_err(at)?;
    let staged = stage(folder, &file.name, &mut from, MAX_FILE_BYTES).map_err(at)?;
    let digest = measure(&staged)?;
    Ok(Attachment {
        id: ArtifactId::new(now),
        name: file.name.clone(),
        size: digest.size,
        sha256: digest.sha256,
        kind: Some(digest.sniffed.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_agents_may_not_read_is_not_handed_to_them_either() {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, space, to) = (Home::at(folder.path().join("home")), folder.path().join("space"), folder.path());
        home.open().expect("a home");
        fs::create_dir_all(&space).expect("a space");
        fs::create_dir_all(home.adapter_state("slack")).expect("a folder");
        let file = |path: PathBuf| {
            fs::write(&path, "text").expect("written");
            path
        };
        let plain = file(space.join("plain.txt"));
        let arrived = file(home.adapter_state("slack").join("0"));
        let credential = file(home.credential());
        let link = space.join("notes.txt");
        symlink(&credential, &link).expect("a link");
        let own = home.adapter_state("slack");
        let closed = ClosedPlaces { home, opened: Vec::new(), own };
        let taken = |path: &Path| {
            let file = LocalFile { name: "a.txt".to_owned(), path: path.display().to_string() };
            copy(&to.join("staged"), &file, 1, &closed).is_ok()
        };
        assert!(taken(&plain) && taken(&arrived));
        for refused in [credential, link, PathBuf::from("/proc/self/environ")] {
            assert!(!taken(&refused), "{}", refused.display());
        }
    }
}
