//! Files, abstract sockets and signals, by Landlock: the second wall behind the namespaces, or the only one.

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

use super::{Network, Places, View, grants};

/// The newest set of rights that was looked at; an older kernel enforces what it knows of it.
const KNOWN: ABI = ABI::V9;

/// Devices that programs write to as a matter of course. The others stay readable, as their modes allow.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];

/// Where the user's terminals lie: closed without a view, so that commands can make none of their own either.
const TERMINALS: &str = "/dev/pts";

/// What is the command's own in a view, and the user's without one.
const OWN: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/dev/pts"];

/// Whether this kernel has it.
pub fn is_there() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// Whether it keeps abstract sockets and signals (Linux 6.12).
pub fn has_scopes() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.scope(Scope::from_all(ABI::V6)).and_then(Ruleset::create).is_ok()
}

/// Whether it keeps sockets that are files.
pub fn has_sockets() -> bool {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required.handle_access(AccessFs::ResolveUnix).and_then(Ruleset::create).is_ok()
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::from_read(KNOWN)
}

/// Also connecting to sockets there, where the kernel distinguishes that.
fn write() -> BitFlags<AccessFs> {
    read() | AccessFs::ResolveUnix | AccessFs::from_write(KNOWN) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// Holds the calling thread to `places` where it sees the machine's own file tree.
pub fn confine(places: &Places, network: Network) -> anyhow::Result<()> {
    let home = &places.home;
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?;
    if network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(KNOWN))?;
    }
    let mut ruleset = ruleset.scope(Scope::from_all(KNOWN))?.create()?;
    let mut closed: Vec<PathBuf> = places.closed().cloned().collect();
    closed.push(TERMINALS.into());
    for path in grants::around(Path::new("/"), &closed) {
        ruleset = grant(ruleset, &path, read())?;
    }
    // Programs that share memory between their own processes do it there.
    ruleset = grant(ruleset, Path::new("/dev/shm"), write())?;
    for path in &places.read {
        let holes: Vec<PathBuf> = places.closed().filter(|hole| hole.starts_with(path)).cloned().collect();
        for path in grants::around(path, &holes) {
            ruleset = grant(ruleset, &path, read())?;
        }
    }
    for path in &places.write {
        // What lies in the home is granted by name only, never because a space holds the whole home.
        let mut closed = closed.clone();
        if !path.starts_with(home) {
            closed.push(home.clone());
        }
        // Of what has to stay as it is in the top folder itself only the put-back takes care: else nothing could be
        // made in that folder at all.
        closed.extend(places.protect.iter().filter(|protect| protect.parent() != Some(path)).cloned());
        closed.retain(|hole| hole != path);
        if closed.iter().any(|hole| hole.starts_with(path)) {
            // Nobody can work in a folder that cannot be listed; it shows names, never what they hold.
            ruleset = grant(ruleset, path, AccessFs::ReadDir.into())?;
        }
        for path in grants::around(path, &closed) {
            ruleset = grant(ruleset, &path, write())?;
        }
        for protect in places.protect.iter().filter(|protect| protect.starts_with(path)) {
            ruleset = grant(ruleset, protect, read())?;
        }
    }
    for device in DEVICES {
        ruleset = grant(ruleset, Path::new(device), write())?;
    }
    for socket in &places.sockets {
        ruleset = grant(ruleset, socket, AccessFs::ResolveUnix.into())?;
    }
    enforce(ruleset)
}

/// The same in a file tree that was made for the command: what is closed is not there, so that everything that is there
/// is read. Whatever is reached otherwise than through this tree stays closed.
pub fn confine_in_view(places: &Places, view: &View) -> anyhow::Result<()> {
    let mut ruleset =
        Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.scope(Scope::from_all(KNOWN))?.create()?;
    for path in grants::around(Path::new("/"), &view.exposed) {
        ruleset = grant(ruleset, &path, read())?;
    }
    let own = OWN.iter().chain(&DEVICES).map(Path::new);
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

/// Grants a real file or folder. A link grants nothing, nor does one on the way, because access is judged where it leads.
fn grant(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> anyhow::Result<RulesetCreated> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(place) = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) else {
        return Ok(ruleset);
    };
    let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
        FileType::Symlink => return Ok(ruleset),
        FileType::Directory => access,
        _ => access & AccessFs::from_file(KNOWN),
    };
    Ok(ruleset.add_rule(PathBeneath::<OwnedFd>::new(place, access))?)
}
