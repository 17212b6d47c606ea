//! Files, abstract sockets and signals, enforced by Landlock: behind the namespaces, or as the only barrier.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::{
    fd::OwnedFd,
    fs::{CWD, FileType, Mode, OFlags, ResolveFlags},
};

use super::{Network, ResolvedRules, View, grants};

/// The newest set of access rights that was reviewed; an older kernel enforces those that it knows.
const NEWEST_ABI: ABI = ABI::V9;

/// Devices that programs normally write to. The others stay readable, as their modes allow.
const WRITABLE_DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];

/// The user's terminals: closed without a view, so that commands cannot create terminals either.
const TERMINAL_FOLDER: &str = "/dev/pts";

/// Folders that belong to the command in a view, and to the user without one.
const COMMAND_FOLDERS: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/dev/pts"];

/// Whether this kernel has Landlock.
pub fn is_there() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Whether it restricts abstract sockets and signals (Linux 6.12).
pub fn has_scopes() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create).is_ok()
}

/// Whether it restricts sockets that are files.
pub fn has_sockets() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.handle_access(AccessFs::ResolveUnix).and_then(Ruleset::create).is_ok()
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::from_read(NEWEST_ABI)
}

/// Includes connecting to sockets there, where the kernel distinguishes that.
fn write() -> BitFlags<AccessFs> {
    read() | AccessFs::ResolveUnix | AccessFs::from_write(NEWEST_ABI) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// Confines the calling thread to `places` within the machine's own file tree.
pub fn confine(places: &ResolvedRules, network: Network) -> anyhow::Result<()> {
    let home = &places.home;
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST_ABI))?;
    if network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST_ABI))?;
    }
    let mut ruleset = ruleset.scope(Scope::from_all(NEWEST_ABI))?.create()?;
    let mut closed: Vec<PathBuf> = places.closed().cloned().collect();
    closed.push(TERMINAL_FOLDER.into());
    for path in grants::around(Path::new("/"), &closed) {
        ruleset = grant(ruleset, &path, read())?;
    }
    // Programs that share memory between their own processes do so there.
    ruleset = grant(ruleset, Path::new("/dev/shm"), write())?;
    for path in &places.read {
        let holes: Vec<PathBuf> = places.closed().filter(|hole| hole.starts_with(path)).cloned().collect();
        for path in grants::around(path, &holes) {
            ruleset = grant(ruleset, &path, read())?;
        }
    }
    for path in &places.write {
        // Parts of the home are granted by name only, never because a space contains the whole home.
        let mut closed = closed.clone();
        if !path.starts_with(home) {
            closed.push(home.clone());
        }
        // Protected files directly in the granted folder are put back after the command instead: otherwise nothing
        // could be created in that folder.
        closed.extend(places.protect.iter().filter(|protect| protect.parent() != Some(path)).cloned());
        closed.retain(|hole| hole != path);
        if closed.iter().any(|hole| hole.starts_with(path)) {
            // Programs need to list the folder that they work in; a listing shows names, never contents.
            ruleset = grant(ruleset, path, AccessFs::ReadDir.into())?;
        }
        for path in grants::around(path, &closed) {
            ruleset = grant(ruleset, &path, write())?;
        }
        for protect in places.protect.iter().filter(|protect| protect.starts_with(path)) {
            ruleset = grant(ruleset, protect, read())?;
        }
    }
    for device in WRITABLE_DEVICES {
        ruleset = grant(ruleset, Path::new(device), write())?;
    }
    for socket in &places.sockets {
        ruleset = grant(ruleset, socket, AccessFs::ResolveUnix.into())?;
    }
    enforce(ruleset)
}

/// Confines the calling thread within a file tree that was made for the command: what is closed is missing from it, so
/// everything in it may be read. Whatever is reached otherwise than through this tree stays closed.
pub fn confine_in_view(places: &ResolvedRules, view: &View) -> anyhow::Result<()> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST_ABI))?
        .scope(Scope::from_all(NEWEST_ABI))?
        .create()?;
    for path in grants::around(Path::new("/"), &view.exposed) {
        ruleset = grant(ruleset, &path, read())?;
    }
    let own = COMMAND_FOLDERS.iter().chain(&WRITABLE_DEVICES).map(Path::new);
    for path in places.write.iter().map(PathBuf::as_path).chain(own) {
        if view.exposed.iter().any(|hole| hole.starts_with(path)) {
            ruleset = grant(ruleset, path, AccessFs::ReadDir.into())?;
        }
        for path in grants::around(path, &view.exposed) {
            ruleset = grant(ruleset, &path, write())?;
        }
    }
    for socket in &places.sockets {
        ruleset = grant(ruleset, socket, write())?;
    }
    enforce(ruleset)
}

fn enforce(ruleset: RulesetCreated) -> anyhow::Result<()> {
    ensure!(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced, "the kernel has no Landlock");
    Ok(())
}

/// Grants a real file or folder. A link grants nothing, nor does one on the way, because access is judged by where it
/// leads.
fn grant(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> anyhow::Result<RulesetCreated> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(place) = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) else {
        return Ok(ruleset);
    };
    let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
        FileType::Symlink => return Ok(ruleset),
        FileType::Directory => access,
        _ => access & AccessFs::from_file(NEWEST_ABI),
    };
    Ok(ruleset.add_rule(PathBeneath::<OwnedFd>::new(place, access))?)
}
