//! The source by itself: reading in order, across holes, and with skips.

use std::num::NonZeroUsize;
use std::sync::Arc;

use fetch::{BasicCredentials, Network};
use hypervisors::Checkpoints;
use hypervisors::imageio::ImageIoSource;
use stream::source::Source;
use testkit::ovirt::{DISK_ID, Engine, Extents, PASSWORD, Script, USER};
use testkit::random::Random;

use super::{MIB, assert_ended, raw_disk};

fn open(engine: &Engine, connections: usize) -> ImageIoSource {
    let network = Network {
        credentials: BasicCredentials::new(USER, PASSWORD),
        connections: NonZeroUsize::new(connections),
        ..crate::network()
    };
    ImageIoSource::open(
        &engine.api_url().parse().unwrap(),
        DISK_ID,
        &Checkpoints::default(),
        &Arc::new(network),
    )
    .unwrap()
}

/// A disk of random runs of data and of zeros, from a cluster of 64 KiB to some MiB.
fn disk(random: &mut Random) -> Vec<u8> {
    let mut raw = Vec::new();
    while raw.len() < 24 << 20 {
        let length = usize::try_from((64 << 10) << random.below(7)).unwrap();
        let mut run = vec![0; length];
        if random.one_in(2) {
            random.fill(&mut run);
        }
        raw.extend(run);
    }
    raw.truncate(raw.len() - usize::try_from(random.below(100)).unwrap() * 512);
    raw
}

#[test]
#[ignore = "slow: waits 4 s"]
fn bytes_are_right_after_any_skip() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let raw = disk(&mut random);
        let extents = match seed % 4 {
            3 => Extents::Unsupported,
            _ => Extents::Served,
        };
        let engine = Engine::start(Script { extents, ..raw_disk(raw.clone()) });
        {
            let source = open(&engine, if seed % 2 == 0 { 1 } else { 3 });
            assert_eq!((source.total_bytes(), source.is_ranged()), (Some(raw.len() as u64), true));
            let mut body = source.open_body().unwrap();
            let mut at = 0;
            while let Some(chunk) = body.next_chunk().unwrap() {
                assert!(
                    !chunk.is_empty() && raw[at..].starts_with(&chunk),
                    "seed {seed}, byte {at}"
                );
                at += chunk.len();
                if random.one_in(8) {
                    let most = MIB << random.below(3);
                    let leap = random.below(most);
                    at = (at + usize::try_from(leap).unwrap()).min(raw.len());
                    body.skip_to(at as u64).unwrap();
                }
                if random.one_in(32) {
                    let start = random.below(raw.len() as u64 - 512);
                    let range = start..start + 1 + random.below(511);
                    let bytes = source.read_range(range.clone()).unwrap();
                    let expected = &raw[usize::try_from(range.start).unwrap()
                        ..usize::try_from(range.end).unwrap()];
                    assert_eq!(bytes, expected, "seed {seed}, {range:?}");
                }
            }
            assert_eq!(at, raw.len(), "seed {seed}");
        }
        assert_ended(&engine, "finished_success");
    }
}
