//! Several archives unpacked into one directory, in random order and with random endings.

use std::collections::BTreeMap;
use std::path::Path;

use testkit::cases::{Named, check_all};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::random::Random;
use testkit::tools;
use testkit::wait;

use crate::ownership::importer;
use crate::ownership::place::Place;
use crate::ownership::writer::{End, Face, Job, Writer, assert_refused};

const ROUNDS: u64 = 40;

/// Number of archives in a round.
const WRITERS: usize = 3;

const IN_USE: &str = "another import or upload is writing to it";
const NOT_WHOLE: &str = "another process changed the directory";

/// Size of each file. Together they are more than the decoders buffer, so that the first ones are
/// unpacked before the last one has arrived.
const FILE_BYTES: u64 = 400_000;

/// System calls that rename a file, for strace; an architecture may lack the first one.
const RENAMES: &str = "?renameat,renameat2";

/// Prefix of the staging folders, whose content is not visible yet.
const STAGING: &str = ".cdi-staging-";

/// Contents of files by their paths.
type Files = BTreeMap<String, Vec<u8>>;

/// An archive, and what is in it.
struct Archive {
    files: Files,
    object: Vec<u8>,
}

/// Builds an archive of files that every archive has, and one that only this one has.
fn archive(number: usize) -> Archive {
    let names = ["a".to_owned(), "b".to_owned(), "d/e/f".to_owned(), format!("only-{number}")];
    let content = |index| disk::content((number * 10 + index) as u64, FILE_BYTES);
    let files: Files =
        names.into_iter().enumerate().map(|(index, name)| (name, content(index))).collect();
    let tree = tempfile::tempdir().or_fail("a folder");
    fill(tree.path(), &files);
    let path = tree.path().to_str().or_fail("a path of ASCII");
    let tar =
        tools::filter("tar", ["-c", "-C", path, "a", "b", "d", &format!("only-{number}")], b"");
    Archive { files, object: tools::filter("gzip", ["-1", "-c"], &tar) }
}

fn fill(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().or_fail("a folder")).or_fail(name);
        std::fs::write(path, bytes).or_fail(name);
    }
}

/// Returns the visible files of a directory, and whether there are staging folders.
fn seen(dir: &Path) -> (Files, bool) {
    let (mut files, mut has_staging) = (Files::new(), false);
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).or_fail("a folder") {
            let path = entry.or_fail("an entry").path();
            let name = path.strip_prefix(dir).or_fail("a path").to_str().or_fail("ASCII");
            if name.starts_with(STAGING) {
                has_staging = true;
            } else if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(name.to_owned(), std::fs::read(&path).or_fail(name));
            }
        }
    }
    (files, has_staging)
}

/// Removes the first file of an archive that is being unpacked; false if it is not there yet.
fn remove_unpacked(dir: &Path) -> bool {
    let names = std::fs::read_dir(dir).or_fail("the directory");
    let paths = names.map(|entry| entry.or_fail("an entry").path());
    paths
        .filter(|path| path.display().to_string().contains(STAGING))
        // Once the next file exists, the first one is complete.
        .filter(|staging| staging.join("b").exists())
        .any(|staging| std::fs::remove_file(staging.join("a")).is_ok())
}

/// Files that exist before the round: one that no archive has, and one that all of them replace.
fn before() -> Files {
    [("a", "old"), ("theirs", "not ours")]
        .map(|(name, bytes)| (name.to_owned(), bytes.as_bytes().to_vec()))
        .into()
}

#[test]
#[ignore = "slow: waits 11 s"]
fn every_archive_is_unpacked_completely_or_not_at_all() {
    let archives: Vec<Archive> = (0..WRITERS).map(archive).collect();
    check_all((0..ROUNDS).map(|seed| Named(format!("round {seed}"), seed)), |Named(_, seed)| {
        let place = Place::with_file();
        fill(&place.data(), &before());
        let round = Round {
            place,
            archives: &archives,
            expected: before(),
            owner: None,
            is_damaged: false,
            story: Vec::new(),
        };
        round.run(&mut Random::new(*seed));
    });
}

struct Round<'a> {
    place: Place,
    archives: &'a [Archive],
    expected: Files,
    owner: Option<usize>,
    /// Something else has removed what the owner had unpacked.
    is_damaged: bool,
    story: Vec<String>,
}

