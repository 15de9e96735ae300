//! Keeps host clusters whose position on the disk is not known yet ("parking"). They wait in
//! memory, then on the target itself, then in a scratch directory if the user chose one (rungs B,
//! C and D of the ladder in ARCHITECTURE.md).

mod scratch;
mod slots;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use diskimage::{HeadFacts, Host};
use stream::error::{Error, FormatError};
use stream::marks::HELD_BYTES;
use stream::memory::{HeldMemory, MemoryBudget, MemoryGrant};
use stream::zeros::is_zero;

use self::scratch::ScratchFile;
use self::slots::TargetSlots;
use crate::disk::Writer;
use crate::options::WriteOptions;

/// Maximum number of bytes that wait in memory. Images written by qemu-img need one cluster,
/// images that were in use up to 1.6 MB. With 32 MiB, too little memory was left for the other
/// buffers of a 64 MiB process.
const MEMORY_BYTES: u64 = 16 << 20;

/// Memory that one entry of the table takes: 41 bytes in a table that is at least half full, and
/// twice that while the table grows.
const PLACE_BYTES: u64 = 128;

/// The memory grant for the tables grows in steps of this many bytes.
const BOOK_STEP: u64 = 64 << 10;

/// Where a parked cluster is.
#[derive(Debug, Clone)]
enum ParkedLocation {
    /// All zeros: nothing is stored.
    Zero,
    Memory(Bytes),
    /// In the slot of this number on the target.
    Slot(u64),
    /// In this range of the scratch file.
    Scratch(Range<u64>),
}

/// The parked clusters of one image.
pub(crate) struct ParkedClusters {
    cluster: u64,
    places: HashMap<u64, ParkedLocation>,
    memory_bytes: u64,
    held: HeldMemory,
    /// Number of parked bytes, wherever they are.
    parked_bytes: u64,
    budget: u64,
    slots: TargetSlots,
    scratch: Option<ScratchFile>,
    scratch_dir: Option<PathBuf>,
    /// The cluster last read from the target or the scratch file. Several compressed clusters may
    /// lie in one host cluster.
    last_read: Option<(u64, Bytes)>,
    /// Memory grant for the tables of locations and slots.
    book: MemoryGrant,
}

impl ParkedClusters {
    /// Creates the parking for an image with these `facts` that is written by `writer`.
    pub(crate) fn new(
        facts: &HeadFacts,
        writer: &Writer<'_>,
        writing: &WriteOptions,
        memory: &MemoryBudget,
    ) -> Self {
        // Images without a parking unit never park anything, so the value is not used then.
        let cluster = facts.parking_unit.unwrap_or(HELD_BYTES);
        Self {
            cluster,
            places: HashMap::new(),
            memory_bytes: 0,
            held: HeldMemory::default(),
            parked_bytes: 0,
            budget: MEMORY_BYTES,
            slots: TargetSlots::new(cluster, facts.virtual_size, writer.disk().spare_capacity()),
            scratch: None,
            scratch_dir: writing.scratch.clone(),
            last_read: None,
            book: memory.empty_grant(),
        }
    }

    /// Reserves memory for one more entry in the table.
    fn hold_book(&mut self) -> Result<(), Error> {
        let places = (self.places.len() as u64 + 1) * PLACE_BYTES;
        let wanted = (places + self.slots.memory_bytes()).next_multiple_of(BOOK_STEP);
        if wanted != self.book.granted_bytes() {
            self.book.resize(wanted).map_err(FormatError::Waiting)?;
        }
        Ok(())
    }

    /// Prepares a guest range for its final data: a cluster that is parked there moves elsewhere.
    pub(crate) fn claim_range(
        &mut self,
        guest: u64,
        length: u64,
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        self.hold_book()?;
        for (slot, host) in self.slots.claim_range(guest, length, writer)? {
            let bytes = self.slots.read_slot(slot, writer)?;
            self.slots.free_slot(slot, writer)?;
            self.parked_bytes -= self.cluster;
            self.places.remove(&host);
            self.store_cluster(host, bytes, writer)?;
        }
        Ok(())
    }

