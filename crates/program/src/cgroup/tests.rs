use super::*;

/// Creates a directory with these files.
pub(crate) fn cgroups(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// The tightest limit, with the hierarchies mounted at `root`.
pub(crate) fn limit_in<T: Ord>(
    controller: &CgroupController<T>,
    root: &tempfile::TempDir,
    memberships: &str,
) -> Option<T> {
    tightest_in_root(controller, root.path(), memberships)
}

#[test]
fn the_tightest_limit_of_all_parents_applies() {
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
fn memory_limits_of_cgroup_version_1_are_read_too() {
    for (text, bytes) in [("268435456\n", Some(256 << 20)), ("9223372036854771712\n", None)] {
        let root = cgroups(&[("memory/memory.limit_in_bytes", text)]);
        let memberships = "4:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n";
        assert_eq!(limit_in(&MEMORY, &root, memberships), bytes);
    }
}

#[test]
fn malformed_memberships_give_no_limit() {
    let root = cgroups(&[]);
    for text in ["", "x", "0:", "0::relative", "::", "a:b:c:d"] {
        assert_eq!(limit_in(&MEMORY, &root, text), None, "{text}");
    }
}
