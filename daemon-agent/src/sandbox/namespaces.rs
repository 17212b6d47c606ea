//! Namespaces: the user, IPC and network namespaces of a supervisor, the process namespace of its command, and the
//! capabilities that exist there and are dropped before the command starts.

use std::{fs, io};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType},
    process::{getegid, geteuid},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities,
    },
};

use super::Network;

/// What building the file tree takes, within the namespaces alone.
const SETUP_CAPABILITIES: [CapabilitySet; 3] =
    [CapabilitySet::SYS_ADMIN, CapabilitySet::NET_ADMIN, CapabilitySet::SETPCAP];

/// With these, root reaches past Landlock: into the memory and environment of other processes (the daemon's keys), to
/// files by handle, and to the kernel itself. Nobody else has them.
const CAPABILITIES_PAST_LANDLOCK: [CapabilitySet; 18] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::SYS_PTRACE,
    CapabilitySet::PERFMON,
    CapabilitySet::CHECKPOINT_RESTORE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::BPF,
    CapabilitySet::MAC_ADMIN,
    CapabilitySet::MAC_OVERRIDE,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_TIME,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::SYSLOG,
    CapabilitySet::MKNOD,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::NET_RAW,
    CapabilitySet::SYS_TTY_CONFIG,
];

/// Moves this process, which must have one thread, into a user namespace that keeps its identity, into an IPC
/// namespace, and without a network into a network namespace.
pub fn enter(network: Network) -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let mut spaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWIPC;
    if network == Network::None {
        spaces |= CloneFlags::CLONE_NEWNET;
    }
    unshare(spaces)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    if network == Network::None {
        start_loopback()?;
    }
    keep_over_exec()
}

/// The next process that this thread starts becomes the first of a new process namespace. After that it must not start
/// a thread.
pub fn enter_processes() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWPID)?)
}

/// Moves this process into a mount namespace of its own.
pub fn enter_mounts() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNS)?)
}

/// Keeps capabilities across exec: a started program loses those of anybody but root, unless they are ambient.
fn keep_over_exec() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    for needed in SETUP_CAPABILITIES {
        sets.inheritable |= needed;
    }
    set_capabilities(None, sets)?;
    for needed in SETUP_CAPABILITIES {
        configure_capability_in_ambient_set(needed, true)?;
    }
    Ok(())
}

/// Drops every capability of the calling thread and of what it starts (`all`), or those that reach past Landlock. Fails
/// for nobody: whoever may not drop capabilities has none.
pub fn drop_capabilities(all: bool) {
    let _ = clear_ambient_capability_set();
    if !all {
        for capability in CAPABILITIES_PAST_LANDLOCK {
            let _ = remove_capability_from_bounding_set(capability);
        }
        return;
    }
    for bit in 0..64 {
        let _ = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit));
    }
    let none = CapabilitySet::empty();
    let _ = set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none });
}

/// Brings up the only device of a new network namespace: one request to the kernel, rtnetlink(7).
fn start_loopback() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    const LOOPBACK_INDEX: i32 = 1;
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // rtnetlink is protocol 0.
        None,
    )?;
    let mut message = Vec::with_capacity(32);
    // Length, type, flags, sequence, port; family and padding, kind of device, index, flags, mask of changed flags.
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([0; 4]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    rustix::net::send(&socket, &message, SendFlags::empty())?;
    Ok(())
}
