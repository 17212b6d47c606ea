//! Files that come with what people say on the machine: copied when it is said, put beside the workspace when an agent is
//! told of them.

use std::{
    io,
    path::{Path, PathBuf},
};

use protocol::{ArtifactId, Attachment, LocalFile, UserMessage};
use rustix::fs::OFlags;

use super::{
    say::{SayError, refused},
    store::{SaidMessage, stage},
};
use crate::{artifacts::measure, home::open_plain, mesh::Mesh};

/// Largest file that comes with a message, bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

impl Mesh {
    /// Copies the files that a message names.
    pub(super) async fn stage_files(&self, origin: &str, message: &UserMessage) -> Result<Vec<Attachment>, SayError> {
        let folder = self.shared.local.store.staged(origin, &message.id);
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
            let (folder, file, now) = (folder.clone(), file.clone(), self.clock().now().millis());
            let copied = tokio::task::spawn_blocking(move || copy(&folder, &file, now));
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

fn copy(folder: &Path, file: &LocalFile, now: i64) -> io::Result<Attachment> {
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.path));
    let mut from = open_plain(Path::new(&file.path), OFlags::empty()).map_err(at)?;
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
