//! Archives whose entries replace each other: an archive that we accept must give the same files
//! as with GNU tar.

use proptest::prelude::*;

use crate::archive::tape::Tape;
use crate::archive::{gnu_unpacks, snapshot, unpack_to};
use crate::common::fast_folder;

#[derive(Debug, Clone)]
enum Step {
    File(String, u8),
    Directory(String, u32),
    Symlink(String, String),
    HardLink(String, String),
}

/// Few names, so that many entries meet.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a", "b", "a/x", "a/y", "b/x", "./a", "a/", "a/x/deep", "c/d/e", "./b//x", ".",
    ])
    .prop_map(str::to_owned)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (name(), 0u8..4).prop_map(|(name, blocks)| Step::File(name, blocks)),
        3 => (name(), prop::sample::select(vec![0o755, 0o700, 0o1777]))
            .prop_map(|(name, mode)| Step::Directory(name, mode)),
        1 => (name(), name()).prop_map(|(name, target)| Step::Symlink(name, target)),
        // GNU tar does not ignore a slash at the end of a file name.
        2 => (name(), name()).prop_map(|(name, target)| {
            Step::HardLink(name, target.trim_end_matches('/').to_owned())
        }),
    ]
}

fn tar(steps: &[Step]) -> Vec<u8> {
    let mut tape = Tape::default();
    for (number, step) in (0u8..).zip(steps) {
        tape = match step {
            Step::File(name, blocks) => {
                tape.file(name, &vec![b'0' + number; usize::from(*blocks) * 300])
            }
            Step::Directory(name, mode) => tape.directory(name, *mode),
            Step::Symlink(name, target) => tape.symlink(name, target),
            Step::HardLink(name, target) => tape.hard_link(name, target),
        };
    }
    tape.end()
}

/// Returns the entries without the times of directories. GNU tar restores such a time before the
/// last entry of the directory is extracted; we do it afterwards.
fn without_times_of_directories(
    root: &std::path::Path,
) -> Vec<(std::path::PathBuf, snapshot::Seen)> {
    let seen = snapshot::of(root).into_iter();
    seen.map(|(path, mut entry)| {
        if entry.mode & 0o170_000 == 0o040_000 {
            entry.mtime = (0, 0);
        }
        (path, entry)
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "slow: waits 7 s"]
    fn later_entries_replace_earlier_ones_as_in_gnu_tar(
        first in prop::collection::vec(step(), 1..7),
        second in prop::collection::vec(step(), 0..4),
    ) {
        let (ours, theirs) = (fast_folder(), fast_folder());
        let has_symlinks = first.iter().any(|step| matches!(step, Step::Symlink(..)));
        for (steps, is_first) in [(&first, true), (&second, false)] {
            let archive = tar(steps);
            if has_symlinks && !is_first {
                // GNU tar follows symbolic links that existed before; we replace them.
                break;
            }
            let before = without_times_of_directories(ours.path());
            if unpack_to(ours.path(), &archive).is_err() {
                prop_assert_eq!(without_times_of_directories(ours.path()), before);
                break;
            }
            if !gnu_unpacks(theirs.path(), &archive) {
                // If a directory is only implied by a name, we replace an existing file with it;
                // GNU tar does not.
                prop_assert!(!is_first, "GNU tar refuses it");
                break;
            }
            prop_assert_eq!(
                without_times_of_directories(ours.path()),
                without_times_of_directories(theirs.path())
            );
        }
    }
}
