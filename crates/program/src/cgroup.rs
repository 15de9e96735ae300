//! The limits that the cgroups of this process set: limits that the kernel enforces, but that no system call tells.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of one controller, and where it is written down.
pub(crate) struct CgroupController<T> {
    /// The name of the controller in cgroup v1.
    pub(crate) name: &'static str,
    /// Reads the limit in the folder of a cgroup, or finds none.
    pub(crate) read_v2: fn(&Path) -> Option<T>,
    /// Reads the limit in the folder of a cgroup of version 1.
    pub(crate) read_v1: fn(&Path) -> Option<T>,
}

/// The memory that a cgroup may have, in bytes.
const MEMORY: CgroupController<u64> = CgroupController {
    name: "memory",
    // `max` where nothing limits.
    read_v2: |cgroup| read_number(&cgroup.join("memory.max")),
    // The largest multiple of a page that fits 63 bits where nothing limits: more than any machine has.
    read_v1: |cgroup| read_number(&cgroup.join("memory.limit_in_bytes")).filter(|bytes| *bytes < 1 << 60),
};

/// Bytes of memory that this process may have, page cache and all; `None` if nothing limits them.
pub fn memory_bytes() -> Option<u64> {
    tightest_limit(&MEMORY)
}

/// The tightest limit of this process.
pub(crate) fn tightest_limit<T: Ord>(controller: &CgroupController<T>) -> Option<T> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    tightest_in_root(controller, Path::new("/sys/fs/cgroup"), &memberships)
}

/// The tightest limit of the cgroups in `memberships` (the text of `/proc/self/cgroup`: lines `id:controllers:path`) and of
/// all their parents, with hierarchies mounted at `root`. `None` when nothing limits.
fn tightest_in_root<T: Ord>(controller: &CgroupController<T>, root: &Path, memberships: &str) -> Option<T> {
    memberships.lines().filter_map(|line| in_hierarchy(controller, root, line)).min()
}

fn in_hierarchy<T: Ord>(controller: &CgroupController<T>, root: &Path, membership: &str) -> Option<T> {
    let mut parts = membership.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    // cgroup v2 has one hierarchy, with an empty list of controllers; v1 has one a controller or two.
    let (mount, read): (PathBuf, fn(&Path) -> Option<T>) = if controllers.is_empty() {
        (root.to_owned(), controller.read_v2)
    } else if controllers.split(',').any(|name| name == controller.name) {
        (root.join(controller.name), controller.read_v1)
    } else {
        return None;
    };
    // Without a cgroup namespace the path is the node's and not visible here; what is mounted at the top is
    // then our own cgroup. Reading every parent covers both cases, and limits set on the pod.
    let relative = Path::new(path).strip_prefix("/").ok()?;
    relative.ancestors().filter_map(|parent| read(&mount.join(parent))).min()
}

fn read_number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder with these files.
    pub(crate) fn cgroups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    /// The tightest limit, with hierarchies mounted at `root`.
    pub(crate) fn limit_in<T: Ord>(
        controller: &CgroupController<T>,
        root: &tempfile::TempDir,
        memberships: &str,
    ) -> Option<T> {
        tightest_in_root(controller, root.path(), memberships)
    }

    #[test]
    fn the_tightest_parent_decides() {
        let root = cgroups(&[
            ("pod/memory.max", "600000000\n"),
            ("pod/container/memory.max", "max\n"),
            ("pod/container/child/memory.max", "700000000\n"),
        ]);
        for path in ["container/child", "container/gone/away"] {
            let membership = format!("0::/pod/{path}\n");
            assert_eq!(limit_in(&MEMORY, &root, &membership), Some(600_000_000));
        }
        assert_eq!(limit_in(&MEMORY, &root, "0::/\n"), None);
    }

    #[test]
    fn the_memory_of_version_1_is_read_too() {
        for (text, bytes) in [("268435456\n", Some(256 << 20)), ("9223372036854771712\n", None)] {
            let root = cgroups(&[("memory/memory.limit_in_bytes", text)]);
            let memberships = "4:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n";
            assert_eq!(limit_in(&MEMORY, &root, memberships), bytes);
        }
    }

    #[test]
    fn nonsense_limits_nothing() {
        let root = cgroups(&[]);
        for text in ["", "x", "0:", "0::relative", "::", "a:b:c:d"] {
            assert_eq!(limit_in(&MEMORY, &root, text), None, "{text}");
        }
    }
}
