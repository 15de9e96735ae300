//! The list of allowed system calls, and the seccomp filter that is made from it.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

use rustix::process::geteuid;

use super::CallSet;

/// Calls without conditions, on every architecture.
/// chmod(2) and chown(2) of names are missing: Landlock does not limit them to the directories of
/// its rules, so a confined process could make any program set-user-ID.
const CALLS: &[c_long] = &[
    // Memory (mmap and mprotect have conditions).
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads of a transfer (clone has conditions), and their end.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    // Signals: SIGTERM, SIGINT, SIGHUP, and a stack for overflows.
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time and chance.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_nanosleep,
    // Waiting for descriptors.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    // Reading and writing (fcntl and ioctl have conditions).
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_lseek,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_write,
    libc::SYS_writev,
    // Names and attributes of files, which Landlock limits to some directories (utimensat has
    // conditions).
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    // Facts about the process and the machine (prlimit64 has conditions).
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getppid,
    libc::SYS_getrusage,
    libc::SYS_getuid,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_uname,
    // Transfers over sockets that are open or were received (sending and socketpair have
    // conditions).
    libc::SYS_accept4,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Names that only this architecture has, for calls of the list above.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_unlink,
];
#[cfg(target_arch = "aarch64")]
const OLD_CALLS: &[c_long] = &[];

/// New connections (socket has conditions). `sendmmsg` sends two questions to a name server.
/// getaddrinfo(3) binds the socket by which it asks for routes; Landlock limits TCP ports.
const CONNECTIONS: [c_long; 3] = [libc::SYS_bind, libc::SYS_connect, libc::SYS_sendmmsg];

/// Landlock does not see a socket that listens on a port that the kernel chooses.
const LISTENING: [c_long; 1] = [libc::SYS_listen];

/// The bits of a socket's type without its flags (socket(2)).
const SOCKET_TYPE: u64 = 0xf;

/// Calls that send, and the number of their argument with flags. With MSG_FASTOPEN they would open
/// a connection, which Landlock does not see.
const SENDING: [(c_long, u8); 3] =
    [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];

/// The bits of a mode for set-user-ID, set-group-ID and sticky (inode(7)).
const SET_ID: u64 = 0o7000;

/// Commands of fcntl(2). Those that are missing let the kernel send signals to other processes.
const COMMANDS: [i32; 6] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
];

/// Waiting for a program that was started before, and ending it.
const CHILDREN: [c_long; 5] = [
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Flags of clone(2) that make namespaces. CLONE_NEWTIME is not one of its flags.
const NAMESPACES: i32 = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// Requests for block devices and terminals (`linux/fs.h`, `asm-generic/ioctls.h`):
/// BLKROGET, BLKGETSIZE64, BLKSSZGET, BLKIOMIN, BLKIOOPT, BLKPBSZGET, BLKDISCARDZEROES,
/// BLKZEROOUT; TCGETS, TCGETS2, TIOCGWINSZ; FIONBIO and FIOCLEX.
const REQUESTS: [u64; 13] = [
    0x125e,
    0x8008_1272,
    0x1268,
    0x1278,
    0x1279,
    0x127b,
    0x127c,
    0x127f,
    0x5401,
    0x802c_542a,
    0x5413,
    0x5421,
    0x5451,
];

/// Operations of prctl(2): names of threads and of memory areas, and what seccompiler does before
/// it adds a filter.
const OPERATIONS: [i32; 3] = [libc::PR_SET_NAME, libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_VMA];

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn architecture() -> TargetArch {
    if cfg!(target_arch = "x86_64") { TargetArch::x86_64 } else { TargetArch::aarch64 }
}

/// The `argument`th argument, as far as `mask` covers it, equals `value`.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, BackendError> {
    let compared = SeccompCmpOp::MaskedEq(mask);
    let length = SeccompCmpArgLen::Qword;
    SeccompRule::new(vec![SeccompCondition::new(argument, length, compared, value)?])
}

