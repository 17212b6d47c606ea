//! Applies the confinement, one part after another, to the calling process, which then becomes git.

use std::{
    convert::Infallible,
    ffi::CString,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::fcntl::AtFlags;
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
    process::{Resource, Rlimit},
};

use super::{ConfinedGitError, ConfinedGitOptions, MAX_CPU_SECONDS, MAX_MEMORY_BYTES, loader, syscalls};

/// The oldest Landlock version that suffices: it controls opening files and links.
const REQUIRED_ABI: ABI = ABI::V1;
/// The newest set of access rights that was reviewed; an older kernel enforces those that it knows.
const NEWEST_ABI: ABI = ABI::V9;
/// Where systems keep their libraries, which contain no secrets.
const LIBRARY_FOLDERS: [&str; 9] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
];
/// Most libraries beside a git that is not the system's.
const MAX_LIBRARIES: usize = 4_096;
/// Most files open at a time: a repository with many packs needs some.
const MAX_OPEN_FILES: u64 = 1_024;

/// Confines this process and executes git in it.
pub fn become_program(options: &ConfinedGitOptions) -> Result<Infallible, ConfinedGitError> {
    use ConfinedGitError::{Moved, NoLandlock, NoSeccomp, NotStarted};
    // What is opened here is what is checked and started, whatever its name leads to by then.
    let folder = place(&options.folder).map_err(|_| Moved)?;
    let program = place(&options.program).map_err(|_| NotStarted)?;
    let loader = loader::of(&options.program).map_err(|_| NotStarted)?;
    let args = c_strings(std::iter::once("git".into()).chain(options.args.iter().cloned())).ok_or(NotStarted)?;
    let variables = std::env::vars_os().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        name
    });
    let variables = c_strings(variables).ok_or(NotStarted)?;
    rustix::process::fchdir(&folder).map_err(|_| Moved)?;
    limit(Resource::Core, 0);
    limit(Resource::Fsize, 0);
    limit(Resource::Nofile, MAX_OPEN_FILES);
    limit(Resource::Cpu, MAX_CPU_SECONDS);
    confine(options, loader.as_deref()).map_err(|_| NoLandlock)?;
    // Last, because confining needs more memory and more system calls than git does.
    let filter = syscalls::filter(&program).map_err(|_| NoSeccomp)?;
    limit(Resource::As, MAX_MEMORY_BYTES);
    seccompiler::apply_filter(&filter).map_err(|_| NoSeccomp)?;
    nix::unistd::execveat(&program, c"", &args, &variables, AtFlags::AT_EMPTY_PATH).map_err(|_| NotStarted)
}

/// Opens the file or folder with this name; fails if the name leads through a link.
fn place(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // This call is older than Landlock, but some sandboxes around us do not allow it.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    }
}

fn c_strings(words: impl Iterator<Item = std::ffi::OsString>) -> Option<Vec<CString>> {
    words.map(|word| CString::new(word.into_vec()).ok()).collect()
}

fn limit(resource: Resource, most: u64) {
    let now = rustix::process::getrlimit(resource);
    let lower = |value: Option<u64>| Some(value.map_or(most, |value| value.min(most)));
    // Lowering a limit cannot be refused.
    let _ = rustix::process::setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) });
}

/// Allows reading the named places and the system's libraries, starting git and its loader, and nothing else.
fn confine(options: &ConfinedGitOptions, loader: Option<&Path>) -> anyhow::Result<()> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED_ABI))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST_ABI))?
        .handle_access(AccessNet::from_all(NEWEST_ABI))?
        .scope(Scope::from_all(NEWEST_ABI))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for path in &options.read {
        ruleset = grant(ruleset, path, read)?;
    }
    let libraries = LIBRARY_FOLDERS.iter().map(PathBuf::from).chain(beside(&options.program));
    for path in libraries.filter_map(|path| path.canonicalize().ok()) {
        ruleset = grant(ruleset, &path, AccessFs::ReadFile.into())?;
    }
    for path in [Some(options.program.as_path()), loader].into_iter().flatten() {
        ruleset = grant(ruleset, path, AccessFs::ReadFile | AccessFs::Execute)?;
    }
    ruleset = grant(ruleset, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)?;
    anyhow::ensure!(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced, "not enforced");
    Ok(())
}

/// Libraries of a git outside the system folders (`…/bin/git`, `…/lib`), one by one: that folder may be a home.
fn beside(program: &Path) -> Vec<PathBuf> {
    let folder = program.parent().and_then(Path::parent).map(|prefix| prefix.join("lib"));
    let Some(folder) = folder.filter(|folder| !LIBRARY_FOLDERS.iter().any(|known| folder.starts_with(known))) else {
        return Vec::new();
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_library = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so"));
    names.filter(|path| is_library(path) && path.is_file()).take(MAX_LIBRARIES).collect()
}

/// Grants a real file or folder; what is missing or a link grants nothing.
fn grant(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> anyhow::Result<RulesetCreated> {
    let Ok(place) = place(path) else { return Ok(ruleset) };
    let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
        FileType::Symlink => return Ok(ruleset),
        FileType::Directory => access,
        _ => access & AccessFs::from_file(NEWEST_ABI),
    };
    Ok(ruleset.add_rule(PathBeneath::<OwnedFd>::new(place, access))?)
}
