//! Counts the CPUs that this process can keep busy.
//!
//! In a pod, the number of CPUs of the node is the wrong number: a container limited to `750m`
//! that starts a worker for each of 64 cores is throttled most of the time.
//! `std::thread::available_parallelism` considers quotas too, but rounds them down, so a pod with
//! `1900m` would leave almost half of its quota unused.

use std::fs;
use std::path::Path;

use crate::cgroup::{self, CgroupController};

/// Returns the number of CPUs that the scheduler allows, or the cgroup's quota rounded up,
/// whichever is smaller; at least 1.
pub(crate) fn usable_count() -> usize {
    let allowed = affinity_count()
        .filter(|&count| count > 0)
        // This fallback is needed if the system has more CPUs than the kernel's fixed-size set can
        // hold.
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    match cgroup::tightest_limit(&QUOTA) {
        Some(limit) => allowed.min(limit).max(1),
        None => allowed,
    }
}

/// Returns the number of CPUs on which the scheduler may run this thread.
#[cfg(target_os = "linux")]
fn affinity_count() -> Option<usize> {
    let cpus = rustix::thread::sched_getaffinity(None).ok()?;
    usize::try_from(cpus.count()).ok()
}

#[cfg(not(target_os = "linux"))]
fn affinity_count() -> Option<usize> {
    None
}

/// The CPU quota of a cgroup as a number of CPUs, rounded up.
const QUOTA: CgroupController<usize> =
    CgroupController { name: "cpu", read_v2: quota_v2, read_v1: quota_v1 };

/// Reads `cpu.max`: `<quota> <period>` in microseconds, or `max <period>` without a limit.
fn quota_v2(cgroup: &Path) -> Option<usize> {
    let text = fs::read_to_string(cgroup.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cpus(quota, period)
}

/// Reads `cpu.cfs_quota_us`, which is `-1` without a limit.
fn quota_v1(cgroup: &Path) -> Option<usize> {
    let quota = fs::read_to_string(cgroup.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(cgroup.join("cpu.cfs_period_us")).ok()?;
    whole_cpus(quota.trim(), period.trim())
}

/// Returns `quota / period` rounded up, at least 1. Returns `None` for `max`, `-1` and anything
/// that is not a number.
fn whole_cpus(quota: &str, period: &str) -> Option<usize> {
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota.div_ceil(period).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::tests::{cgroups, limit_in};

    #[test]
    fn this_process_may_use_at_least_one_cpu() {
        let all = std::thread::available_parallelism().unwrap().get();
        // The standard library rounds the quota down, this module rounds it up.
        assert!((1..=all + 1).contains(&usable_count()), "{} of {all}", usable_count());
    }

    #[test]
    fn quotas_round_up_to_whole_cpus() {
        for (quota, period, cpus) in [
            ("75000", "100000", Some(1)),
            ("100000", "100000", Some(1)),
            ("100001", "100000", Some(2)),
            ("150000", "100000", Some(2)),
            ("1000", "100000", Some(1)),
            ("max", "100000", None),
            ("100000", "0", None),
            ("", "", None),
        ] {
            let root = cgroups(&[("cpu.max", &format!("{quota} {period}\n"))]);
            assert_eq!(limit_in(&QUOTA, &root, "0::/\n"), cpus, "{quota} of {period}");
            // Version 1.
            let quota = if quota == "max" { "-1" } else { quota };
            let root =
                cgroups(&[("cpu/cpu.cfs_quota_us", quota), ("cpu/cpu.cfs_period_us", period)]);
            let memberships = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n";
            assert_eq!(limit_in(&QUOTA, &root, memberships), cpus, "{quota} of {period}");
        }
    }
}