/// The `argument`th argument, an int, equals `value`.
fn equals(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    let value = value & u64::from(u32::MAX);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

/// The `argument`th argument, an int, is one of `values`.
fn one_of(
    argument: u8,
    values: impl IntoIterator<Item = u64>,
) -> Result<Vec<SeccompRule>, BackendError> {
    values.into_iter().map(|value| SeccompRule::new(vec![equals(argument, value)?])).collect()
}

fn bits(flags: i32) -> u64 {
    u64::from(flags.cast_unsigned())
}

/// A socket of this family, type (with any flags) and protocol.
fn socket_rule(family: i32, kind: i32, protocol: i32) -> Result<SeccompRule, BackendError> {
    let is_kind = SeccompCmpOp::MaskedEq(SOCKET_TYPE);
    SeccompRule::new(vec![
        equals(0, bits(family))?,
        SeccompCondition::new(1, SeccompCmpArgLen::Dword, is_kind, bits(kind))?,
        equals(2, bits(protocol))?,
    ])
}

/// Returns all allowed calls, with their conditions.
fn allowed_calls(set: CallSet) -> Result<Rules, BackendError> {
    let mut rules: Rules = CALLS.iter().chain(OLD_CALLS).map(|call| (*call, Vec::new())).collect();
    // No new machine code: neither memory that can be executed, nor a file that is mapped so.
    let is_data = masked(2, bits(libc::PROT_EXEC), 0)?;
    rules.insert(libc::SYS_mmap, vec![is_data.clone()]);
    rules.insert(libc::SYS_mprotect, vec![is_data]);
    // Threads of this process, but neither processes nor namespaces.
    let thread = bits(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![masked(0, bits(NAMESPACES) | thread, thread)?]);
    // The second filter answers this call.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_prctl, one_of(0, OPERATIONS.map(bits))?);
    // Another filter can only take rights away (`deny_sockets`).
    let add = u64::from(libc::SECCOMP_SET_MODE_FILTER);
    rules.insert(libc::SYS_seccomp, one_of(0, [add])?);
    rules.insert(libc::SYS_ioctl, one_of(1, REQUESTS)?);
    // Limits are read, but not changed: the new limit is a null pointer.
    rules.insert(libc::SYS_prlimit64, vec![masked(2, u64::MAX, 0)?]);
    // Only signals to this process, which aborts with one.
    rules.insert(libc::SYS_tgkill, one_of(0, [u64::from(std::process::id())])?);
    rules.insert(libc::SYS_fcntl, one_of(1, COMMANDS.map(bits))?);
    // The times of an open file: without a path. All other calls about attributes take descriptors.
    let times = if set.trees { Vec::new() } else { vec![masked(1, u64::MAX, 0)?] };
    rules.insert(libc::SYS_utimensat, times);
    // An ordinary user cannot open a directory without rights to change them. Never set-user-ID.
    if set.trees && !geteuid().is_root() {
        rules.insert(libc::SYS_fchmodat, vec![masked(2, SET_ID, 0)?]);
    }
    for (call, flags) in SENDING {
        rules.insert(call, vec![masked(flags, bits(libc::MSG_FASTOPEN), 0)?]);
    }
    // tokio has a pair for signals. Datagrams could be sent to other sockets.
    let stream = |family| socket_rule(family, libc::SOCK_STREAM, 0);
    rules.insert(libc::SYS_socketpair, vec![stream(libc::AF_UNIX)?]);
    let mut sockets = Vec::new();
    if set.unix {
        sockets.push(stream(libc::AF_UNIX)?);
    }
    if set.network {
        // Without MPTCP and raw sockets, which Landlock does not see. UDP is for name servers.
        for family in [libc::AF_INET, libc::AF_INET6] {
            for protocol in [0, libc::IPPROTO_TCP] {
                sockets.push(socket_rule(family, libc::SOCK_STREAM, protocol)?);
            }
            for protocol in [0, libc::IPPROTO_UDP] {
                sockets.push(socket_rule(family, libc::SOCK_DGRAM, protocol)?);
            }
        }
        // getaddrinfo(3) sorts addresses by the routes to them (rtnetlink(7)).
        sockets.push(SeccompRule::new(vec![
            equals(0, bits(libc::AF_NETLINK))?,
            equals(2, bits(libc::NETLINK_ROUTE))?,
        ])?);
    }
    if sockets.is_empty() {
        rules.remove(&libc::SYS_sendmmsg);
    } else {
        rules.extend([libc::SYS_bind, libc::SYS_connect].map(|call| (call, Vec::new())));
        rules.insert(libc::SYS_socket, sockets);
    }
    if set.listen {
        rules.extend(LISTENING.map(|call| (call, Vec::new())));
    }
    if set.children {
        rules.extend(CHILDREN.map(|call| (call, Vec::new())));
    }
    Ok(rules)
}

/// Denies all calls but the allowed ones to all threads of this process.
pub(crate) fn restrict_calls(set: CallSet) -> Result<String, String> {
    let rules = allowed_calls(set).map_err(|error| error.to_string())?;
    let count = rules.len();
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    install(rules, denied, SeccompAction::Allow)?;
    // A filter cannot see the flags of clone3, which are in memory. With ENOSYS, libc uses clone
    // instead (clone(2)).
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    install(clone3, SeccompAction::Allow, absent)?;
    Ok(format!("{count} system calls"))
}

/// Denies new sockets and connections to all threads of this process.
pub(crate) fn deny_sockets() -> Result<(), String> {
    deny(CONNECTIONS.into_iter().chain(LISTENING).chain([libc::SYS_socket]))
}

/// Denies new listening sockets to all threads of this process.
pub(crate) fn deny_listening() -> Result<(), String> {
    deny(LISTENING)
}

fn deny(calls: impl IntoIterator<Item = c_long>) -> Result<(), String> {
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    install(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM.cast_unsigned()))
}

