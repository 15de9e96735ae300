use std::time::Duration;

use super::super::state::{AHEAD_BYTES, READY_BYTES, WAITING_BYTES};
use super::super::walk::{XzBlock, XzFilePart};
use super::*;

pub(in super::super) fn begin(dictionary: u64) -> XzFilePart {
    XzFilePart::Begin(XzBlock { stream_header: [0; 12], dictionary, start: 0, offset: 0 })
}

pub(in super::super) fn bytes_part(length: usize) -> XzFilePart {
    XzFilePart::Block(BlockPart::Bytes(bytes(length)))
}

fn bytes(length: usize) -> Bytes {
    Bytes::from(vec![7; length])
}

fn bad(offset: u64) -> Result<Option<BlockDecoder>, DecodeError> {
    Err(DecodeError::Truncated { codec: "xz", offset })
}

/// Returns a pool with `blocks` blocks, all of them taken.
fn pool(blocks: u64) -> BlockPool {
    let pool = BlockPool::default();
    for number in 0..blocks {
        pool.change_state(|state| state.feed_part(begin(0)));
        assert_eq!(pool.take_block().unwrap().number, number);
    }
    pool
}

/// Checks that `action` waits until `release` is called, and then returns.
fn waits(pool: &BlockPool, action: impl FnOnce() + Send, release: impl FnOnce(&BlockPool)) {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(action);
        // A waiting thread cannot be observed directly, so the check is that it has not
        // returned after 20 ms.
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        release(pool);
        waiting.join().unwrap();
    });
}

#[test]
fn the_reader_stops_feeding_when_enough_input_waits() {
    let pool = pool(1);
    for _ in 0..WAITING_BYTES / (1 << 20) {
        assert!(matches!(pool.next_step(true), ReaderStep::Feed));
        pool.change_state(|state| state.feed_part(bytes_part(1 << 20)));
    }
    let feed = || assert!(matches!(pool.next_step(true), ReaderStep::Feed));
    waits(&pool, feed, |pool| assert!(matches!(pool.take_part(0), BlockPart::Bytes(_))));
}

#[test]
fn a_full_store_takes_only_the_next_chunk_in_order() {
    let pool = pool(2);
    let half = AHEAD_BYTES / 2;
    let start = u64::try_from(half).unwrap();
    assert!(pool.deliver_chunk(1, start, &bytes(half)));
    let deliver = || assert!(pool.deliver_chunk(1, 2 * start, &bytes(half)));
    waits(&pool, deliver, |pool| {
        // A chunk of the oldest block does not wait, and reading it makes room.
        assert!(pool.deliver_chunk(0, 0, &bytes(half)));
        for expected in [0, start] {
            assert!(matches!(pool.next_step(true), ReaderStep::Deliver((at, _)) if at == expected));
        }
    });
}

#[test]
fn without_order_any_ready_chunk_is_delivered() {
    let pool = pool(2);
    pool.change_state(|state| state.any_order = true);
    assert!(pool.deliver_chunk(1, 1000, &bytes(READY_BYTES)));
    let deliver = || assert!(pool.deliver_chunk(0, 0, &bytes(1)));
    waits(&pool, deliver, |pool| {
        assert!(matches!(pool.next_step(false), ReaderStep::Deliver((1000, _))));
    });
    assert!(matches!(pool.next_step(false), ReaderStep::Deliver((0, _))));
}

#[test]
fn the_first_bad_block_is_reported_when_none_before_it_can_fail() {
    let pool = pool(4);
    pool.finish_block(3, bad(3));
    assert!(!pool.deliver_chunk(4, 0, &bytes(1)), "chunks behind a bad block are not needed");
    pool.finish_block(0, Ok(None));
    let fail = || {
        let step = pool.next_step(true);
        assert!(matches!(step, ReaderStep::Fail(DecodeError::Truncated { offset: 1, .. })));
    };
    waits(&pool, fail, |pool| {
        pool.finish_block(2, bad(2));
        pool.finish_block(1, bad(1));
    });
}

#[test]
fn closing_wakes_waiting_workers() {
    let empty = pool(0);
    waits(&empty, || assert!(empty.take_block().is_none()), BlockPool::close);

    let starved = pool(1);
    let starve = || assert!(matches!(starved.take_part(0), BlockPart::Cut));
    waits(&starved, starve, BlockPool::close);

    let full = pool(1);
    let deliver = || assert!(!full.deliver_chunk(0, 1, &bytes(AHEAD_BYTES + 1)));
    waits(&full, deliver, BlockPool::close);
}
