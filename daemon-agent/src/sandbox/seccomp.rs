//! The filter of system calls: what no build tool needs and what reaches around the file tree.
//!
//! A list of what is refused, not of what is allowed: an agent runs whatever a developer runs. Programs of another
//! architecture than the daemon's are ended by it, because their calls bear other numbers.

use std::collections::BTreeMap;

use anyhow::Context;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use super::{Layers, Network};

/// Refused with EPERM, whatever the arguments.
const REFUSED: &[i64] = &[
    // Keyrings belong to the user, not to a process.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Doors into the kernel that show new holes every year.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    #[cfg(not(target_arch = "aarch64"))]
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    // Other namespaces and mounts than those that were given.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    // Files by number instead of by path.
    libc::SYS_open_by_handle_at,
];

/// As if the kernel did not have it: programs then use what can be judged by its arguments.
const ABSENT: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Not in `libc` yet; the same number everywhere.
const OPEN_TREE_ATTR: i64 = 467;

/// What reaches other processes of the user where they are in sight.
const OF_OTHER_PROCESSES: &[i64] =
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd];

/// Memory and queues that all processes of the user share, where there is no IPC namespace.
const OF_SHARED_MEMORY: &[i64] = &[libc::SYS_shmget, libc::SYS_semget, libc::SYS_msgget, libc::SYS_mq_open];

/// Calls that set something for a process which their first argument names; 0 is the caller itself. A filter cannot
/// know the caller's own number, so that one is refused as well. Scheduling (`sched_setaffinity`, `sched_setscheduler`)
/// is not among them: libraries name their own threads by number there.
const BY_NUMBER: &[i64] = &[libc::SYS_migrate_pages, libc::SYS_move_pages];

/// Calls whose first argument says what the second one names: of processes, groups of them, or all of a user, each with
/// the number of the last.
const BY_KIND: [(i64, i32); 2] = [(libc::SYS_setpriority, libc::PRIO_USER as i32), (libc::SYS_ioprio_set, 3)];

/// Families of sockets that a command may open: local, IPv4, IPv6, and the kernel's tables of routes.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// New namespaces that `clone` could make.
const NEW: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// `TIOCSTI` and `TIOCLINUX`: they type into a terminal.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// Whether this kernel takes filters.
pub fn is_there() -> bool {
    std::fs::metadata("/proc/sys/kernel/seccomp/actions_avail").is_ok() && arch().is_some()
}

/// Holds the calling thread, and what it starts, to the filter for good.
pub fn confine_this_thread(layers: Layers, network: Network) -> anyhow::Result<()> {
    for program in programs(layers, network)? {
        apply_filter(&program).context("no filter of system calls")?;
    }
    Ok(())
}

fn programs(layers: Layers, network: Network) -> anyhow::Result<Vec<BpfProgram>> {
    let whole = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect::<BTreeMap<_, _>>();
    let mut refused = whole(REFUSED);
    if !layers.confine() {
        refused.extend(whole(OF_OTHER_PROCESSES));
    }
    if !layers.namespaces {
        refused.extend(whole(OF_SHARED_MEMORY));
        refused.extend(of_others()?);
    }
    let new = NEW.map(|flag| rule(&[when(0, SeccompCmpOp::MaskedEq(flag as u64), flag as u64)?]));
    refused.insert(libc::SYS_clone, new.into_iter().collect::<anyhow::Result<_>>()?);
    let typing = TYPING.map(|request| rule(&[when(1, SeccompCmpOp::Eq, request)?]));
    refused.insert(libc::SYS_ioctl, typing.into_iter().collect::<anyhow::Result<_>>()?);
    refused.insert(libc::SYS_socket, sockets(layers, network)?);
    let mut programs = vec![compile(refused, libc::EPERM)?, compile(whole(ABSENT), libc::ENOSYS)?];
    if cfg!(target_arch = "x86_64") {
        programs.push(without_x32());
    }
    Ok(programs)
}