fn install(rules: Rules, other: SeccompAction, matching: SeccompAction) -> Result<(), String> {
    let filter = SeccompFilter::new(rules, other, matching, architecture());
    let program = filter.and_then(BpfProgram::try_from).map_err(|error| error.to_string())?;
    // TSYNC: tokio and the allocator may have started threads.
    seccompiler::apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_set_has_a_call_that_starts_or_inspects_programs() {
        let all = CallSet { network: true, listen: true, trees: true, unix: true, children: true };
        for set in [CallSet::default(), all] {
            let rules = allowed_calls(set).unwrap();
            for call in [
                libc::SYS_execve,
                libc::SYS_execveat,
                libc::SYS_ptrace,
                libc::SYS_process_vm_writev,
                libc::SYS_mount,
                libc::SYS_open_tree,
                libc::SYS_unshare,
                libc::SYS_setns,
                libc::SYS_io_uring_setup,
                libc::SYS_bpf,
                libc::SYS_keyctl,
                libc::SYS_userfaultfd,
                libc::SYS_memfd_create,
                libc::SYS_setuid,
                libc::SYS_pidfd_getfd,
                libc::SYS_fchownat,
            ] {
                assert!(!rules.contains_key(&call), "{set:?} {call}");
            }
            // Without conditions, these would allow processes, other users' programs, code.
            for call in [
                libc::SYS_clone,
                libc::SYS_prctl,
                libc::SYS_mmap,
                libc::SYS_ioctl,
                libc::SYS_fcntl,
                libc::SYS_sendto,
                libc::SYS_socketpair,
            ] {
                assert!(!rules[&call].is_empty(), "{set:?} {call}");
            }
        }
    }

    #[test]
    fn only_programs_with_a_network_make_sockets() {
        let local = allowed_calls(CallSet::default()).unwrap();
        let network = allowed_calls(CallSet { network: true, ..CallSet::default() }).unwrap();
        for call in CONNECTIONS.into_iter().chain([libc::SYS_socket]) {
            assert!(!local.contains_key(&call) && network.contains_key(&call), "{call}");
        }
        for call in LISTENING {
            assert!(!local.contains_key(&call) && !network.contains_key(&call), "{call}");
        }
    }

    #[test]
    fn each_call_is_listed_once() {
        let distinct: std::collections::BTreeSet<_> = CALLS.iter().chain(OLD_CALLS).collect();
        assert_eq!(distinct.len(), CALLS.len() + OLD_CALLS.len());
    }
}
