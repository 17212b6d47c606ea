//! The filter of system calls: refuses what no build tool needs and what bypasses the file tree.
//!
//! It lists what is refused, not what is allowed: an agent runs whatever a developer runs. Programs for another
//! architecture than the daemon's are ended by it, because their system calls have other numbers.

use std::collections::BTreeMap;

use anyhow::Context;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

use super::{Layers, Network};

/// Refused with EPERM, whatever the arguments.
const REFUSED_CALLS: &[i64] = &[
    // Keyrings belong to the user, not to a process.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Kernel interfaces in which new holes are found every year.
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
    // Other namespaces and mounts than those that were granted.
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
    SYS_OPEN_TREE_ATTR,
    // Files by handle instead of by path.
    libc::SYS_open_by_handle_at,
];

/// Answered as if the kernel did not have them: programs then use calls that can be judged by their arguments.
const UNSUPPORTED_CALLS: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Not in `libc` yet; the number is the same on every architecture.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// Calls that affect other processes of the user where these are visible.
const CALLS_ON_OTHER_PROCESSES: &[i64] =
    &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_pidfd_getfd];

/// Shared memory and queues that all processes of the user share, unless there is an IPC namespace.
const SHARED_MEMORY_CALLS: &[i64] = &[libc::SYS_shmget, libc::SYS_semget, libc::SYS_msgget, libc::SYS_mq_open];

/// Calls that change something for the process that their first argument names, where 0 is the caller itself. A filter
/// cannot know the caller's process id, so that is refused as well. Scheduling calls (`sched_setaffinity`,
/// `sched_setscheduler`) are not among them, because libraries name their own threads by id there.
const CALLS_BY_PID: &[i64] = &[libc::SYS_migrate_pages, libc::SYS_move_pages];

/// Calls whose first argument says what the second one names: a process, a group, or all processes of a user. Each
/// comes with the value for the latter.
const CALLS_BY_KIND: [(i64, i32); 2] = [(libc::SYS_setpriority, libc::PRIO_USER as i32), (libc::SYS_ioprio_set, 3)];

/// Socket families that a command may use: local, IPv4, IPv6, and netlink.
const SOCKET_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// New namespaces that `clone` could create.
const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// `TIOCSTI` and `TIOCLINUX`: they type into a terminal.
const TERMINAL_INPUT_IOCTLS: [u64; 2] = [0x5412, 0x541c];

/// Whether this kernel supports filters.
pub fn is_there() -> bool {
    std::fs::metadata("/proc/sys/kernel/seccomp/actions_avail").is_ok() && arch().is_some()
}

/// Confines the calling thread, and what it starts, to the filter for good.
pub fn confine_this_thread(layers: Layers, network: Network) -> anyhow::Result<()> {
    for program in programs(layers, network)? {
        apply_filter(&program).context("no filter of system calls")?;
    }
    Ok(())
}

fn programs(layers: Layers, network: Network) -> anyhow::Result<Vec<BpfProgram>> {
    let whole = |calls: &[i64]| calls.iter().map(|call| (*call, Vec::new())).collect::<BTreeMap<_, _>>();
    let mut refused = whole(REFUSED_CALLS);
    if !layers.confine() {
        refused.extend(whole(CALLS_ON_OTHER_PROCESSES));
    }
    if !layers.namespaces {
        refused.extend(whole(SHARED_MEMORY_CALLS));
        refused.extend(of_others()?);
    }
    let new = NAMESPACE_FLAGS.map(|flag| rule(&[when(0, SeccompCmpOp::MaskedEq(flag as u64), flag as u64)?]));
    refused.insert(libc::SYS_clone, new.into_iter().collect::<anyhow::Result<_>>()?);
    let typing = TERMINAL_INPUT_IOCTLS.map(|request| rule(&[when(1, SeccompCmpOp::Eq, request)?]));
    refused.insert(libc::SYS_ioctl, typing.into_iter().collect::<anyhow::Result<_>>()?);
    refused.insert(libc::SYS_socket, sockets(layers, network)?);
    let mut programs = vec![compile(refused, libc::EPERM)?, compile(whole(UNSUPPORTED_CALLS), libc::ENOSYS)?];
    if cfg!(target_arch = "x86_64") {
        programs.push(without_x32());
    }
    Ok(programs)
}

/// Calls that would change other processes of the user where these are visible: a limit on processor time, for example,
/// ends a process like a signal.
fn of_others() -> anyhow::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let other = |argument: u8| when(argument, SeccompCmpOp::Ne, 0);
    let mut rules = BTreeMap::new();
    for call in CALLS_BY_PID {
        rules.insert(*call, vec![rule(&[other(0)?])?]);
    }
    for (call, user) in CALLS_BY_KIND {
        rules.insert(call, vec![rule(&[other(1)?])?, rule(&[when(0, SeccompCmpOp::Eq, user as u64)?])?]);
    }
    // Reading another process's limits changes nothing.
    let new_limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![rule(&[other(0)?, new_limits])?]);
    Ok(rules)
}

fn sockets(layers: Layers, network: Network) -> anyhow::Result<Vec<SeccompRule>> {
    // With a network namespace there is nothing to reach; without one, no such socket can be created at all.
    let closed = network == Network::None && !layers.namespaces;
    let families = SOCKET_FAMILIES.into_iter().filter(|family| !closed || *family == libc::AF_UNIX);
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

/// x86-64 kernels may accept a second set of numbers, the same calls with an extra bit: all of them are refused.
fn without_x32() -> BpfProgram {
    const BPF_LOAD_NUMBER: u16 = 0x20;
    const BPF_JUMP_IF_AT_LEAST: u16 = 0x35;
    const BPF_RETURN: u16 = 0x06;
    let say = |code, jt, k| sock_filter { code, jt, jf: 0, k };
    vec![
        say(BPF_LOAD_NUMBER, 0, 0),
        say(BPF_JUMP_IF_AT_LEAST, 1, 0x4000_0000),
        say(BPF_RETURN, 0, libc::SECCOMP_RET_ALLOW),
        say(BPF_RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
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
