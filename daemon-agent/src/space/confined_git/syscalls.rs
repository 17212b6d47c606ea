//! The allowlist of system calls for git: those that reading a repository needs. Every other one, known or not, fails
//! as if the kernel did not have it, which programs and libraries expect and handle.

use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition as When,
    SeccompFilter, SeccompRule,
};

/// Reading from disk; Landlock decides what may be read.
const READING_CALLS: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_fadvise64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
];
/// Writing output to whatever is open already.
const OUTPUT_CALLS: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
];
/// Memory, time, and ending the process.
const PROCESS_CALLS: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_setitimer,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];
/// Older names of the same calls, which one architecture still has.
#[cfg(target_arch = "x86_64")]
const LEGACY_CALLS: &[libc::c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_time,
    libc::SYS_getrlimit,
    libc::SYS_alarm,
    libc::SYS_getpgrp,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY_CALLS: &[libc::c_long] = &[];

/// Flags for opening that could change something. Opening for reading and writing is allowed: git opens /dev/null that
/// way, and Landlock refuses it everywhere else.
const CHANGING_OPEN_FLAGS: libc::c_int =
    libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | (libc::O_TMPFILE & !libc::O_DIRECTORY);
/// What may be done to an open file besides reading and writing it.
const ALLOWED_FCNTL_COMMANDS: [libc::c_int; 5] =
    [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_DUPFD, libc::F_DUPFD_CLOEXEC];

/// The calls that remain for this process and for `program`, the only one that can still be started, through this
/// descriptor: it is closed on start, so nothing can be started afterwards.
pub fn filter(program: &OwnedFd) -> Result<BpfProgram, BackendError> {
    let plain = [READING_CALLS, OUTPUT_CALLS, PROCESS_CALLS, LEGACY_CALLS]
        .into_iter()
        .flatten()
        .map(|call| (*call, Vec::new()));
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = plain.collect();
    rules.insert(libc::SYS_openat, vec![rule(&[(2, Is::MaskedEq(bits(CHANGING_OPEN_FLAGS)), 0)])?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![rule(&[(1, Is::MaskedEq(bits(CHANGING_OPEN_FLAGS)), 0)])?]);
    let handled = ALLOWED_FCNTL_COMMANDS.iter().map(|command| rule(&[(1, Is::Eq, bits(*command))]));
    rules.insert(libc::SYS_fcntl, handled.collect::<Result<_, _>>()?);
    // Limits can be read, but not set, its own included.
    rules.insert(libc::SYS_prlimit64, vec![rule_wide(2, 0)?]);
    // A program may end itself by a signal, but reach nobody else.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, vec![rule(&[(0, Is::Eq, own)])?]);
    }
    let start = [(0, Is::Eq, bits(program.as_raw_fd())), (4, Is::Eq, bits(libc::AT_EMPTY_PATH))];
    rules.insert(libc::SYS_execveat, vec![rule(&start)?]);
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, missing, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Requires all of these arguments, 32 bits each.
fn rule(conditions: &[(u8, Is, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions =
        conditions.iter().map(|(argument, is, value)| When::new(*argument, Width::Dword, is.clone(), *value));
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// Requires a 64-bit argument.
fn rule_wide(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![When::new(argument, Width::Qword, Is::Eq, value)?])
}

/// An `int` as the kernel sees it.
fn bits(value: libc::c_int) -> u64 {
    u64::from(value as u32)
}
