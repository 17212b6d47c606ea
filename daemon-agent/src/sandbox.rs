//! What a command may read and write, enforced by the kernel (Landlock).
//!
//! Owns the rule: write where the agent works, read everything but the daemon's own. `hold` applies it to what it
//! starts; never applied to the daemon itself. Refuses to know agents and tasks.

mod grants;

use std::path::PathBuf;

/// Whether commands are confined on this machine, as told to the Board in `hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    Landlock,
    /// The kernel has no Landlock: commands may do what their user may do.
    Unconfined,
}

impl Confinement {
    /// The word among the capabilities of `hello`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Unconfined => "unconfined",
        }
    }
}

/// What a command may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The viber's home: its private parts are not readable.
    pub home: PathBuf,
    /// Files and folders that may be written to, with all below them; what is not there is skipped. Of one that holds
    /// the home, only the parts beside the home.
    pub write: Vec<PathBuf>,
}

/// What in a home is the daemon's alone: credential and journal, configuration, keys; the last two are where the
/// predecessor kept its keys.
pub const PRIVATE: [&str; 6] = ["state", "config.yaml", ".env", "secrets", "openai.yaml", "config.json"];

#[cfg(target_os = "linux")]
pub use linux::{confine_this_thread, keep_memory_private, status};

#[cfg(target_os = "linux")]
mod linux {
    use std::{os::fd::OwnedFd, path::Path};

    use anyhow::Context;
    use landlock::{
        ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
        RulesetCreatedAttr, RulesetStatus, Scope,
    };
    use rustix::{
        fs::{FileType, Mode, OFlags},
        process::{DumpableBehavior, set_dumpable_behavior},
        thread::{CapabilitySet, remove_capability_from_bounding_set},
    };

    use super::{Confinement, PRIVATE, Rules, grants};

    /// The newest set of rights that was looked at; an older kernel enforces what it knows of it.
    const KNOWN: ABI = ABI::V9;

    /// Devices that programs write to as a matter of course. The others stay readable, as their modes allow.
    const DEVICES: [&str; 9] = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/pts",
        "/dev/shm",
    ];

    /// With these root looks past Landlock: into the memory and environment of other processes (the daemon's keys),
    /// at files by handle, at the kernel itself. Nobody else has them.
    const SIGHT: [CapabilitySet; 9] = [
        CapabilitySet::SYS_ADMIN,
        CapabilitySet::SYS_PTRACE,
        CapabilitySet::PERFMON,
        CapabilitySet::CHECKPOINT_RESTORE,
        CapabilitySet::DAC_READ_SEARCH,
        CapabilitySet::SYS_RAWIO,
        CapabilitySet::SYS_MODULE,
        CapabilitySet::BPF,
        CapabilitySet::MAC_ADMIN,
    ];

    /// Closes this process's memory and environment, which hold keys, to other processes of its user. For the daemon,
    /// before it reads any key.
    pub fn keep_memory_private() -> std::io::Result<()> {
        Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
    }

    /// What this kernel offers.
    pub fn status() -> Confinement {
        let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        match required.handle_access(AccessFs::from_all(ABI::V1)) {
            Ok(_) => Confinement::Landlock,
            Err(_) => Confinement::Unconfined,
        }
    }

    /// Holds the calling thread, and every process started from it, to `rules` for good.
    pub fn confine_this_thread(rules: &Rules) -> anyhow::Result<Confinement> {
        let read = AccessFs::from_read(KNOWN) | AccessFs::ResolveUnix;
        let write = read | AccessFs::from_write(KNOWN) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        let home = rules.home.canonicalize().with_context(|| format!("no home at {}", rules.home.display()))?;
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))?
            // Without this a command could kill its supervisor and outlive the task.
            .scope(Scope::from_all(KNOWN))?
            .create()?;
        let private: Vec<_> = PRIVATE.iter().map(|name| home.join(name)).collect();
        for path in grants::around(Path::new("/"), &private) {
            ruleset = grant(ruleset, &path, read)?;
        }
        for path in rules.write.iter().filter_map(|path| path.canonicalize().ok()) {
            // What lies in the home is granted by name only, never because a space holds the whole home.
            let closed = if path.starts_with(&home) { &private[..] } else { std::slice::from_ref(&home) };
            if home.starts_with(&path) {
                // Nobody can work in a folder that cannot be listed; it shows names in the home, never what they hold.
                ruleset = grant(ruleset, &path, AccessFs::ReadDir.into())?;
            }
            for path in grants::around(&path, closed) {
                ruleset = grant(ruleset, &path, write)?;
            }
        }
        for device in DEVICES {
            ruleset = grant(ruleset, Path::new(device), write)?;
        }
        for capability in SIGHT {
            // Refused to all but root, who alone can gain it when a program starts.
            let _ = remove_capability_from_bounding_set(capability);
        }
        match ruleset.restrict_self()?.ruleset {
            RulesetStatus::NotEnforced => Ok(Confinement::Unconfined),
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(Confinement::Landlock),
        }
    }

    /// Grants a real file or folder; a link grants nothing, whatever it points to, because access is judged there.
    fn grant(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> anyhow::Result<RulesetCreated> {
        let Ok(place) = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) else {
            return Ok(ruleset);
        };
        let access = match FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) {
            FileType::Symlink => return Ok(ruleset),
            FileType::Directory => access,
            _ => access & AccessFs::from_file(KNOWN),
        };
        Ok(ruleset.add_rule(PathBeneath::<OwnedFd>::new(place, access))?)
    }
}

/// Other systems have nothing like it.
#[cfg(not(target_os = "linux"))]
pub fn status() -> Confinement {
    Confinement::Unconfined
}

/// Other systems have nothing like it.
#[cfg(not(target_os = "linux"))]
pub fn confine_this_thread(_: &Rules) -> anyhow::Result<Confinement> {
    Ok(Confinement::Unconfined)
}

/// Other systems have nothing like it.
#[cfg(not(target_os = "linux"))]
pub fn keep_memory_private() -> std::io::Result<()> {
    Ok(())
}