impl Round<'_> {
    fn run(mut self, random: &mut Random) {
        let mut turns: Vec<usize> = (0..WRITERS).flat_map(|writer| [writer, writer]).collect();
        random.shuffle(&mut turns);
        let mut writers: Vec<Option<Writer>> = (0..WRITERS).map(|_| None).collect();
        let mut started = [false; WRITERS];
        for number in turns {
            if random.one_in(8) && self.owner.is_some() {
                self.damage();
            }
            if std::mem::replace(&mut started[number], true) {
                if let Some(writer) = writers[number].take() {
                    let end = usize::try_from(random.below(4)).or_fail("a small number");
                    self.end(number, writer, End::ALL[end]);
                }
            } else {
                let face =
                    if random.one_in(2) { Face::Pod } else { Face::Command { force: false } };
                writers[number] = self.start(number, face);
            }
            self.check();
        }
    }

    fn start(&mut self, number: usize, face: Face) -> Option<Writer> {
        self.story.push(format!("{number} starts as {face:?}"));
        let job = Job {
            object: &self.archives[number].object,
            is_archive: true,
            root: self.place.root(),
            target: self.place.data(),
        };
        let writer = Writer::start(face, &job);
        assert_eq!(writer.has_taken(), self.owner.is_none(), "{:?}", self.story);
        if self.owner.is_some() {
            assert_refused(&writer.wait(), face, IN_USE);
            return None;
        }
        (self.owner, self.is_damaged) = (Some(number), false);
        Some(writer)
    }

    fn end(&mut self, number: usize, writer: Writer, end: End) {
        self.story.push(format!("{number}: {end:?}"));
        let finished = writer.end(end);
        let code = finished.code();
        let is_right = match end {
            End::Success if self.is_damaged => {
                matches!(code, 7 | 1) && finished.stderr.contains(NOT_WHOLE)
            }
            End::Success => code == 0,
            End::Failure => matches!(code, 4 | 1),
            End::Terminated => code == 143,
            End::Killed => code == 137,
        };
        assert!(is_right, "{:?}: {finished:?}", self.story);
        self.owner = None;
        if end == End::Success && !self.is_damaged {
            self.expected.extend(self.archives[number].files.clone());
        }
        let (_, has_staging) = seen(&self.place.data());
        assert!(!has_staging || end == End::Killed, "{:?}", self.story);
    }

    /// Removes a file that is being unpacked, as an unrelated program might.
    fn damage(&mut self) {
        self.story.push("something else removes a file".to_owned());
        // The file appears a moment after its staging folder.
        let complaint = || format!("nothing is unpacked: {:?}", self.story);
        wait::until(complaint, || self.is_damaged || remove_unpacked(&self.place.data()));
        self.is_damaged = true;
    }

    fn check(&self) {
        assert!(seen(&self.place.data()).0 == self.expected, "{:?}", self.story);
    }
}

/// strace kills the program at each rename in turn; all of its renames belong to the commit.
#[test]
#[ignore = "tools: strace"]
fn a_kill_between_two_renames_loses_no_file_and_a_retry_completes_the_archive() {
    let archive = archive(0);
    let place = Place::with_file();
    let unpack = |words: &[&str]| {
        let program = importer(["unpack", "-q"]).args(words);
        program.arg(place.root().join("archive.tar.gz")).arg(place.data())
    };
    let source = place.root().join("archive.tar.gz");
    std::fs::write(&source, &archive.object).or_fail("an archive");
    let old: Files =
        archive.files.keys().map(|name| (name.clone(), name.clone().into_bytes())).collect();
    for rename in 1.. {
        fill(&place.data(), &old);
        let inject = format!("inject={RENAMES}:signal=KILL:when={rename}");
        let finished = unpack(&["--overwrite"])
            .under(
                "strace",
                ["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={RENAMES}"), "-e", &inject],
            )
            .run();
        let (files, _) = seen(&place.data());
        for (name, old) in &old {
            let there = files.get(name);
            assert!(
                there == Some(old) || there == archive.files.get(name),
                "killed at rename {rename}: {name} is lost"
            );
        }
        if finished.code() == 0 {
            assert!(rename > old.len(), "only {} renames", rename - 1);
            assert!(files == archive.files, "the last attempt must unpack the whole archive");
            return;
        }
        assert_eq!(finished.code(), 137, "{finished:?}");
        // Whoever retries may not know of the kill, and may leave out `--overwrite`.
        unpack(&[]).run().assert_failure(7, "it exists already: pass --overwrite");
        assert!(seen(&place.data()).0 == files, "a refusal has changed something");
        unpack(&["--overwrite"]).run().assert_success("a retry");
        let (files, has_staging) = seen(&place.data());
        assert!(
            files == archive.files && !has_staging,
            "killed at rename {rename}, and not completed"
        );
    }
}
