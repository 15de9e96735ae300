//! Snapshots of directories, which can be compared.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Everything that an archive restores of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Type and permissions.
    pub(crate) mode: u32,
    /// Time of modification: seconds and nanoseconds.
    pub(crate) mtime: (i64, i64),
    /// The content of a file or the target of a link.
    pub(crate) content: Vec<u8>,
    /// Allocated blocks of a file, which tell holes from zeros.
    pub(crate) blocks: u64,
    /// The first path of the same file, if it has several.
    pub(crate) same_as: Option<PathBuf>,
}

/// Returns the entries of `root` by their paths; the path of the root itself is empty.
pub(crate) fn of(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut files = HashMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let full = if path.as_os_str().is_empty() { root.to_owned() } else { root.join(&path) };
        let metadata = std::fs::symlink_metadata(&full).unwrap();
        let mut content = Vec::new();
        let mut blocks = 0;
        if metadata.is_dir() {
            let mut names: Vec<OsString> =
                std::fs::read_dir(&full).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            waiting.extend(names.into_iter().rev().map(|name| path.join(name)));
        } else if metadata.is_symlink() {
            content = std::fs::read_link(&full).unwrap().into_os_string().into_vec();
        } else if metadata.is_file() {
            content = std::fs::read(&full).unwrap();
            blocks = metadata.blocks();
        }
        let mut same_as = None;
        if !metadata.is_dir() && metadata.nlink() > 1 {
            let first = files.entry(metadata.ino()).or_insert_with(|| path.clone());
            same_as = Some(first.clone());
        }
        let entry = Seen {
            mode: metadata.mode(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            content,
            blocks,
            same_as,
        };
        seen.insert(path, entry);
    }
    seen
}

/// Like [`of`], without the time of the root, which an archive need not restore.
pub(crate) fn without_time_of_root(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = of(root);
    seen.get_mut(Path::new("")).unwrap().mtime = (0, 0);
    seen
}

/// Panics with the first few differences, if there are any.
#[track_caller]
pub(crate) fn assert_same(
    ours: &BTreeMap<PathBuf, Seen>,
    theirs: &BTreeMap<PathBuf, Seen>,
    what: &str,
) {
    let paths: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differences: Vec<String> = paths
        .into_iter()
        .filter(|path| ours.get(*path) != theirs.get(*path))
        .map(|path| {
            format!("{path:?}: {} but should be {}", shown(ours.get(path)), shown(theirs.get(path)))
        })
        .take(5)
        .collect();
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

fn shown(seen: Option<&Seen>) -> String {
    seen.map_or("missing".into(), |seen| {
        let Seen { mode, mtime, content, blocks, same_as } = seen;
        let start = content[..content.len().min(40)].escape_ascii();
        format!(
            "{mode:o} {mtime:?} {} bytes `{start}` in {blocks} blocks, same as {same_as:?}",
            content.len()
        )
    })
}
