//! The parts of a transfer: where it fails, and what limits its speed.

use std::fmt;

/// The parts of a transfer. They work at the same time, and each failure belongs to one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reads the source. Failures: not found, refused, interrupted, changed.
    Source,
    /// Decompresses. Failures: a layer is corrupt, unsupported or over its limits.
    Decode,
    /// Finds the guest's data. Failures: the image is invalid, unsupported or refers to another
    /// file.
    Format,
    /// Writes the disk. Failures: no space, too small, I/O error.
    Target,
}

impl Stage {
    /// All stages, in the order in which bytes pass through them.
    pub const ALL: [Self; 4] = [Self::Source, Self::Decode, Self::Format, Self::Target];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Decode => "decode",
            Self::Format => "format",
            Self::Target => "target",
        }
    }

    /// The part that limits the transfer while the thread that moves the bytes is in this stage.
    pub(crate) const fn limiting_part(self) -> LimitingPart {
        match self {
            Self::Source => LimitingPart::Source,
            Self::Decode | Self::Format => LimitingPart::Decoder,
            Self::Target => LimitingPart::Target,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The parts of a transfer that can limit its speed. The thread that moves the bytes waits for at
/// most one of them at a time, so their times add up to at most the time of the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitingPart {
    /// Bytes are awaited from the source. Includes opening it and pauses before retries.
    Source,
    /// Bytes are decompressed, hashed or parsed, or are awaited from the threads that do this. In a
    /// clone, they are awaited from the encoders.
    Decoder,
    /// The disk is written, zeroed, resized or synced. In a clone, the network takes the bytes.
    Target,
}

impl LimitingPart {
    /// All parts, in the order in which bytes pass through them.
    pub const ALL: [Self; 3] = [Self::Source, Self::Decoder, Self::Target];

    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Decoder => "decoder",
            Self::Target => "target",
        }
    }
}
