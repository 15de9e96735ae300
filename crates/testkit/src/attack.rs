//! What an attacker would do who controls a thread of a program: system calls that the sandbox must
//! deny. Only for Linux on x86-64.
//!
//! `failing` stops the program at a call that one of its stages makes, and lets the stopped thread
//! make these calls instead, as injected code would. Then the thread continues. Our programs
//! contain no code for these tests.

use std::collections::BTreeMap;
use std::path::Path;

use nix::libc::{self, c_long};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::fail::OrFail;
use crate::failing::{Effect, wrap};
use crate::process::Program;

/// A file beside the report, which the attacker reads.
pub const SECRET: &str = "secret";
/// A file beside the report, which the attacker removes.
pub const VICTIM: &str = "victim";
/// A file beside the report, which the attacker creates.
const LOOT: &str = "loot";

/// An argument of a call.
enum Argument {
    Number(u64),
    /// The path of a file beside the report.
    Beside(&'static str),
    /// A pointer to these bytes.
    Bytes(&'static [u8]),
    /// The result of the call before.
    Before,
}

use Argument::{Before, Beside, Bytes, Number};

/// A call that must fail.
struct Attack {
    name: &'static str,
    call: c_long,
    arguments: &'static [Argument],
}

const fn attack(name: &'static str, call: c_long, arguments: &'static [Argument]) -> Attack {
    Attack { name, call, arguments }
}

/// AT_FDCWD and -1, as registers hold them.
const HERE: Argument = Number((-100_i64).cast_unsigned());
const NO_FILE: Argument = Number(u64::MAX);
/// `sockaddr_in`: AF_INET, port 9, 127.0.0.1.
const ADDRESS: &[u8] = &[2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
const RDONLY: Argument = Number(0);
/// MSG_FASTOPEN.
const FAST_OPEN: Argument = Number(0x2000_0000);
/// O_WRONLY and O_CREAT.
const CREATE: Argument = Number(0o101);

/// All attacks. The first [`HARMLESS`] can be tried without a sandbox too.
const ATTACKS: [Attack; 66] = [
    attack("open", libc::SYS_openat, &[HERE, Beside(SECRET), RDONLY]),
    attack("create", libc::SYS_openat, &[HERE, Beside(LOOT), CREATE, Number(0o600)]),
    attack("unlink", libc::SYS_unlink, &[Beside(VICTIM)]),
    attack("packet socket", libc::SYS_socket, &[Number(17), Number(3), Number(0)]),
    attack("Unix socket", libc::SYS_socket, &[Number(1), Number(1), Number(0)]),
    attack("netlink socket", libc::SYS_socket, &[Number(16), Number(3), Number(15)]),
    attack("memfd", libc::SYS_memfd_create, &[Bytes(b"x\0"), Number(0)]),
    attack(
        "code",
        libc::SYS_mmap,
        &[Number(0), Number(4096), Number(7), Number(0x22), NO_FILE, Number(0)],
    ),
    attack("socket", libc::SYS_socket, &[Number(2), Number(1), Number(0)]),
    attack("connect", libc::SYS_connect, &[Before, Bytes(ADDRESS), Number(16)]),
    attack("execve", libc::SYS_execve, &[Bytes(b"/bin/true\0"), Number(0), Number(0)]),
    attack("clone", libc::SYS_clone, &[Number(17), Number(0), Number(0), Number(0), Number(0)]),
    attack("clone3", libc::SYS_clone3, &[Bytes(&[0; 64]), Number(64)]),
    attack("ptrace", libc::SYS_ptrace, &[Number(16), Number(1), Number(0), Number(0)]),
    attack("kill", libc::SYS_kill, &[Number(1), Number(0)]),
    attack(
        "mount",
        libc::SYS_mount,
        &[Bytes(b"x\0"), Bytes(b"/\0"), Bytes(b"tmpfs\0"), Number(0), Number(0)],
    ),
    attack("unshare", libc::SYS_unshare, &[Number(0x1000_0000)]),
    attack("io_uring", libc::SYS_io_uring_setup, &[Number(1), Bytes(&[0; 120])]),
    attack("bpf", libc::SYS_bpf, &[Number(0), Bytes(&[0; 64]), Number(64)]),
    attack("keyctl", libc::SYS_keyctl, &[Number(0), Number(0xffff_fffe), Number(1)]),
    attack("chmod", libc::SYS_chmod, &[Beside(SECRET), Number(0o4755)]),
    attack("fchmodat", libc::SYS_fchmodat, &[HERE, Beside(SECRET), Number(0o4755)]),
    attack("fchmodat2", 452, &[HERE, Beside(SECRET), Number(0o4755), Number(0)]),
    attack("chown", libc::SYS_chown, &[Beside(SECRET), Number(1), Number(1)]),
    attack("fchownat", libc::SYS_fchownat, &[HERE, Beside(SECRET), Number(1), Number(1)]),
    attack("utimes", libc::SYS_utimes, &[Beside(SECRET), Number(0)]),
    attack("utimensat", libc::SYS_utimensat, &[HERE, Beside(SECRET), Number(0), Number(0)]),
    attack("MPTCP", libc::SYS_socket, &[Number(2), Number(1), Number(262)]),
    attack("raw socket", libc::SYS_socket, &[Number(2), Number(3), Number(1)]),
    attack("ping socket", libc::SYS_socket, &[Number(2), Number(2), Number(1)]),
    attack("Unix datagrams", libc::SYS_socketpair, &[Number(1), Number(2), Number(0), Number(0)]),
    attack("UDP", libc::SYS_socket, &[Number(2), Number(2), Number(0)]),
    attack("listen", libc::SYS_listen, &[Before, Number(1)]),
    attack("bind", libc::SYS_bind, &[Before, Bytes(ADDRESS), Number(16)]),
    attack("fast open", libc::SYS_sendto, &[NO_FILE, Number(0), Number(0), FAST_OPEN]),
    attack("fast open message", libc::SYS_sendmsg, &[NO_FILE, Number(0), FAST_OPEN]),
    attack("own signals", libc::SYS_fcntl, &[Number(0), Number(8), Number(1)]),
    attack("another signal", libc::SYS_fcntl, &[Number(0), Number(10), Number(9)]),
    attack("lease", libc::SYS_fcntl, &[Number(0), Number(1024), Number(2)]),
    attack("terminal input", libc::SYS_ioctl, &[Number(0), Number(0x5412), Bytes(b"x")]),
    attack("own device", libc::SYS_ioctl, &[Number(0), Number(0x8901), Bytes(&[0; 4])]),
    attack("dumpable", libc::SYS_prctl, &[Number(4), Number(1)]),
    attack("protect", libc::SYS_mprotect, &[Number(0), Number(4096), Number(7)]),
    attack("link", libc::SYS_link, &[Beside(SECRET), Beside(LOOT)]),
    attack("symlink", libc::SYS_symlink, &[Bytes(b"/etc/shadow\0"), Beside(LOOT)]),
    attack("rename", libc::SYS_rename, &[Beside(VICTIM), Beside(LOOT)]),
    attack("mkdir", libc::SYS_mkdir, &[Beside(LOOT), Number(0o700)]),
    attack("device", libc::SYS_mknodat, &[HERE, Beside(LOOT), Number(0o060_600), Number(0x700)]),
    attack("truncate", libc::SYS_truncate, &[Beside(VICTIM), Number(0)]),
    attack("setuid", libc::SYS_setuid, &[Number(0)]),
    attack("setgroups", libc::SYS_setgroups, &[Number(0), Number(0)]),
    attack("capabilities", libc::SYS_capset, &[Number(0), Number(0)]),
    attack("chroot", libc::SYS_chroot, &[Bytes(b"/\0")]),
    attack("umount", libc::SYS_umount2, &[Bytes(b"/nowhere\0"), Number(0)]),
    attack("namespace", libc::SYS_setns, &[Number(0), Number(0)]),
    attack("handle", libc::SYS_open_by_handle_at, &[Number(0), Number(0), Number(0)]),
    attack("memory of others", libc::SYS_process_vm_readv, &[Number(1), Number(0), Number(0)]),
    attack("process", libc::SYS_pidfd_open, &[Number(1), Number(0)]),
    attack("performance", libc::SYS_perf_event_open, &[Number(0), Number(0)]),
    attack("page faults", libc::SYS_userfaultfd, &[Number(0)]),
    attack("limit", libc::SYS_prlimit64, &[Number(0), Number(7), Bytes(&[9; 16]), Number(0)]),
    attack("shared memory", libc::SYS_shmget, &[Number(0), Number(4096), Number(0o600)]),
    attack("log of the kernel", libc::SYS_syslog, &[Number(10), Number(0), Number(0)]),
    attack("module", libc::SYS_finit_module, &[NO_FILE, Bytes(b"\0"), Number(0)]),
    attack("clock", libc::SYS_clock_settime, &[Number(0), Number(0)]),
    attack("host name", libc::SYS_sethostname, &[Bytes(b"x\0"), Number(0)]),
];

/// Number of attacks that do no harm to the machine if they succeed.
pub const HARMLESS: usize = 8;

/// Number of all attacks.
pub const ALL: usize = ATTACKS.len();

/// Returns `program`, in which the thread that makes the `nth` of `calls` attacks with the first
/// `count` attacks. `binary` is any program of this workspace.
pub fn attacked(
    program: Program,
    binary: &str,
    report: &Path,
    (calls, nth): (&[i64], u64),
    count: usize,
) -> Program {
    for name in [SECRET, VICTIM] {
        let path = report.with_file_name(name);
        std::fs::write(&path, name).or_fail(path.display());
    }
    wrap(program, binary, report, (nth, Effect::Attack(count)), calls)
}

/// The calls of a thread that reads a file or device.
pub const READING: &[i64] = &[libc::SYS_pread64, libc::SYS_preadv];
/// The first call of a new thread: readers, decoders and writers have their own.
pub const STARTING: &[i64] = &[libc::SYS_rseq];
/// The calls of a thread that writes a disk.
pub const WRITING: &[i64] = &[libc::SYS_pwrite64, libc::SYS_pwritev];
/// The calls of a thread that receives from a connection.
pub const RECEIVING: &[i64] = &[libc::SYS_recvfrom, libc::SYS_recvmsg];
/// The calls of a thread that sends to a connection.
pub const SENDING: &[i64] = &[libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_writev];

/// The results of attacks by name: an error is negative, as the kernel returns it.
pub type AttackResults = BTreeMap<String, i64>;

/// Reads the report of a program that was [`attacked`].
pub fn results(report: &Path) -> AttackResults {
    let text = std::fs::read_to_string(report).or_fail(report.display());
    let line = |line: &str| {
        let (name, result) = line.rsplit_once(' ').or_fail(line);
        (name.to_owned(), result.parse().or_fail(line))
    };
    text.lines().map(line).collect()
}

/// Fails the test unless every attack but the `allowed` ones was denied, from a process all of
/// whose threads are restricted, and left no trace.
#[track_caller]
pub fn assert_denied(report: &Path, allowed: &[&str]) {
    let mut results = results(report);
    assert_eq!(results.remove(UNFILTERED), Some(0), "threads without a filter: {results:?}");
    assert_eq!(results.len(), ALL, "not all attacks were tried: {results:?}");
    let denied = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EBADF];
    let is_denied = |result: &i64| denied.iter().any(|errno| *result == -i64::from(*errno));
    results.retain(|name, result| !is_denied(result) && !allowed.contains(&name.as_str()));
    assert!(results.is_empty(), "attacks that the sandbox did not deny: {results:?}");
    assert!(!report.with_file_name(LOOT).exists() && report.with_file_name(VICTIM).exists());
}

/// The line with the number of threads that have no seccomp filter, or may gain privileges.
const UNFILTERED: &str = "unfiltered";

/// Makes `thread`, which has stopped at a system call with `stopped`, make the first `count`
/// attacks, and lets it make its own call afterwards. Returns the report.
pub fn make_attacks(
    thread: Pid,
    stopped: libc::user_regs_struct,
    report: &Path,
    count: usize,
) -> nix::Result<String> {
    let mut text = format!("{UNFILTERED} {}\n", unfiltered_threads(thread));
    let mut registers = stopped;
    // No call has this number, so that the own call ends at once.
    registers.orig_rax = u64::MAX;
    ptrace::setregs(thread, registers)?;
    wait_for_stop(thread)?;
    let mut before = 0;
    for attack in ATTACKS.iter().take(count) {
        let mut registers = stopped;
        // Below the stack, and the area that a function may use there (128 bytes).
        let mut room = (stopped.rsp - 1024) & !15;
        let mut values = [0; 6];
        for (value, argument) in values.iter_mut().zip(attack.arguments) {
            *value = match argument {
                Number(number) => *number,
                Before => before,
                Bytes(bytes) => poke(thread, &mut room, bytes)?,
                Beside(name) => {
                    let path = report.with_file_name(name);
                    let bytes = [path.as_os_str().as_encoded_bytes(), &[0]].concat();
                    poke(thread, &mut room, &bytes)?
                }
            };
        }
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
            values;
        set_call(&mut registers, attack.call.cast_unsigned());
        ptrace::setregs(thread, registers)?;
        // The entry of the call, and its end.
        wait_for_stop(thread)?;
        wait_for_stop(thread)?;
        before = ptrace::getregs(thread)?.rax;
        text += &format!("{} {}\n", attack.name, before.cast_signed());
    }
    let mut registers = stopped;
    set_call(&mut registers, stopped.orig_rax);
    ptrace::setregs(thread, registers)?;
    Ok(text)
}

/// Lets the thread execute its `syscall` instruction (two bytes) again, with this call.
fn set_call(registers: &mut libc::user_regs_struct, call: u64) {
    registers.rip -= 2;
    registers.rax = call;
    registers.orig_rax = u64::MAX;
}

fn poke(thread: Pid, room: &mut u64, bytes: &[u8]) -> nix::Result<u64> {
    for (index, word) in bytes.chunks(8).enumerate() {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        let address = (*room + 8 * index as u64) as ptrace::AddressType;
        ptrace::write(thread, address, i64::from_ne_bytes(padded))?;
    }
    let address = *room;
    *room += bytes.len().next_multiple_of(16) as u64;
    Ok(address)
}

/// Lets the thread run to the next entry or end of a system call.
fn wait_for_stop(thread: Pid) -> nix::Result<()> {
    loop {
        ptrace::syscall(thread, None)?;
        if let WaitStatus::Stopped(..) = waitpid(thread, Some(WaitPidFlag::__WALL))? {
            return Ok(());
        }
    }
}

fn unfiltered_threads(thread: Pid) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{thread}/task")).or_fail("the threads");
    let is_filtered = |task: &std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        // `failing` itself installs one filter; the sandbox at least two.
        let filters = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        let filters: u32 = filters.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        filters >= 3 && status.contains("NoNewPrivs:\t1")
    };
    tasks.flatten().filter(|task| !is_filtered(task)).count()
}
