//! Several writers of one file or device, in random order and with random endings.

use std::path::Path;

use testkit::cases::{Named, check_all};
use testkit::disk;
use testkit::fail::OrFail;
use testkit::loopdev::DIRT;
use testkit::random::Random;

use crate::ownership::place::{DISK_BYTES, Disk, HELD_BYTES, Place, disks};
use crate::ownership::writer::{End, Face, Job, Writer, assert_refused, put};

const ROUNDS: u64 = 60;

/// Number of writers in a round. One more disk is that of an unrelated program.
const WRITERS: u64 = 3;

const IN_USE: &str = "another import or upload is writing to it";
const BUSY: &str = "device or resource busy";
const REPLACED: &str = "it was removed or replaced in the meantime";

#[test]
#[ignore = "slow: waits 13 s"]
fn nothing_complete_is_lost_and_nothing_incomplete_looks_complete() {
    let folder = tempfile::tempdir().or_fail("a folder");
    let disks = disks(folder.path(), WRITERS + 1);
    check_all((0..ROUNDS).map(|seed| Named(format!("round {seed}"), seed)), |Named(_, seed)| {
        let mut random = Random::new(*seed);
        let is_device = random.one_in(3);
        let place = if is_device { Place::with_device() } else { Place::with_file() };
        std::fs::write(place.data().join("neighbour"), "not ours").or_fail("a neighbour");
        let round = Round { place, disks: &disks, model: Model::default(), story: Vec::new() };
        if random.one_in(5) {
            round.together(&mut random);
        } else {
            round.run(&mut random);
        }
    });
}

/// The state that the target must be in.
#[derive(Debug, Default)]
struct Model {
    /// Number of the complete disk at the target.
    complete: Option<usize>,
    /// Number of the writer that owns the target.
    owner: Option<usize>,
    /// True if there is a target: complete, the owner's partial file, or left by a killed writer.
    exists: bool,
}

struct Round<'d> {
    place: Place,
    disks: &'d [Disk],
    model: Model,
    story: Vec<String>,
}

impl Round<'_> {
    /// Starts and ends the writers in random order.
    fn run(mut self, random: &mut Random) {
        let count = 2 + random.below(WRITERS - 1);
        let mut turns: Vec<usize> =
            (0..count).flat_map(|writer| [writer, writer]).map(to_usize).collect();
        random.shuffle(&mut turns);
        let mut writers: Vec<Option<Writer>> = (0..count).map(|_| None).collect();
        let mut started = vec![false; to_usize(count)];
        for number in turns {
            if self.place.device.is_none() && random.one_in(6) {
                self.usurp();
            }
            if std::mem::replace(&mut started[number], true) {
                if let Some(writer) = writers[number].take() {
                    self.end(number, writer, End::ALL[to_usize(random.below(4))]);
                }
            } else {
                writers[number] = self.start(number, any_face(random));
            }
            self.check();
        }
    }

    /// Starts all writers at once: one of them gets the target, the others are refused.
    fn together(mut self, random: &mut Random) {
        let faces = [Face::Command { force: true }, Face::Pod];
        let faces: Vec<Face> = (0..WRITERS).map(|_| faces[to_usize(random.below(2))]).collect();
        let start = |(number, face): (usize, &Face)| (number, *face, self.launch(number, *face));
        let writers: Vec<_> = faces.iter().enumerate().map(start).collect();
        let (mut took, refused): (Vec<_>, Vec<_>) =
            writers.into_iter().partition(|(_, _, writer)| writer.has_taken());
        self.story.push(format!("{} of {faces:?} took it", took.len()));
        for (_, face, writer) in refused {
            assert_refused(&writer.wait(), face, self.in_use());
        }
        let (number, _, writer) = took.pop().or_fail("one writer is not refused");
        assert!(took.is_empty(), "{:?}", self.story);
        self.model.owner = Some(number);
        self.end(number, writer, End::Success);
        self.check();
    }

    fn launch(&self, number: usize, face: Face) -> Writer {
        let job = Job {
            object: &self.disks[number].object,
            is_archive: false,
            root: self.place.root(),
            target: self.place.target(),
        };
        Writer::start(face, &job)
    }

    fn start(&mut self, number: usize, face: Face) -> Option<Writer> {
        self.story.push(format!("{number} starts as {face:?}"));
        let writer = self.launch(number, face);
        let may_replace = face != Face::Command { force: false } || self.place.device.is_some();
        let refusal = if !may_replace && self.model.exists {
            Some("file exists: pass --force to replace it")
        } else {
            self.model.owner.map(|_| self.in_use())
        };
        assert_eq!(writer.has_taken(), refusal.is_none(), "{:?}", self.story);
        if let Some(sentence) = refusal {
            assert_refused(&writer.wait(), face, sentence);
            return None;
        }
        self.model = Model { complete: None, owner: Some(number), exists: true };
        Some(writer)
    }

    fn end(&mut self, number: usize, writer: Writer, end: End) {
        self.story.push(format!("{number}: {end:?}"));
        let finished = writer.end(end);
        let is_owner = self.model.owner == Some(number);
        let code = finished.code();
        let is_right = match end {
            End::Success if is_owner => code == 0,
            End::Success => matches!(code, 7 | 1) && finished.stderr.contains(REPLACED),
            End::Failure => matches!(code, 4 | 1),
            End::Terminated => code == 143,
            End::Killed => code == 137,
        };
        assert!(is_right, "{:?}: {finished:?}", self.story);
        if is_owner {
            self.model = Model {
                complete: (end == End::Success).then_some(number),
                owner: None,
                exists: matches!(end, End::Success | End::Killed),
            };
        }
    }

    /// Replaces the target by a complete disk, as an unrelated program might.
    fn usurp(&mut self) {
        self.story.push("something else takes the place".to_owned());
        let bytes = std::fs::read(&self.disks[to_usize(WRITERS)].raw).or_fail("a disk");
        put(&self.place.target(), &bytes);
        self.model = Model { complete: Some(to_usize(WRITERS)), owner: None, exists: true };
    }

    fn check(&self) {
        let target = self.place.target();
        let story = &self.story;
        assert!(self.place.device.is_some() || target.exists() == self.model.exists, "{story:?}");
        match self.model.complete {
            Some(number) => disk::assert_same(
                &target,
                &self.disks[number].raw,
                DISK_BYTES,
                &format!("{story:?}"),
            ),
            None if target.exists() => assert!(is_incomplete(&target), "{story:?}"),
            None => {}
        }
        if self.place.device.is_none() {
            let names = std::fs::read_dir(self.place.data()).or_fail("the folder").count();
            assert_eq!(names, 1 + usize::from(self.model.exists), "{story:?}");
            let neighbour =
                std::fs::read(self.place.data().join("neighbour")).or_fail("the neighbour");
            assert_eq!(neighbour, b"not ours", "{story:?}");
        }
    }

    fn in_use(&self) -> &'static str {
        if self.place.device.is_some() { BUSY } else { IN_USE }
    }
}

/// True if no part of a disk can be seen. A device that was never touched is full of dirt.
fn is_incomplete(target: &Path) -> bool {
    disk::begins_with_only(&[0], target, HELD_BYTES)
        || disk::begins_with_only(&[DIRT], target, HELD_BYTES)
}

fn any_face(random: &mut Random) -> Face {
    match random.below(4) {
        0 => Face::Command { force: false },
        1 | 2 => Face::Command { force: true },
        _ => Face::Pod,
    }
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).or_fail("a small number")
}
