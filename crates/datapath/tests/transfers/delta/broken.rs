//! Deltas that fail on the way: each is an error, keeps the disk, and gives the right disk when it
//! is applied again.

use datapath::delta::apply_delta;
use datapath::options::WriteOptions;
use stream::Error;
use stream::options::ReadOptions;
use tokio_util::sync::CancellationToken;

use crate::common::Memory;
use crate::delta::{MIB, Scene};

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_delta_that_fails_or_ends_anywhere_can_be_applied_again() {
    let scene = Scene::new();
    let whole = scene.bytes();
    // Each attempt fails at another byte, and the next one starts from the disk that it left.
    for (number, at) in (0..whole.len()).step_by(whole.len() / 40).enumerate() {
        let ranged = number % 2 == 0;
        let broken = Memory { broken_at: Some(at), ranged, ..Memory::new(whole.clone()) };
        let truncated = Memory { ranged, ..Memory::new(whole[..at].to_vec()) };
        for source in [broken, truncated] {
            scene.apply(&source).unwrap_err();
            assert!(scene.target.metadata().unwrap().len() >= 5 * MIB, "the disk was cut");
        }
    }
    scene.apply(&Memory::new(whole.clone())).unwrap();
    scene.apply(&Memory::ranged(whole)).unwrap();
    scene.assert_applied("after eighty failures, twice");
}

#[test]
#[ignore = "tools: qemu-img, qemu-io"]
fn a_stopped_delta_keeps_the_disk() {
    let scene = Scene::new();
    let stop = CancellationToken::new();
    stop.cancel();
    let (reading, writing) =
        (ReadOptions { stop, ..ReadOptions::default() }, WriteOptions::default());
    let source = Memory::new(scene.bytes());
    let error = apply_delta(&source, &scene.base(), &reading, &writing).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert!(scene.target.metadata().unwrap().len() >= 5 * MIB);
}
