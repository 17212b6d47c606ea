//! Whether a machine has what a skill needs, and what would mend it. Nothing is installed, and nothing is run.

use std::{os::unix::fs::PermissionsExt, path::PathBuf};

use protocol::{
    SkillCheck,
    skill::{definition::SkillDefinition, requirements::Requirements},
};

/// The programs that commands of this machine find.
#[derive(Clone, Debug, Default)]
pub struct Programs(Vec<PathBuf>);

impl Programs {
    /// Those on the `PATH` of this process, which commands inherit.
    pub fn of_process() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::on(std::env::split_paths(&path).filter(|folder| folder.is_absolute()))
    }

    /// Those in these folders.
    pub fn on(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(folders.into_iter().collect())
    }

    /// Whether there is a program of this name.
    pub fn has(&self, name: &str) -> bool {
        let is_name = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '\0']);
        let is_program = |folder: &PathBuf| {
            folder.join(name).metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        is_name && self.0.iter().any(is_program)
    }
}

/// What is known of the variables that a skill's scripts and commands would get.
pub struct KnownVariables<'k> {
    pub has: &'k dyn Fn(&str) -> bool,
    /// How a person sets one.
    pub fix: &'k dyn Fn(&str) -> String,
}

/// Everything that the skill needs, each with whether it is there.
pub fn checks(
    definition: &SkillDefinition,
    interpreters: &[String],
    programs: &Programs,
    variables: &KnownVariables<'_>,
) -> Vec<SkillCheck> {
    let needs: &Requirements = &definition.requirements;
    let check = |kind: &str, label: String, ok: bool, fix: Option<String>| SkillCheck {
        kind: kind.to_owned(),
        label,
        ok,
        fix: fix.filter(|_| !ok),
    };
    let mut checks = Vec::new();
    if !needs.os.is_empty() {
        let own = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
        let is_meant = needs.os.iter().any(|os| os == own || os == std::env::consts::OS);
        checks.push(check("os", needs.os.join(" or "), is_meant, None));
    }
    for bin in &needs.bins {
        checks.push(check("bin", bin.clone(), programs.has(bin), needs.installs.get(bin).cloned()));
    }
    if !needs.any_bins.is_empty() {
        let fix = needs.any_bins.iter().find_map(|bin| needs.installs.get(bin)).cloned();
        let ok = needs.any_bins.iter().any(|bin| programs.has(bin));
        checks.push(check("anyBin", needs.any_bins.join(" or "), ok, fix));
    }
    for name in &needs.env {
        checks.push(check("env", name.clone(), (variables.has)(name), Some((variables.fix)(name))));
    }
    for setting in &needs.config {
        checks.push(check("config", format!("the setting {setting} of OpenClaw"), false, None));
    }
    for service in &needs.oauth {
        checks.push(check("config", format!("a sign-in at {service}, which this version does not have"), false, None));
    }
    let shell = definition.script.as_ref().map(|script| script.shell.to_owned());
    let named = interpreters.iter().cloned().chain(shell).filter(|program| !needs.bins.contains(program));
    let named: std::collections::BTreeSet<String> = named.collect();
    for program in named {
        let ok = programs.has(&program);
        checks.push(check("interpreter", program.clone(), ok, needs.installs.get(&program).cloned()));
    }
    checks
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_is_a_file_that_can_be_executed() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, mode) in [("git", 0o755), ("notes", 0o644)] {
            let path = folder.path().join(name);
            fs::write(&path, "#!/bin/sh\n").expect("a program");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        }
        let programs = Programs::on([folder.path().to_owned()]);
        assert!(programs.has("git") && !programs.has("notes") && !programs.has(".") && !programs.has("../git"));
    }
}
