//! Landlock can only allow, and a folder with all below it: what stays closed is left out by naming its siblings.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The fewest paths below `root` that together hold everything but `closed` and the folders on the way to it. What
/// is made later directly in one of those folders is not among them.
pub fn around(root: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    if closed.iter().any(|hole| root.starts_with(hole)) {
        return Vec::new();
    }
    if !closed.iter().any(|hole| hole.starts_with(root)) {
        return vec![root.to_owned()];
    }
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    entries.flatten().flat_map(|entry| around(&entry.path(), closed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_of_the_way_to_what_is_closed_are_granted_and_nothing_else() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        for folder in ["home/state", "home/secrets", "home/workspace/notes", "homework", "other/deep"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        fs::write(at("home/config.yaml"), "").expect("a file");
        let closed = [at("home/state"), at("home/secrets"), at("home/config.yaml"), at("home/.env")];
        let mut granted = around(root.path(), &closed);
        granted.sort();
        assert_eq!(granted, [at("home/workspace"), at("homework"), at("other")]);
        assert!(around(&at("home/state/journal"), &closed).is_empty());
        assert_eq!(around(&at("other/deep"), &closed), [at("other/deep")]);
    }
}
