//! Follows the chunked transfer coding (RFC 9112 §7.1) byte by byte, as hyper reads it.
//!
//! hyper treats a bare LF in a trailer as part of the line. Other implementations treat it as the
//! end of the line, which RFC 9112 §2.2 allows. hyper and such an implementation would disagree
//! about the end of the trailers, so a bare LF is an error here.

/// A position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkedBodyState {
    /// Before the first digit of a chunk size.
    Start,
    /// In the digits of a chunk size; the field is the value so far. Any number of leading zeros
    /// is allowed.
    Size(u64),
    /// In white space after the digits of a chunk size; the field is that size.
    Blank(u64),
    /// In chunk extensions, which are ignored; the field is the chunk size.
    Extension(u64),
    /// Before the LF that ends the line with this chunk size.
    SizeEnd(u64),
    /// In chunk data with this number of bytes left; the caller counts them down. If 0 bytes are
    /// left, the CR after the data comes next.
    Data(u64),
    /// Before the LF that follows chunk data.
    DataLf,
    /// At the beginning of a line in the trailer section.
    TrailerStart,
    /// In a line of the trailer section.
    Trailer,
    /// Before the LF that ends a trailer line.
    TrailerLf,
    /// Before the LF of the empty line that ends the body.
    EndLf,
    /// After the body.
    End,
}

impl ChunkedBodyState {
    /// Returns the position after `byte`, which is not chunk data. Returns `None` if this byte is
    /// not allowed here.
    pub(super) fn next_state(self, byte: u8) -> Option<Self> {
        let next = match (self, byte) {
            (Self::Start, _) => Self::Size(hex_digit(byte)?),
            (Self::Size(size) | Self::Blank(size), b' ' | b'\t') => Self::Blank(size),
            (Self::Size(size) | Self::Blank(size), b';') => Self::Extension(size),
            (Self::Size(size) | Self::Blank(size) | Self::Extension(size), b'\r') => {
                Self::SizeEnd(size)
            }
            (Self::Size(size), _) => {
                Self::Size(size.checked_mul(16)?.checked_add(hex_digit(byte)?)?)
            }
            (Self::Extension(_) | Self::TrailerStart | Self::Trailer, b'\n') => return None,
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeEnd(0), b'\n') => Self::TrailerStart,
            (Self::SizeEnd(size), b'\n') => Self::Data(size),
            (Self::Data(0), b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::TrailerStart, b'\r') => Self::EndLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::TrailerStart | Self::Trailer, _) => Self::Trailer,
            (Self::TrailerLf, b'\n') => Self::TrailerStart,
            (Self::EndLf, b'\n') => Self::End,
            _ => return None,
        };
        Some(next)
    }
}

fn hex_digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
