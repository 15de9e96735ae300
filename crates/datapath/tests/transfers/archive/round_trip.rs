//! Random trees, packed by GNU tar, bsdtar and Python in every dialect that they support.

use std::fmt;
use std::path::Path;

use testkit::cases::check_all;
use testkit::random::Random;
use testkit::tools;

use crate::archive::snapshot::{self, assert_same, without_time_of_root};
use crate::archive::{gnu_unpacks, unpack_to};
use crate::common::fast_folder;
use testkit::trees::{Reach, grow};

const TREES: u64 = 10_000;
/// Trees in one archive: most of the time is spent on starting programs.
const BATCH: u64 = 25;

#[derive(Debug, Clone, Copy)]
enum Writer {
    Gnu(&'static [&'static str]),
    Bsd(&'static str),
    Python(&'static str),
}

/// For times before 1970 bsdtar writes 0 or something that is not a number, and it writes wrong
/// names for sparse files whose names are not UTF-8.
const MODERN: Reach = Reach { has_any_bytes: false, has_negative_times: false, ..Reach::ANY };
const USTAR: Reach = Reach {
    path_bytes: 190,
    name_bytes: 50,
    target_bytes: 99,
    has_any_bytes: true,
    has_negative_times: false,
};
const V7: Reach = Reach {
    path_bytes: 98,
    name_bytes: 98,
    target_bytes: 98,
    has_any_bytes: true,
    has_negative_times: false,
};

const WRITERS: [(Writer, Reach); 16] = [
    (Writer::Gnu(&["--format=gnu"]), Reach::ANY),
    (Writer::Gnu(&["--format=gnu", "-S"]), Reach::ANY),
    (Writer::Gnu(&["--format=oldgnu"]), Reach::ANY),
    (Writer::Gnu(&["--format=oldgnu", "-S"]), Reach::ANY),
    (Writer::Gnu(&["--format=pax"]), Reach::ANY),
    (Writer::Gnu(&["--format=pax", "-S", "--sparse-version=0.0"]), Reach::ANY),
    (Writer::Gnu(&["--format=pax", "-S", "--sparse-version=0.1"]), Reach::ANY),
    (Writer::Gnu(&["--format=pax", "-S", "--sparse-version=1.0"]), Reach::ANY),
    (Writer::Gnu(&["--format=ustar"]), USTAR),
    (Writer::Gnu(&["--format=v7"]), V7),
    (Writer::Bsd("pax"), MODERN),
    (Writer::Bsd("gnutar"), MODERN),
    (Writer::Bsd("ustar"), USTAR),
    (Writer::Python("PAX_FORMAT"), Reach::ANY),
    (Writer::Python("GNU_FORMAT"), Reach::ANY),
    (Writer::Gnu(&["--format=pax", "--pax-option=delete=ctime,delete=atime"]), Reach::ANY),
];

impl Writer {
    /// Packs the directory `root`.
    fn pack(self, root: &Path) -> Vec<u8> {
        let root = root.to_str().unwrap();
        match self {
            Self::Gnu(flags) => {
                let fixed = ["-c", "-C", root, "."];
                run_in_c("tar", flags.iter().copied().chain(fixed))
            }
            Self::Bsd(format) => {
                run_in_c("bsdtar", ["-c", "--format", format, "-C", root, "-f", "-", "."])
            }
            Self::Python(format) => {
                let script = format!(
                    "import sys, tarfile\n\
                     t = tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=tarfile.{format}, \
                     errors='surrogateescape')\n\
                     t.add(sys.argv[1], arcname='.')\n\
                     t.close()"
                );
                run_in_c("python3", ["-c", &script, root])
            }
        }
    }
}

fn run_in_c<'a>(program: &str, args: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let output = std::process::Command::new(tools::find(program))
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {complaint}");
    output.stdout
}

struct Case {
    number: u64,
    writer: Writer,
    reach: Reach,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {} by {:?}", self.number, self.writer)
    }
}

fn check(case: &Case) {
    let folder = fast_folder();
    let [source, ours, theirs] = ["source", "ours", "theirs"].map(|name| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    });
    let mut random = Random::new(case.number);
    for tree in 0..BATCH {
        let name = format!("tree-{tree}");
        let root = source.join(&name);
        std::fs::create_dir(&root).unwrap();
        grow(&root, &mut random, case.reach, "./".len() + name.len());
    }
    let tar = case.writer.pack(&source);
    assert!(gnu_unpacks(&theirs, &tar), "GNU tar refuses what {:?} wrote", case.writer);
    let report = unpack_to(&ours, &tar).unwrap();
    let seen = snapshot::of(&ours);
    let mut expected = snapshot::of(&theirs);
    if let Writer::Bsd(format) = case.writer {
        // bsdtar writes a whole directory before it enters the first subdirectory and returns to
        // the others later. By then GNU tar has restored their times and modes, and the later
        // entries change them.
        for (path, entry) in snapshot::of(&source) {
            if path.as_os_str().is_empty()
                || source.join(&path).is_dir() && !source.join(&path).is_symlink()
            {
                let nanoseconds = if format == "pax" { entry.mtime.1 } else { 0 };
                let directory = expected.get_mut(&path).unwrap();
                directory.mtime = (entry.mtime.0, nanoseconds);
                directory.mode = entry.mode;
            }
        }
    }
    assert_same(&seen, &expected, &case.to_string());
    assert_eq!(report.entries, seen.len() as u64);
    assert_eq!(report.source_bytes, tar.len() as u64);
}

#[test]
#[ignore = "server: bsdtar"]
fn random_trees_are_unpacked_as_by_gnu_tar() {
    let cases = (0..TREES / BATCH).zip(WRITERS.into_iter().cycle());
    check_all(cases.map(|(number, (writer, reach))| Case { number, writer, reach }), check);
}

#[test]
fn directories_without_an_entry_are_created() {
    let folder = fast_folder();
    let [source, ours, theirs] = ["source", "ours", "theirs"].map(|name| folder.path().join(name));
    std::fs::create_dir_all(source.join("a/b/c")).unwrap();
    std::fs::write(source.join("a/b/c/file"), "content").unwrap();
    std::fs::write(source.join("a/other"), "").unwrap();
    std::fs::create_dir_all(&ours).unwrap();
    std::fs::create_dir_all(&theirs).unwrap();
    let source = source.to_str().unwrap();
    let tar = run_in_c("tar", ["-c", "-C", source, "a/b/c/file", "a/other"]);
    assert!(gnu_unpacks(&theirs, &tar));
    unpack_to(&ours, &tar).unwrap();
    let modes = |root: &Path| {
        let seen = without_time_of_root(root).into_iter();
        seen.map(|(path, seen)| (path, seen.mode)).collect::<Vec<_>>()
    };
    assert_eq!(modes(&ours), modes(&theirs));
    assert_eq!(std::fs::read(ours.join("a/b/c/file")).unwrap(), b"content");
}
