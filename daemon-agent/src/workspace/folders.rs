//! Operations on whole folders: deleting to the trash and renaming. Nothing in them is lost, so nothing is compared.

use std::collections::BTreeMap;

use protocol::path;
use rustix::{
    fs::{AtFlags, FileType, RenameFlags},
    io::Errno,
};

use super::{
    Author, TRASH_FOLDER, Workspace, WorkspaceError, WriteOutcome,
    resolve::{ResolvedPath, alone, from_errno},
    watch::find,
    write::{applied, conflict, own, settle},
};

impl Workspace {
    /// Moves the folder at `path` to the trash, with everything in it.
    pub fn delete_folder(&self, path: &str, by: Author) -> Result<WriteOutcome, WorkspaceError> {
        own(path)?;
        let Some(place) = self.placed(path)? else { return Ok(applied(None)) };
        if !is_folder(&place)? {
            return Ok(applied(None));
        }
        let (trash, kept) = self.trash(place.name)?;
        let gone = self.leave(path, by);
        rustix::fs::renameat_with(&place.folder, place.name, &trash, kept.as_str(), RenameFlags::NOREPLACE)
            .map_err(from_errno)?;
        gone.iter().for_each(|gone| self.shared.attribution.made(gone, None));
        settle(&trash)?;
        settle(&place.folder)?;
        Ok(applied(None))
    }

    /// Renames the folder at `path` to `to`, which must not exist.
    pub fn rename_folder(&self, path: &str, to: &str, by: Author) -> Result<WriteOutcome, WorkspaceError> {
        path::file(path)?;
        own(to)?;
        let inside = to.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
        if inside || path::collision_key(path) == TRASH_FOLDER {
            return Err(WorkspaceError::Name(format!("{path:?} cannot become {to:?}")));
        }
        let source = match self.placed(path)? {
            Some(place) if is_folder(&place)? => place,
            // Requested again, it is done already.
            _ => {
                let there = self.placed(to)?.map(|place| is_folder(&place)).transpose()?;
                return Ok(if there == Some(true) { applied(None) } else { conflict(None) });
            }
        };
        let target = self.make_place(to)?;
        let same_folder = path.rsplit_once('/').map(|(above, _)| above) == to.rsplit_once('/').map(|(above, _)| above);
        alone(&target.folder, target.name, same_folder.then_some(source.name))?;
        let gone = self.leave(path, by);
        rustix::fs::renameat_with(&source.folder, source.name, &target.folder, target.name, RenameFlags::NOREPLACE)
            .map_err(|error| match error {
                Errno::EXIST => WorkspaceError::Name(format!("{to:?} exists already")),
                other => from_errno(other),
            })?;
        for gone in gone {
            self.shared.attribution.made(&gone, None);
            self.stands(&format!("{to}{}", &gone[path.len()..]));
        }
        settle(&target.folder)?;
        settle(&source.folder)?;
        Ok(applied(None))
    }

    /// Records who removes the files in a folder.
    fn leave(&self, path: &str, by: Author) -> Vec<String> {
        let mut found = BTreeMap::new();
        // If they cannot be listed, their removal is attributed to nobody.
        if find(self, path, &mut found).is_err() {
            return Vec::new();
        }
        found.keys().for_each(|gone| self.shared.attribution.note(gone, None, by));
        found.into_keys().collect()
    }
}

/// Whether a folder exists there; `false` if nothing does.
fn is_folder(place: &ResolvedPath<'_>) -> Result<bool, WorkspaceError> {
    match rustix::fs::statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(true),
        Ok(_) => Err(WorkspaceError::NoFolder),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(from_errno(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{home::Home, workspace::LocalWriteState};

    #[test]
    fn a_folder_goes_to_the_trash_and_to_another_name_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let at = |path: &str| home.workspace().join(path);
        let workspace = Workspace::open(&home);
        fs::create_dir_all(at("notes/deep")).expect("made");
        fs::write(at("notes/deep/a.md"), "a").expect("written");
        fs::create_dir(at("Other")).expect("made");
        for twice in [1, 2] {
            let written = workspace.rename_folder("notes", "kept/notes", Author::Board).expect("renamed");
            assert_eq!(written.state, LocalWriteState::Applied, "{twice}");
        }
        assert_eq!(fs::read_to_string(at("kept/notes/deep/a.md")).expect("there"), "a");
        for to in ["Other", "other", "kept/notes/in", "../out", ".trash/x"] {
            assert!(workspace.rename_folder("kept/notes", to, Author::Board).is_err(), "{to}");
        }
        assert_eq!(
            workspace.rename_folder("nothing", "something", Author::Board).expect("an answer").state,
            LocalWriteState::Conflict
        );
        fs::write(at("file.md"), "x").expect("written");
        std::os::unix::fs::symlink(at("Other"), at("link")).expect("linked");
        for path in ["file.md", "link", ".trash", "", ".."] {
            assert!(workspace.delete_folder(path, Author::Board).is_err(), "{path}");
        }
        for twice in [1, 2] {
            assert_eq!(
                workspace.delete_folder("kept", Author::Board).expect("deleted").state,
                LocalWriteState::Applied,
                "{twice}"
            );
        }
        let trash: Vec<_> = fs::read_dir(at(".trash")).expect("a trash").flatten().collect();
        assert_eq!(trash.len(), 1);
        assert_eq!(fs::read_to_string(trash[0].path().join("notes/deep/a.md")).expect("kept"), "a");
        let name = format!(".trash/{}", trash[0].file_name().display());
        assert_eq!(
            workspace.rename_folder(&name, "back", Author::Board).expect("back").state,
            LocalWriteState::Applied
        );
        assert!(at("back/notes/deep/a.md").exists());
    }
}
