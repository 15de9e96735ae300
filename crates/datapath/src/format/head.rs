//! The head of an image: which format, and what its first bytes tell.

use diskimage::vhd::COOKIE;
use diskimage::{DETECT_BYTES, Format, HEAD_BYTES, Image, MAX_HEAD_BYTES};

use super::foreign::refuse_foreign;
use super::raw::EndingKind;
use crate::error::{Error, FormatError};
use crate::input::TransferInput;
use crate::memory::MemoryBudget;
use crate::observe::TransferPhase;
use crate::options::{PayloadKind, ReadOptions};

/// The format of an image, decided once.
pub(crate) struct ImageHead {
    pub(crate) format: Format,
    /// The part that may follow the disk of a raw image.
    pub(crate) ending: EndingKind,
}

impl ImageHead {
    /// Looks at the first bytes below all layers.
    pub(crate) fn read(
        input: &mut TransferInput,
        payload: PayloadKind,
        reading: &ReadOptions,
    ) -> Result<Self, Error> {
        let head = in_transfer(reading, input.peek(DETECT_BYTES))?;
        let ending = ending_kind(&head, payload);
        let wanted = match ending {
            // What a footer makes an image begins like a raw disk.
            EndingKind::Footer => Some(Format::Raw),
            EndingKind::Disk | EndingKind::Sniffed => payload.known_format(),
        };
        let format = Format::resolve_wanted(&head, wanted)?;
        if format == Format::Raw && wanted.is_none() {
            let bytes =
                input.total_bytes().or_else(|| (head.len() < DETECT_BYTES).then_some(head.len() as u64));
            refuse_foreign(&head, bytes, input.readings().content_type())?;
        }
        Ok(Self { format, ending })
    }
}

/// The part that may follow the disk, if the image is a raw one: nothing if that is known, and a footer if the user says so.
fn ending_kind(head: &[u8], payload: PayloadKind) -> EndingKind {
    match payload.known_format() {
        Some(Format::Raw) => EndingKind::Disk,
        // A dynamic image begins with a copy of its footer.
        Some(Format::Vhd) if !head.starts_with(COOKIE) => EndingKind::Footer,
        _ => EndingKind::Sniffed,
    }
}

/// A source that breaks behind the first bytes breaks in the transfer, as upstream has it, however much of the head we look at.
pub(super) fn in_transfer<T>(reading: &ReadOptions, result: Result<T, Error>) -> Result<T, Error> {
    result.inspect_err(|error| {
        if matches!(error, Error::Source(_)) {
            reading.observer.begin_phase(TransferPhase::Transfer);
        }
    })
}

/// Reads the head of an image with a map, as much of it as it needs.
pub(crate) fn open_mapped(
    format: Format,
    input: &mut TransferInput,
    memory: &MemoryBudget,
) -> Result<Image, Error> {
    let mut wanted = HEAD_BYTES;
    loop {
        let head = input.peek(wanted)?;
        let opened = Image::open(format, &head);
        let Err(diskimage::Error::ShortHeader { needed, .. }) = opened else {
            return Ok(opened?);
        };
        let Some(more) = next_head_len(needed, &head, wanted) else {
            return Ok(opened?);
        };
        let mut grant = memory.empty_grant();
        grant.resize(more as u64).map_err(FormatError::Head)?;
        input.hold_head(grant);
        wanted = more;
    }
}

/// Bytes of the head to look at next, if there may be more than `wanted`, and they are worth waiting for.
fn next_head_len(needed: u64, head: &[u8], wanted: usize) -> Option<usize> {
    let needed = usize::try_from(needed).ok()?;
    (head.len() >= wanted && needed > wanted && needed <= MAX_HEAD_BYTES).then_some(needed)
}