    /// Stores a cluster until its position is known.
    pub(crate) fn park_cluster(
        &mut self,
        host: u64,
        pieces: &[Bytes],
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        self.hold_book()?;
        if pieces.iter().all(|piece| is_zero(piece)) {
            self.places.insert(host, ParkedLocation::Zero);
            return Ok(());
        }
        // Copy the bytes, because the pieces keep network buffers alive that are much larger than
        // themselves.
        let mut bytes = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        self.store_cluster(host, bytes.freeze(), writer)
    }

    fn store_cluster(
        &mut self,
        host: u64,
        bytes: Bytes,
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        self.parked_bytes += self.cluster;
        let place = if self.memory_bytes + self.cluster <= self.budget {
            self.set_memory(self.memory_bytes + self.cluster);
            ParkedLocation::Memory(bytes)
        } else if let Some(slot) = self.slots.write_cluster(host, &bytes, writer)? {
            ParkedLocation::Slot(slot)
        } else {
            ParkedLocation::Scratch(self.scratch_file()?.append_cluster(&bytes)?)
        };
        self.places.insert(host, place);
        Ok(())
    }

    fn set_memory(&mut self, bytes: u64) {
        self.memory_bytes = bytes;
        self.held.set_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    fn scratch_file(&mut self) -> Result<&mut ScratchFile, Error> {
        let refused = FormatError::Parking { parked: self.parked_bytes, budget: self.budget };
        let Some(dir) = &self.scratch_dir else {
            return Err(refused.into());
        };
        if self.scratch.is_none() {
            tracing::info!(directory = %dir.display(), parked = self.parked_bytes, "using scratch space");
            self.scratch = Some(ScratchFile::open(dir)?);
        }
        self.scratch.as_mut().ok_or_else(|| refused.into())
    }

    /// Reads a parked cluster.
    pub(crate) fn read_cluster(
        &mut self,
        host: u64,
        writer: &mut Writer<'_>,
    ) -> Result<Bytes, Error> {
        if let Some((last, bytes)) = &self.last_read
            && *last == host
        {
            return Ok(bytes.clone());
        }
        let bytes = match self.places.get(&host) {
            Some(ParkedLocation::Memory(bytes)) => return Ok(bytes.clone()),
            Some(ParkedLocation::Zero) => {
                Bytes::from(vec![0; usize::try_from(self.cluster).unwrap_or(0)])
            }
            Some(ParkedLocation::Slot(slot)) => self.slots.read_slot(*slot, writer)?,
            Some(ParkedLocation::Scratch(range)) => {
                let range = range.clone();
                self.scratch_file()?.read_cluster(range)?
            }
            None => {
                let missing = diskimage::Error::RefcountContradiction {
                    what: "a cluster",
                    offset: Host(host),
                };
                return Err(missing.into());
            }
        };
        self.last_read = Some((host, bytes.clone()));
        Ok(bytes)
    }

    /// Releases a parked cluster that is no longer needed.
    pub(crate) fn remove_cluster(
        &mut self,
        host: u64,
        writer: &mut Writer<'_>,
    ) -> Result<(), Error> {
        match self.places.remove(&host) {
            None | Some(ParkedLocation::Zero) => return Ok(()),
            Some(ParkedLocation::Memory(_)) => self.set_memory(self.memory_bytes - self.cluster),
            Some(ParkedLocation::Slot(slot)) => self.slots.free_slot(slot, writer)?,
            Some(ParkedLocation::Scratch(_)) => {}
        }
        self.parked_bytes -= self.cluster;
        Ok(())
    }

    /// Called when the image is complete. Removes all traces of parking from the target.
    pub(crate) fn finish_parking(&mut self, writer: &Writer<'_>) -> Result<(), Error> {
        self.slots.finish_parking(writer)
    }
}