/// What is set for other processes of the user, where they are in sight: a limit of processor time ends one as a signal
/// does.
fn of_others() -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let other = |argument: u8| when(argument, SeccompCmpOp::Ne, 0);
    let mut rules = BTreeMap::new();
    for call in BY_NUMBER {
        rules.insert(*call, vec![rule(&[other(0)?])?]);
    }
    for (call, user) in BY_KIND {
        rules.insert(call, vec![rule(&[other(1)?])?, rule(&[when(0, SeccompCmpOp::Eq, user as u64)?])?]);
    }
    // Reading the limits of another changes nothing.
    let new_limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![rule(&[other(0)?, new_limits])?]);
    Ok(rules)
}

fn sockets(layers: Layers, network: Network) -> anyhow::Result<Vec<SeccompRule>> {
    // With a network namespace there is nothing to reach; without one no such socket is made at all.
    let closed = network == Network::None && !layers.namespaces;
    let families = FAMILIES.into_iter().filter(|family| !closed || *family == libc::AF_UNIX);
    let other: anyhow::Result<Vec<_>> = families.map(|family| when(0, SeccompCmpOp::Ne, family as u64)).collect();
    let raw = SeccompCmpOp::MaskedEq(0xf);
    let raw = [when(0, SeccompCmpOp::Ne, libc::AF_NETLINK as u64)?, when(1, raw, libc::SOCK_RAW as u64)?];
    Ok(vec![rule(&other?)?, rule(&raw)?])
}

fn when(argument: u8, operator: SeccompCmpOp, value: u64) -> anyhow::Result<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

fn rule(conditions: &[SeccompCondition]) -> anyhow::Result<SeccompRule> {
    Ok(SeccompRule::new(conditions.to_vec())?)
}

fn arch() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> anyhow::Result<BpfProgram> {
    let arch = arch().context("no filters for this processor")?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error as u32), arch)?;
    Ok(filter.try_into()?)
}

/// x86-64 kernels may answer a second set of numbers, the same calls with a bit more: none of them.
fn without_x32() -> BpfProgram {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let say = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    vec![
        say(LOAD_NUMBER, 0, 0),
        say(JUMP_IF_AT_LEAST, 1, 0x4000_0000),
        say(RETURN, 0, libc::SECCOMP_RET_ALLOW),
        say(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_short_enough_for_the_kernel_and_leave_honest_calls_alone() {
        for layers in [Layers::NONE, Layers::default()] {
            for network in [Network::Open, Network::None] {
                let programs = programs(layers, network).expect("filters");
                assert!(programs.iter().all(|program| program.len() < 1024));
            }
        }
        let done = std::thread::spawn(|| {
            confine_this_thread(Layers::default(), Network::Open).expect("a filter");
            let child = std::process::Command::new("true").status().expect("started");
            let pair = std::os::unix::net::UnixStream::pair();
            let listener = std::net::TcpListener::bind("127.0.0.1:0");
            child.success() && pair.is_ok() && listener.is_ok()
        });
        assert!(done.join().expect("no panic"));
    }

    #[test]
    fn limits_and_priorities_are_set_for_oneself_alone() {
        use rustix::{
            io::Errno,
            process::{Resource, Rlimit, getpid, getppid, getrlimit, prlimit, setpriority_process, setrlimit},
        };
        let done = std::thread::spawn(|| {
            let layers = Layers { namespaces: false, ..Layers::default() };
            confine_this_thread(layers, Network::Open).expect("a filter");
            let core = getrlimit(Resource::Core);
            setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: core.maximum }).expect("its own");
            setpriority_process(None, 0).expect("its own");
            let limits = Rlimit { current: Some(1), maximum: Some(1) };
            for other in [getppid(), Some(getpid())] {
                assert_eq!(prlimit(other, Resource::Cpu, limits).err(), Some(Errno::PERM), "{other:?}");
                assert_eq!(setpriority_process(other, 19).err(), Some(Errno::PERM), "{other:?}");
            }
            assert!(std::process::Command::new("true").status().expect("started").success());
        });
        assert!(done.join().is_ok());
    }
}
