//! Where skills lie: folders with `SKILL.md`, and single files `*.skill.md`, beneath a place of the home or of a space.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::FileType;

use super::bundle;

/// How deep below its place a skill may lie.
const MAX_LEVELS: usize = 6;
/// Most skills of a place.
const MAX_SKILLS: usize = 1_000;
/// Most folders of a place that are looked through, and most entries of all of them.
const MAX_FOLDERS: usize = 5_000;
const MAX_ENTRIES: usize = 50_000;
/// Names of a skill's main file in its folder; the first one that is there counts.
const MAIN_FILES: [&str; 2] = ["SKILL.md", "skill.md"];
/// End of the name of a skill that is a single file.
const SINGLE_FILE_END: &str = ".skill.md";

/// A skill that was found, not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSkill {
    /// Its folder, or the one that the single file lies in.
    pub folder: PathBuf,
    /// The name of its main file.
    pub main: String,
    pub is_single: bool,
}

/// Everything that lies in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundSkills {
    /// By their paths.
    pub skills: Vec<FoundSkill>,
    /// Links at the top of the place, which are not followed.
    pub links: Vec<PathBuf>,
    /// Folders on the way, for whoever watches them.
    pub folders: Vec<PathBuf>,
    /// Entries that were looked at.
    entries: usize,
}

/// Looks through `way` beneath `base`; nothing if there is no such folder, or a link leads there.
pub fn look(base: &Path, way: &str) -> FoundSkills {
    let mut found = FoundSkills::default();
    if let Ok(folder) = bundle::open_place(base, way) {
        look_through(&folder, &base.join(way), 0, &mut found);
    }
    found
}

fn look_through(folder: &OwnedFd, place: &Path, level: usize, found: &mut FoundSkills) {
    // A folder that cannot be read, or holds too much, hides no other.
    let Ok(entries) = bundle::entries(folder, false) else { return };
    found.folders.push(place.to_owned());
    found.entries += entries.len();
    let is_file = |name: &str| entries.iter().any(|(known, kind)| known == name && *kind == FileType::RegularFile);
    if let Some(main) = MAIN_FILES.into_iter().find(|name| level > 0 && is_file(name)) {
        let skill = FoundSkill { folder: place.to_owned(), main: main.to_owned(), is_single: false };
        return found.take(skill);
    }
    for (name, kind) in &entries {
        match kind {
            FileType::RegularFile if name.len() > SINGLE_FILE_END.len() && name.ends_with(SINGLE_FILE_END) => {
                found.take(FoundSkill { folder: place.to_owned(), main: name.clone(), is_single: true });
            }
            FileType::Symlink if level == 0 => found.links.push(place.join(name)),
            FileType::Directory
                if level < MAX_LEVELS
                    && !name.starts_with('.')
                    && name != "node_modules"
                    && found.folders.len() < MAX_FOLDERS
                    && found.entries < MAX_ENTRIES =>
            {
                if let Ok(below) = bundle::open_folder(folder, Path::new(name)) {
                    look_through(&below, &place.join(name), level + 1, found);
                }
            }
            _ => {}
        }
    }
}

impl FoundSkills {
    fn take(&mut self, skill: FoundSkill) {
        if self.skills.len() < MAX_SKILLS {
            self.skills.push(skill);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn skills_are_found_down_to_six_levels_and_behind_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |path: &str| folder.path().join(path);
        for path in [
            "skills/SKILL.md",
            "skills/a/SKILL.md",
            "skills/a/inner/SKILL.md",
            "skills/b/skill.md",
            "skills/git/commit.skill.md",
            "skills/.skill.md",
            "skills/.hidden/SKILL.md",
            "skills/node_modules/x/SKILL.md",
            "skills/1/2/3/4/5/6/SKILL.md",
            "skills/1/2/3/4/5/x/7/SKILL.md",
            "elsewhere/x/SKILL.md",
        ] {
            fs::create_dir_all(at(path).parent().expect("a parent")).expect("folders");
            fs::write(at(path), "x").expect("a file");
        }
        // Nor does a name hide the others that no text can hold.
        let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe");
        fs::write(at("skills").join::<&std::ffi::OsStr>(odd), "x").expect("a file");
        symlink(at("elsewhere"), at("skills/linked")).expect("a link");
        symlink(at("elsewhere"), at("behind")).expect("a link");
        let found = look(folder.path(), "skills");
        let shown: Vec<String> = found
            .skills
            .iter()
            .map(|skill| {
                skill.folder.strip_prefix(folder.path()).expect("below").join(&skill.main).display().to_string()
            })
            .collect();
        let expected =
            ["skills/1/2/3/4/5/6/SKILL.md", "skills/a/SKILL.md", "skills/b/skill.md", "skills/git/commit.skill.md"];
        assert_eq!(shown, expected);
        assert_eq!(found.links, [at("skills/linked")]);
        assert_eq!(look(folder.path(), "behind"), FoundSkills::default());
        assert_eq!(look(folder.path(), "none"), FoundSkills::default());
    }
}
