//! Sends any object through the whole data path, with and without ranges. The result is a disk
//! that fits, or an error and no file. If both ways succeed, the disks are equal.

use codec::decode::DecodeLimits;
use stream::memory::MemoryBudget;
use stream::options::{PayloadKind, ReadOptions};

use crate::Pieces;
use crate::transfers::{MemorySource, transfer};

/// Imports the object and returns the disk if that succeeds.
fn import(pieces: &Pieces, is_ranged: bool) -> Option<Vec<u8>> {
    let source = MemorySource { pieces: pieces.clone(), is_ranged };
    let reading = ReadOptions {
        // Small, so that a window that passes the check unnoticed exceeds the fuzzer's memory
        // limit.
        limits: DecodeLimits { memory: MemoryBudget::new(8 << 20), ..DecodeLimits::default() },
        ..ReadOptions::default()
    };
    transfer(&source, PayloadKind::default(), &reading)
}

pub fn run(data: &[u8]) {
    let Some(pieces) = Pieces::new(data) else { return };
    if let (Some(ranged), Some(passed)) = (import(&pieces, true), import(&pieces, false)) {
        assert!(ranged == passed, "reading with and without ranges gives different disks");
    }
}
