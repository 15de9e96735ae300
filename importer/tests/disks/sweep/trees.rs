//! Archives while system calls fail: the directory has all of the tree, or is as it was, or the
//! error says that it may hold a part.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use testkit::fail::OrFail;
use testkit::process::Program;
use testkit::tmpfs::fast_folder;
use testkit::tools;

use crate::sweep::victim::{IMPORTER, MOST, sweep};

/// Prefix of the staging folders, whose content is not visible yet.
const STAGING: &str = ".cdi-staging-";

/// The lock file, which has the same prefix. It may stay: the next attempt uses it again.
const LOCK: &str = ".cdi-staging-lock";

/// Part of the error of a commit that failed after its first rename.
const PARTLY: &str = "the directory may contain part of the archive";

/// An entry of a tree: mode, time, content.
type Entry = (u32, i64, Vec<u8>);

/// All entries by their paths, and whether a staging folder is left.
type Tree = (BTreeMap<String, Entry>, bool);

/// A directory, and an archive that replaces, merges with and adds entries of each kind.
pub(crate) struct Trees {
    folder: tempfile::TempDir,
}

impl Trees {
    pub(crate) fn new() -> Self {
        let folder = fast_folder();
        let script = "mkdir -p old/etc/conf.d tree/etc/conf.d tree/new/below &&
            echo theirs > old/theirs && echo old > old/etc/motd && touch -d @1000000 old/* old/etc/* old/etc old &&
            echo new > tree/etc/motd && echo deep > tree/new/below/deep && ln -s ../etc tree/new/link && ln tree/etc/motd tree/new/twin &&
            truncate -s 1M tree/sparse && echo end >> tree/sparse && chmod 2750 tree/etc && chmod 500 tree/new/below &&
            touch -h -d @2000000 tree/sparse tree/etc/motd tree/new/link tree/new/below/deep &&
            touch -d @3000000 tree/new/below tree/new tree/etc/conf.d tree/etc && chmod 711 tree && touch -d @4000000 tree &&
            tar -cSf tree.tar -C tree . && cp -a old whole && tar -xpf tree.tar -C whole";
        let script = format!("cd {} && {script}", folder.path().display());
        let status = std::process::Command::new("/bin/sh").args(["-ec", &script]).status();
        assert!(status.or_fail("sh").success(), "the trees of a test");
        tools::find("tar");
        Self { folder }
    }

    pub(crate) fn archive(&self) -> std::path::PathBuf {
        self.folder.path().join("tree.tar")
    }

    /// Fills `dir` with what is there before the archive is unpacked.
    pub(crate) fn put_old(&self, dir: &Path) {
        let old = self.folder.path().join("old").join(".");
        tools::run("cp", ["-a".as_ref(), old.as_os_str(), dir.as_os_str()]);
    }

    /// Fails the test unless `dir` has all of the archive.
    #[track_caller]
    pub(crate) fn assert_whole(&self, dir: &Path, said: &str) {
        let (whole, _) = seen(&self.folder.path().join("whole"));
        let (found, has_staging) = seen(dir);
        assert!(found == whole, "not all of the archive: {}: {said}", difference(&found, &whole));
        assert!(
            !has_staging || said.contains("could not remove"),
            "a staging folder is left and not mentioned: {said}"
        );
    }

    /// Fails the test unless `dir` is as it was before.
    #[track_caller]
    pub(crate) fn assert_old(&self, dir: &Path, said: &str) {
        let (mut old, _) = seen(&self.folder.path().join("old"));
        let (mut found, _) = seen(dir);
        for (_, time, _) in [&mut old, &mut found].into_iter().filter_map(|tree| tree.get_mut("")) {
            // A staging folder that comes and goes changes the time of the directory.
            *time = 0;
        }
        assert!(found == old, "a part of the archive: {}: {said}", difference(&found, &old));
    }

    /// Fails the test unless each file is the old or the new one, and no old file is lost.
    #[track_caller]
    pub(crate) fn assert_pieces(&self, dir: &Path, said: &str) {
        let [whole, old] = ["whole", "old"].map(|name| seen(&self.folder.path().join(name)).0);
        let found = seen(dir).0;
        for (name, (_, _, bytes)) in &found {
            let is_of = |tree: &BTreeMap<String, Entry>| {
                tree.get(name).is_some_and(|entry| entry.2 == *bytes)
            };
            assert!(is_of(&whole) || is_of(&old), "{name} is neither old nor new: {said}");
        }
        let lost = old.keys().find(|name| !found.contains_key(*name));
        assert!(lost.is_none(), "{lost:?} is lost: {said}");
    }
}

fn difference(found: &BTreeMap<String, Entry>, expected: &BTreeMap<String, Entry>) -> String {
    let names = found.keys().chain(expected.keys());
    let show = |entry: Option<&Entry>| {
        entry.map(|(mode, time, bytes)| format!("{mode:o} {time} {} bytes", bytes.len()))
    };
    let differing = names.filter(|name| found.get(*name) != expected.get(*name));
    let shown: Vec<String> = differing
        .map(|name| format!("{name:?} {:?} {:?}", show(found.get(name)), show(expected.get(name))))
        .collect();
    shown.join(", ")
}

fn seen(dir: &Path) -> Tree {
    let (mut entries, mut has_staging) = (BTreeMap::new(), false);
    let mut paths = vec![dir.to_owned()];
    while let Some(path) = paths.pop() {
        let name = path.strip_prefix(dir).or_fail("a path").to_string_lossy().into_owned();
        let metadata = path.symlink_metadata().or_fail(&name);
        let bytes = if metadata.is_dir() {
            for entry in std::fs::read_dir(&path).or_fail(&name) {
                let entry = entry.or_fail("an entry");
                let name = entry.file_name();
                if name.to_string_lossy().starts_with(STAGING) {
                    has_staging |= name != LOCK;
                } else {
                    paths.push(entry.path());
                }
            }
            Vec::new()
        } else if metadata.is_symlink() {
            std::fs::read_link(&path).or_fail(&name).into_os_string().into_encoded_bytes()
        } else {
            std::fs::read(&path).or_fail(&name)
        };
        entries.insert(name, (metadata.mode(), metadata.mtime(), bytes));
    }
    (entries, has_staging)
}

#[test]
#[ignore = "slow: 6 s of CPU time"]
fn unpacking_is_complete_undone_or_reported_as_partial_whatever_fails() {
    let trees = Trees::new();
    sweep("unpack", MOST, |victim| {
        let dir = fast_folder();
        trees.put_old(dir.path());
        let program = Program::new(IMPORTER).args(["unpack", "-q", "--overwrite"]);
        let finished = victim.program(program.arg(trees.archive()).arg(dir.path())).run();
        let has_succeeded = victim.has_succeeded(&finished);
        if victim.has_aborted(&finished) {
            trees.assert_pieces(dir.path(), &finished.stderr);
        } else {
            check(&trees, dir.path(), has_succeeded, &finished.stderr);
        }
    });
}

pub(crate) fn check(trees: &Trees, dir: &Path, has_succeeded: bool, said: &str) {
    if has_succeeded {
        trees.assert_whole(dir, said);
    } else if said.contains(PARTLY) {
        trees.assert_pieces(dir, said);
    } else {
        trees.assert_old(dir, said);
    }
}
