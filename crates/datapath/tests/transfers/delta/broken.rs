//! Deltas that fail on the way: each is an error, keeps the disk, and gives the right disk when it
//! is applied again.

use datapath::Error;
use datapath::delta::apply_delta;
use datapath::options::{ReadOptions, WriteOptions};
use tokio_util::sync::CancellationToken;

use crate::common::{Memory, fast_folder};
use crate::delta::{MIB, apply, assert_applied, base, bytes, copy, rich_delta};

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_that_fails_anywhere_can_be_applied_again() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let length = bytes(&delta).len();
    // Each attempt fails at another byte, and the next one starts from the disk that it left.
    for (number, at) in (0..length).step_by(length / 40).enumerate() {
        let broken =
            Memory { broken_at: Some(at), ranged: number % 2 == 0, ..Memory::new(bytes(&delta)) };
        apply(&broken, &target, &delta).unwrap_err();
        assert!(target.metadata().unwrap().len() >= 5 * MIB, "the disk was cut");
    }
    apply(&Memory::new(bytes(&delta)), &target, &delta).unwrap();
    assert_applied(&target, &delta, "after forty failures");
    apply(&Memory::ranged(bytes(&delta)), &target, &delta).unwrap();
    assert_applied(&target, &delta, "twice");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_truncated_delta_is_an_error_and_the_disk_is_kept() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let whole = bytes(&delta);
    for ranged in [true, false] {
        for percent in [0, 1, 10, 50, 90, 99] {
            let part = whole[..whole.len() * percent / 100].to_vec();
            let source = Memory { ranged, ..Memory::new(part) };
            let target = copy(&delta, folder.path());
            apply(&source, &target, &delta).unwrap_err();
            assert!(target.metadata().unwrap().len() >= 5 * MIB, "{percent} %: the disk was cut");
        }
    }
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_stopped_delta_keeps_the_disk() {
    let folder = fast_folder();
    let delta = rich_delta(folder.path());
    let target = copy(&delta, folder.path());
    let stop = CancellationToken::new();
    stop.cancel();
    let options = ReadOptions { stop, ..ReadOptions::default() };
    let error = apply_delta(
        &Memory::new(bytes(&delta)),
        &base(&target, &delta),
        &options,
        &WriteOptions::default(),
    )
    .unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert!(target.metadata().unwrap().len() >= 5 * MIB);
}
