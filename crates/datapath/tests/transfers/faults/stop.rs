//! Transfers that are stopped on the way.

use std::time::Duration;

use stream::Error;
use stream::observe::TransferPhase;
use stream::options::ReadOptions;
use testkit::random::Random;
use tokio_util::sync::CancellationToken;

use crate::common::objects::objects;
use crate::common::{Memory, Point, fast_folder, file, stopping_at, transfer_reading};

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_stop_at_any_point_leaves_nothing() {
    for object in objects() {
        let length = object.bytes.len() as u64;
        let bytes = (0..=8).map(|eighth| Point::SourceByte(length * eighth / 8));
        let phases =
            [TransferPhase::Info, TransferPhase::Transfer, TransferPhase::Resize].map(Point::Phase);
        for point in bytes.chain(phases) {
            let folder = fast_folder();
            let target = file(&folder.path().join("disk"));
            let source = Memory { chunks: vec![30_000], ..Memory::new(object.bytes.clone()) };
            let error = transfer_reading(&source, &target, &stopping_at(point)).unwrap_err();
            assert!(matches!(error, Error::Stopped), "{}: {error}", object.name);
            assert!(!target.path.exists());
        }
    }
    // After the last check it is too late.
    let (object, folder) = (&objects()[0], fast_folder());
    let target = file(&folder.path().join("disk"));
    let options = stopping_at(Point::Phase(TransferPhase::Complete));
    transfer_reading(&Memory::new(object.bytes.clone()), &target, &options).unwrap();
    assert!(std::fs::read(&target.path).unwrap() == object.disk);
}

#[test]
#[ignore = "tools: bzip2, qemu-img, qemu-io, xz, zstd"]
fn a_stop_at_any_time_leaves_a_whole_disk_or_nothing() {
    let mut random = Random::new(4);
    let mut stopped = 0;
    for object in objects().iter().cycle().take(150) {
        let folder = fast_folder();
        let target = file(&folder.path().join("disk"));
        let stop = CancellationToken::new();
        let options = ReadOptions { stop: stop.clone(), ..ReadOptions::default() };
        let moment = Duration::from_micros(random.below(6000));
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Other threads read and write meanwhile; only a delay in real time can hit them
                // at any point.
                std::thread::sleep(moment);
                stop.cancel();
            });
            transfer_reading(&Memory::new(object.bytes.clone()), &target, &options)
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
    assert!(stopped > 0, "every transfer ended before it was stopped");
}
