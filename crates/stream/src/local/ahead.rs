//! Reads blocks of a device ahead, while earlier ones are used.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use bytes::Bytes;

use super::read_chunks;
use crate::error::ThreadStartError;

/// Number of threads that read, one block each at a time. One thread is enough for a loop device;
/// a disk on the network answers several requests at once.
const READERS: u64 = 4;

/// Chunks in a block. A block is one read of a MiB; smaller direct reads of devices are slower.
const BLOCK_CHUNKS: u64 = 4;

type Block = io::Result<VecDeque<Bytes>>;

/// Delivers the chunks of a range in order. Uses the memory of one block for each reader.
pub(super) struct ReadAhead {
    /// One channel for each reader, used in turn. The channels have no buffer: a reader hands its
    /// block over when the receiver wants it, and only then reads its next block.
    blocks: Vec<Receiver<Block>>,
    turn: usize,
    /// Received chunks, and the offset of the first of them.
    chunks: VecDeque<Bytes>,
    position: u64,
    /// Total size of the blocks that are read at once.
    window: u64,
}

impl ReadAhead {
    /// Begins to read `range` of `file` in chunks of `chunk_bytes`. Only the last chunk may be
    /// shorter.
    pub(super) fn start(file: &Arc<File>, range: Range<u64>, chunk_bytes: u64) -> io::Result<Self> {
        let block_bytes = BLOCK_CHUNKS * chunk_bytes;
        let count = (range.end - range.start).div_ceil(block_bytes).min(READERS);
        let window = count * block_bytes;
        let start_reader = |number: u64| {
            let (sender, blocks) = sync_channel(0);
            let file = Arc::clone(file);
            let first = range.start + number * block_bytes;
            let all = (0..).map(move |round| first + round * window);
            let ranges = all
                .take_while(move |start| *start < range.end)
                .map(move |start| start..(start + block_bytes).min(range.end));
            let work = move || run_reader(&file, ranges, chunk_bytes, &sender);
            match thread::Builder::new().spawn(work) {
                Ok(_) => Ok(blocks),
                Err(error) => Err(io::Error::other(ThreadStartError(error))),
            }
        };
        Ok(Self {
            blocks: (0..count).map(start_reader).collect::<io::Result<_>>()?,
            turn: 0,
            chunks: VecDeque::new(),
            position: range.start,
            window,
        })
    }

    /// True if the byte at `position` will be read soon enough to wait for it.
    pub(super) fn can_reach(&self, position: u64) -> bool {
        (self.position..=self.position + self.window).contains(&position)
    }

    /// Returns the next chunk and its offset. `None` at the end of the range, or at the end of a
    /// device that has become shorter.
    pub(super) fn next_chunk(&mut self) -> io::Result<Option<(u64, Bytes)>> {
        if self.chunks.is_empty()
            && let Some(reader) = self.blocks.get(self.turn)
            // An error means that the reader has exited and has no more blocks.
            && let Ok(block) = reader.recv()
        {
            self.chunks = block?;
            self.turn = (self.turn + 1) % self.blocks.len();
        }
        let Some(chunk) = self.chunks.pop_front() else {
            return Ok(None);
        };
        let start = self.position;
        self.position += chunk.len() as u64;
        Ok(Some((start, chunk)))
    }
}

/// The loop of a reader. Ends when all its blocks are read or the receiver is dropped.
fn run_reader(
    file: &File,
    ranges: impl Iterator<Item = Range<u64>>,
    chunk_bytes: u64,
    sender: &SyncSender<Block>,
) {
    for range in ranges {
        if sender.send(read_chunks(file, range, chunk_bytes)).is_err() {
            return;
        }
    }
}
