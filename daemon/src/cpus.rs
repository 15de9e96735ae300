//! How many CPUs this process may keep busy.
//!
//! The number of CPUs of the node is the wrong answer in a pod: a container limited to `750m` that starts
//! a worker for each of 64 cores is throttled most of the time.

use std::fs;
use std::path::{Path, PathBuf};

/// The smaller of the CPUs that the scheduler allows and the quota of the cgroup, rounded up; at least 1.
pub fn usable() -> usize {
    let allowed = rustix::thread::sched_getaffinity(None)
        .ok()
        .and_then(|cpus| usize::try_from(cpus.count()).ok())
        .filter(|&count| count > 0)
        // More CPUs than the kernel's fixed-size set can name.
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match quota(Path::new("/sys/fs/cgroup"), &memberships) {
        Some(limit) => allowed.min(limit).max(1),
        None => allowed,
    }
}

/// The tightest quota, in whole CPUs rounded up, of the cgroups in `memberships` (the text of
/// `/proc/self/cgroup`: lines `id:controllers:path`) and of all their parents, with hierarchies mounted
/// at `root`. `None` when nothing limits.
fn quota(root: &Path, memberships: &str) -> Option<usize> {
    memberships
        .lines()
        .filter_map(|line| hierarchy_quota(root, line))
        .min()
}

fn hierarchy_quota(root: &Path, membership: &str) -> Option<usize> {
    let mut parts = membership.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    // cgroup v2 has one hierarchy, with an empty list of controllers; v1 has one a controller or two.
    let (mount, read): (PathBuf, fn(&Path) -> Option<usize>) = if controllers.is_empty() {
        (root.to_owned(), quota_v2)
    } else if controllers.split(',').any(|name| name == "cpu") {
        (root.join("cpu"), quota_v1)
    } else {
        return None;
    };
    // Without a cgroup namespace the path is the node's and not visible here; what is mounted at the top is
    // then our own cgroup. Reading every parent covers both cases, and limits set on the pod.
    let relative = Path::new(path).strip_prefix("/").ok()?;
    relative
        .ancestors()
        .filter_map(|parent| read(&mount.join(parent)))
        .min()
}

/// `cpu.max` is `<quota> <period>` in microseconds, or `max <period>`.
fn quota_v2(cgroup: &Path) -> Option<usize> {
    let text = fs::read_to_string(cgroup.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cpus(quota, period)
}

/// `cpu.cfs_quota_us` is `-1` when nothing limits.
fn quota_v1(cgroup: &Path) -> Option<usize> {
    let quota = fs::read_to_string(cgroup.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(cgroup.join("cpu.cfs_period_us")).ok()?;
    whole_cpus(quota.trim(), period.trim())
}

/// `quota / period` rounded up, at least 1; `None` for `max`, `-1` and anything that is not a number.
fn whole_cpus(quota: &str, period: &str) -> Option<usize> {
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn this_process_may_use_at_least_one_cpu() {
        let all = std::thread::available_parallelism().unwrap().get();
        // The standard library rounds the quota down, this module rounds it up.
        assert!((1..=all + 1).contains(&usable()), "{} of {all}", usable());
    }

    #[test]
    fn quotas_round_up_to_whole_cpus() {
        for (text, cpus) in [
            ("75000 100000\n", Some(1)),
            ("100000 100000\n", Some(1)),
            ("100001 100000\n", Some(2)),
            ("1000 100000\n", Some(1)),
            ("max 100000\n", None),
            ("100000 0\n", None),
            ("", None),
        ] {
            let root = cgroups(&[("cpu.max", text)]);
            assert_eq!(quota(root.path(), "0::/\n"), cpus, "{text:?}");
        }
    }

    #[test]
    fn the_tightest_parent_decides() {
        let root = cgroups(&[
            ("pod/cpu.max", "300000 100000\n"),
            ("pod/container/cpu.max", "max 100000\n"),
            ("pod/container/child/cpu.max", "400000 100000\n"),
        ]);
        assert_eq!(quota(root.path(), "0::/pod/container/child\n"), Some(3));
        assert_eq!(quota(root.path(), "0::/pod/container/gone/away\n"), Some(3));
    }

    #[test]
    fn version_1_hierarchies_are_read_too() {
        let root = cgroups(&[
            ("cpu/cpu.cfs_quota_us", "150000\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        let memberships = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n";
        assert_eq!(quota(root.path(), memberships), Some(2));
        let unlimited = cgroups(&[
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(quota(unlimited.path(), memberships), None);
    }

    #[test]
    fn nonsense_limits_nothing() {
        let root = cgroups(&[]);
        for text in ["", "x", "0:", "0::relative", "::", "a:b:c:d"] {
            assert_eq!(quota(root.path(), text), None, "{text}");
        }
    }
}
