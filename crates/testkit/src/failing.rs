//! Programs whose Nth system call of a group fails: the groups, and how their calls fail. Only for
//! Linux on x86-64.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use nix::libc::{self, EACCES, EAGAIN, EINTR, EIO, EMFILE, ENOMEM, ENOSPC};

use crate::fail::OrFail;
use crate::process::Program;
use crate::random::Random;
use crate::upload_proxy::beside;

/// Standard output and standard error.
pub const STANDARD_OUTPUTS: [u64; 2] = [1, 2];

/// A group of similar system calls, and the errors that the kernel returns for them.
pub struct Group {
    /// The group's name in messages.
    pub name: &'static str,
    /// The numbers of the calls.
    pub calls: &'static [i64],
    /// Errors, the most likely one first.
    pub errors: &'static [i32],
    /// True if a call may do only a part of what was requested.
    pub is_divisible: bool,
}

/// Reads and writes, which are counted only if they transfer the program's data.
pub const TRANSFERS: [i64; 16] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendfile,
    libc::SYS_splice,
];

/// All groups.
///
/// Faults that the kernel never produces are left out, because a program may rightly wait forever
/// after them:
///
/// * errors of reads, writes and waits on a runtime's own eventfd and epoll: the kernel returns
///   them only for wrong arguments;
/// * a permanent EINTR: no call would ever succeed;
/// * EAGAIN or a short transfer on a socket that could do more: tokio takes both for "nothing
///   left" or "no room", and waits until epoll reports a change;
/// * getsockname, through which a server logs the port that a test connects to.
pub const GROUPS: [Group; 14] = [
    Group {
        name: "open",
        calls: &[libc::SYS_open, libc::SYS_openat, libc::SYS_openat2],
        errors: &[EMFILE, EACCES],
        is_divisible: false,
    },
    Group {
        name: "read",
        calls: &[
            libc::SYS_read,
            libc::SYS_readv,
            libc::SYS_pread64,
            libc::SYS_preadv,
            libc::SYS_preadv2,
        ],
        errors: &[EIO, EINTR],
        is_divisible: true,
    },
    Group {
        name: "write",
        calls: &[
            libc::SYS_write,
            libc::SYS_writev,
            libc::SYS_pwrite64,
            libc::SYS_pwritev,
            libc::SYS_pwritev2,
        ],
        errors: &[ENOSPC, EIO, EINTR],
        is_divisible: true,
    },
    Group {
        name: "sync",
        calls: &[libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_syncfs, libc::SYS_sync_file_range],
        errors: &[EIO, ENOSPC],
        is_divisible: false,
    },
    Group {
        name: "size",
        calls: &[libc::SYS_ftruncate, libc::SYS_fallocate],
        errors: &[ENOSPC, EIO, EINTR],
        is_divisible: false,
    },
    Group {
        name: "names",
        calls: &[
            libc::SYS_rename,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_unlink,
            libc::SYS_unlinkat,
            libc::SYS_rmdir,
            libc::SYS_link,
            libc::SYS_linkat,
            libc::SYS_symlinkat,
            libc::SYS_mkdir,
            libc::SYS_mkdirat,
            libc::SYS_mknodat,
        ],
        errors: &[EIO, ENOSPC],
        is_divisible: false,
    },
    Group {
        name: "attributes",
        calls: &[
            libc::SYS_chmod,
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            libc::SYS_fchmodat2,
            libc::SYS_fchown,
            libc::SYS_utimensat,
        ],
        errors: &[EIO, ENOSPC],
        is_divisible: false,
    },
    Group {
        name: "stat",
        calls: &[
            libc::SYS_stat,
            libc::SYS_fstat,
            libc::SYS_lstat,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_statfs,
            libc::SYS_fstatfs,
        ],
        errors: &[EIO, ENOMEM],
        is_divisible: false,
    },
    Group {
        name: "seek",
        calls: &[libc::SYS_lseek, libc::SYS_getdents64, libc::SYS_readlink, libc::SYS_readlinkat],
        errors: &[EIO],
        is_divisible: false,
    },
    Group {
        name: "lock",
        calls: &[libc::SYS_flock, libc::SYS_fcntl, libc::SYS_ioctl],
        errors: &[libc::ENOLCK, EINTR],
        is_divisible: false,
    },
    Group {
        name: "network",
        calls: &[libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_sendmsg],
        errors: &[libc::ECONNRESET],
        is_divisible: false,
    },
    Group {
        name: "memory",
        calls: &[libc::SYS_mmap, libc::SYS_mremap, libc::SYS_madvise],
        errors: &[ENOMEM],
        is_divisible: false,
    },
    Group {
        name: "socket",
        calls: &[
            libc::SYS_socket,
            libc::SYS_socketpair,
            libc::SYS_connect,
            libc::SYS_accept4,
            libc::SYS_getsockopt,
            libc::SYS_setsockopt,
            libc::SYS_shutdown,
        ],
        errors: &[libc::ENOBUFS, EMFILE],
        is_divisible: false,
    },
    Group {
        name: "thread",
        calls: &[libc::SYS_clone, libc::SYS_clone3],
        errors: &[EAGAIN],
        is_divisible: false,
    },
];

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// No call fails.
    None,
    /// One call fails with this error; later ones succeed.
    Once(i32),
    /// This call and all later ones fail with this error.
    Forever(i32),
    /// The call transfers half of what was requested.
    Short,
    /// The thread makes so many attacks before the call (`testkit::attack`).
    Attack(usize),
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Once(errno) => write!(f, "once:{errno}"),
            Self::Forever(errno) => write!(f, "forever:{errno}"),
            Self::Short => f.write_str("short"),
            Self::Attack(count) => write!(f, "attack:{count}"),
        }
    }
}

