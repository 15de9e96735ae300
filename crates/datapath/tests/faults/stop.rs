//! Somebody asks the transfer to stop.

use std::sync::Arc;
use std::time::Duration;

use datapath::observe::{Observer, Phase};
use datapath::options::{Payload, Reading, Writing};
use datapath::{Error, transfer};
use testkit::random::Random;
use tokio_util::sync::CancellationToken;

use crate::common::objects::objects;
use crate::common::{Memory, fast_folder, file};

/// Cancels when the transfer gets to a point.
struct StopAt {
    point: Point,
    stop: CancellationToken,
}

#[derive(Clone, Copy, PartialEq)]
enum Point {
    SourceByte(u64),
    Phase(Phase),
}

impl Observer for StopAt {
    fn phase(&self, phase: Phase) {
        if self.point == Point::Phase(phase) {
            self.stop.cancel();
        }
    }

    fn source_position(&self, position: u64, _total: Option<u64>) {
        if matches!(self.point, Point::SourceByte(at) if at <= position) {
            self.stop.cancel();
        }
    }
}

fn stopping_at(point: Point) -> Reading {
    let stop = CancellationToken::new();
    Reading {
        observer: Arc::new(StopAt {
            point,
            stop: stop.clone(),
        }),
        stop,
        ..Reading::default()
    }
}

#[test]
fn a_stop_at_any_point_leaves_nothing() {
    for object in objects() {
        let length = object.bytes.len() as u64;
        let bytes = (0..=8).map(|eighth| Point::SourceByte(length * eighth / 8));
        let phases = [Phase::Info, Phase::Transfer, Phase::Resize].map(Point::Phase);
        for point in bytes.chain(phases) {
            let folder = fast_folder();
            let target = file(&folder.path().join("disk"));
            let source = Memory {
                chunks: vec![30_000],
                ..Memory::new(object.bytes.clone())
            };
            let error = transfer(
                &source,
                Payload::default(),
                &target,
                &stopping_at(point),
                &Writing::default(),
            )
            .unwrap_err();
            assert!(matches!(error, Error::Stopped), "{}: {error}", object.name);
            assert!(!target.path.exists());
        }
    }
}

#[test]
fn a_stop_after_the_last_look_comes_too_late() {
    let object = &objects()[0];
    let folder = fast_folder();
    let target = file(&folder.path().join("disk"));
    let options = stopping_at(Point::Phase(Phase::Complete));
    transfer(
        &Memory::new(object.bytes.clone()),
        Payload::default(),
        &target,
        &options,
        &Writing::default(),
    )
    .unwrap();
    assert!(std::fs::read(&target.path).unwrap() == object.disk);
}

#[test]
fn a_stop_at_any_moment_ends_in_a_whole_disk_or_in_none() {
    let mut random = Random::new(4);
    let mut stopped = 0;
    for object in objects().iter().cycle().take(150) {
        let folder = fast_folder();
        let target = file(&folder.path().join("disk"));
        let stop = CancellationToken::new();
        let options = Reading {
            stop: stop.clone(),
            ..Reading::default()
        };
        let moment = Duration::from_micros(random.below(6000));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(moment);
                stop.cancel();
            });
            transfer(
                &Memory::new(object.bytes.clone()),
                Payload::default(),
                &target,
                &options,
                &Writing::default(),
            )
        });
        match result {
            Ok(_) => assert!(std::fs::read(&target.path).unwrap() == object.disk),
            Err(Error::Stopped) => {
                stopped += 1;
                assert!(!target.path.exists());
            }
            Err(other) => panic!("{}: {other}", object.name),
        }
    }
    assert!(stopped > 0, "every transfer was over before its stop");
}
