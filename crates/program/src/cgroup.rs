//! Reads the limits that cgroups set for this process. The kernel enforces these limits, but no
//! system call returns them.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of one cgroup controller, and the functions that read it.
pub(crate) struct CgroupController<T> {
    /// The name of the controller in cgroup v1.
    pub(crate) name: &'static str,
    /// Reads the limit from a cgroup v2 directory; returns `None` if no limit is set there.
    pub(crate) read_v2: fn(&Path) -> Option<T>,
    /// Reads the limit from a cgroup v1 directory; returns `None` if no limit is set there.
    pub(crate) read_v1: fn(&Path) -> Option<T>,
}

/// The memory limit of a cgroup in bytes.
const MEMORY: CgroupController<u64> = CgroupController {
    name: "memory",
    // Without a limit the file contains `max`, which does not parse as a number.
    read_v2: |cgroup| read_number(&cgroup.join("memory.max")),
    // Without a limit the file contains the largest multiple of the page size below 2^63. No
    // machine has 2^60 bytes of memory, so such values count as no limit.
    read_v1: |cgroup| {
        read_number(&cgroup.join("memory.limit_in_bytes")).filter(|bytes| *bytes < 1 << 60)
    },
};

/// Returns the memory in bytes that this process may use, including page cache, or `None` if there
/// is no limit.
pub fn memory_bytes() -> Option<u64> {
    tightest_limit(&MEMORY)
}

/// Returns the tightest limit that applies to this process.
pub(crate) fn tightest_limit<T: Ord>(controller: &CgroupController<T>) -> Option<T> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    tightest_in_root(controller, Path::new("/sys/fs/cgroup"), &memberships)
}

/// Returns the tightest limit of the cgroups in `memberships` and of all their parents, or `None`
/// if there is no limit. The hierarchies are mounted at `root`. `memberships` is the content of
/// `/proc/self/cgroup`, with lines of the form `id:controllers:path`.
fn tightest_in_root<T: Ord>(
    controller: &CgroupController<T>,
    root: &Path,
    memberships: &str,
) -> Option<T> {
    memberships.lines().filter_map(|line| in_hierarchy(controller, root, line)).min()
}

fn in_hierarchy<T: Ord>(
    controller: &CgroupController<T>,
    root: &Path,
    membership: &str,
) -> Option<T> {
    let mut parts = membership.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    // cgroup v2 has a single hierarchy with an empty controller list. v1 has many hierarchies,
    // each with one or two controllers.
    let (mount, read): (PathBuf, fn(&Path) -> Option<T>) = if controllers.is_empty() {
        (root.to_owned(), controller.read_v2)
    } else if controllers.split(',').any(|name| name == controller.name) {
        (root.join(controller.name), controller.read_v1)
    } else {
        return None;
    };
    // Without a cgroup namespace, the path is relative to the node's hierarchy and not visible
    // here; the mount point then shows our own cgroup. Reading every parent covers both cases, and
    // also limits set on the pod.
    let relative = Path::new(path).strip_prefix("/").ok()?;
    relative.ancestors().filter_map(|parent| read(&mount.join(parent))).min()
}

fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod tests;