/// The error for text that is not an effect.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an effect")]
pub struct UnknownEffect(String);

impl FromStr for Effect {
    type Err = UnknownEffect;

    fn from_str(word: &str) -> Result<Self, UnknownEffect> {
        let unknown = || UnknownEffect(word.to_owned());
        match word.split_once(':') {
            None if word == "none" => Ok(Self::None),
            None if word == "short" => Ok(Self::Short),
            Some(("attack", count)) => count.parse().map(Self::Attack).map_err(|_| unknown()),
            Some((when, errno)) => match (when, errno.parse()) {
                ("once", Ok(errno)) => Ok(Self::Once(errno)),
                ("forever", Ok(errno)) => Ok(Self::Forever(errno)),
                _ => Err(unknown()),
            },
            None => Err(unknown()),
        }
    }
}

/// A call that fails, and how it fails.
#[derive(Clone, Copy)]
pub struct Fault {
    /// The group of the call.
    pub group: &'static Group,
    /// The number of the call within its group, from 1.
    pub nth: u64,
    /// How the call fails.
    pub effect: Effect,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.group.name, self.nth, self.effect)
    }
}

impl Fault {
    /// Returns `program` with this fault. `binary` is any program of this workspace; `failing`
    /// lies in the same folder.
    pub fn in_program(&self, program: Program, binary: &str, report: &Path) -> Program {
        wrap(program, binary, report, (self.nth, self.effect), self.group.calls)
    }
}

/// Returns `program` without a fault but with its calls counted. [`faults`] reads the `report`.
pub fn counted(program: Program, binary: &str, report: &Path) -> Program {
    let calls: Vec<i64> = GROUPS.iter().flat_map(|group| group.calls).copied().collect();
    wrap(program, binary, report, (0, Effect::None), &calls)
}

pub(crate) fn wrap(
    program: Program,
    binary: &str,
    report: &Path,
    (nth, effect): (u64, Effect),
    calls: &[i64],
) -> Program {
    let calls: Vec<String> = calls.iter().map(i64::to_string).collect();
    let words =
        [report.display().to_string(), nth.to_string(), effect.to_string(), calls.join(",")];
    program.under(&beside(binary, "failing"), words)
}

/// Formats a report: one line for each system call.
pub fn report(counts: &BTreeMap<i64, u64>) -> String {
    counts.iter().map(|(call, count)| format!("{call} {count}\n")).collect()
}

/// Reads the number of calls in each group from a `report`.
pub fn counts(report: &Path) -> Vec<(&'static Group, u64)> {
    let text = std::fs::read_to_string(report).or_fail(report.display());
    let numbers = text.lines().map(|line| {
        let (call, count) = line.split_once(' ').or_fail(line);
        (call.parse::<i64>().or_fail(line), count.parse::<u64>().or_fail(line))
    });
    let counts: BTreeMap<i64, u64> = numbers.collect();
    let sum = |group: &Group| group.calls.iter().filter_map(|call| counts.get(call)).sum();
    GROUPS.iter().map(|group| (group, sum(group))).collect()
}

/// Returns the faults to try in a program, given the `report` of a run without faults. If a group
/// has at most `most` calls, each of them fails in turn. Otherwise `most` of them fail: the first,
/// the last, and some random ones between them, which are the same in every run.
pub fn faults(report: &Path, most: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut random = Random::new(35);
    for (group, count) in counts(report) {
        for nth in places(count, most, &mut random) {
            let lasting = group.errors.iter().filter(|errno| **errno != EINTR);
            let lasting = lasting.take(1).map(|errno| Effect::Forever(*errno));
            let once = group.errors.iter().map(|errno| Effect::Once(*errno));
            let short = group.is_divisible.then_some(Effect::Short);
            let effects = once.chain(lasting).chain(short);
            faults.extend(effects.map(|effect| Fault { group, nth, effect }));
        }
    }
    faults
}

fn places(count: u64, most: u64, random: &mut Random) -> Vec<u64> {
    if count <= most {
        return (1..=count).collect();
    }
    let third = most / 3;
    let between = (0..third).map(|_| third + 1 + random.below(count - 2 * third));
    let between: Vec<u64> = between.collect();
    (1..=third).chain(between).chain(count - third + 1..=count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_calls_all_fail_and_of_many_the_first_and_last() {
        let mut random = Random::new(1);
        assert_eq!(places(0, 6, &mut random), Vec::<u64>::new());
        assert_eq!(places(6, 6, &mut random), [1, 2, 3, 4, 5, 6]);
        let places = places(1000, 6, &mut random);
        assert_eq!((&places[..2], &places[4..]), (&[1, 2][..], &[999, 1000][..]));
        assert!(places[2..4].iter().all(|place| (3..999).contains(place)));
    }

    #[test]
    fn effects_are_written_and_parsed_as_words() {
        for effect in [Effect::None, Effect::Short, Effect::Once(5), Effect::Forever(28)] {
            assert_eq!(effect.to_string().parse::<Effect>().unwrap(), effect);
        }
        for word in ["", "once", "once:", "never:5", "5"] {
            assert!(word.parse::<Effect>().is_err(), "{word}");
        }
    }
}
