//! The head of an image: its first bytes, which determine its format.

use codec::input::TransferInput;
use diskimage::vhd::COOKIE;
use diskimage::{DETECT_BYTES, Format, HEAD_BYTES, Image, MAX_HEAD_BYTES};
use stream::error::{Error, FormatError};
use stream::memory::MemoryBudget;
use stream::observe::TransferPhase;
use stream::options::{PayloadKind, ReadOptions};

use super::foreign::refuse_foreign;
use super::raw::EndingKind;

/// The format of an image. It is determined once, from the first bytes.
pub struct ImageHead {
    /// The format inside all layers.
    pub format: Format,
    /// The kind of bytes that may follow the disk if the image is raw.
    pub ending: EndingKind,
    /// The warning about a raw image that is probably not a disk.
    pub warning: Option<&'static str>,
}

impl ImageHead {
    /// Reads the first bytes inside all layers and decides the format.
    pub fn read(
        input: &mut TransferInput,
        payload: PayloadKind,
        reading: &ReadOptions,
    ) -> Result<Self, Error> {
        let head = in_transfer(reading, input.peek(DETECT_BYTES))?;
        let ending = ending_kind(&head, payload);
        let wanted = match ending {
            // A fixed VHD begins like a raw disk; only the footer at its end distinguishes the
            // two.
            EndingKind::Footer => Some(Format::Raw),
            EndingKind::Disk | EndingKind::Sniffed => payload.known_format(),
        };
        let format = Format::resolve_wanted(&head, wanted)?;
        let mut warning = None;
        if format == Format::Raw && wanted.is_none() {
            let bytes = input
                .total_bytes()
                .or_else(|| (head.len() < DETECT_BYTES).then_some(head.len() as u64));
            warning = refuse_foreign(&head, bytes, input.readings().content_type())?;
        }
        Ok(Self { format, ending, warning })
    }
}

/// Detects the format of a file of `bytes` bytes by its first ones. A file that cannot be a disk
/// is refused.
pub fn detect_format(head: &[u8], bytes: u64) -> Result<Format, Error> {
    let head = head.get(..DETECT_BYTES).unwrap_or(head);
    let format = Format::resolve_wanted(head, None)?;
    if format == Format::Raw {
        refuse_foreign(head, Some(bytes), None)?;
    }
    Ok(format)
}

/// The kind of bytes that may follow the disk if the image is raw: none if the format is known to
/// be raw, and a footer if the user declared it a VHD.
fn ending_kind(head: &[u8], payload: PayloadKind) -> EndingKind {
    match payload.known_format() {
        Some(Format::Raw) => EndingKind::Disk,
        // A dynamic VHD begins with a copy of its footer, so this one is fixed.
        Some(Format::Vhd) if !head.starts_with(COOKIE) => EndingKind::Footer,
        _ => EndingKind::Sniffed,
    }
}

/// Attributes an error of the source to the transfer phase. A source that breaks after its first
/// bytes then fails in the same phase as upstream, no matter how much of the head is read here.
pub fn in_transfer<T>(reading: &ReadOptions, result: Result<T, Error>) -> Result<T, Error> {
    result.inspect_err(|error| {
        if matches!(error, Error::Source(_)) {
            reading.observer.begin_phase(TransferPhase::Transfer);
        }
    })
}

/// Opens an image with a map. Reads as many bytes of the head as the image needs.
pub fn open_mapped(
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

/// Number of bytes of the head to read next. `None` if the image ends before `wanted` bytes, or if
/// more bytes would not help or would be too many.
fn next_head_len(needed: u64, head: &[u8], wanted: usize) -> Option<usize> {
    let needed = usize::try_from(needed).ok()?;
    (head.len() >= wanted && needed > wanted && needed <= MAX_HEAD_BYTES).then_some(needed)
}
