//! The chunked coding (RFC 9112 §7.1), byte by byte, as hyper reads it.
//!
//! hyper takes a bare LF in a trailer for a part of that line, and others for its end (RFC 9112 §2.2 allows that): they disagree on
//! where the trailers end. Here it is an error.

/// A place in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkedBodyState {
    /// Before the first digit of a size.
    Start,
    /// Within the digits, which mean this so far. Zeros in front may be as many as they like.
    Size(u64),
    /// Behind the digits of this size, in blanks.
    Blank(u64),
    /// In extensions, which are not read.
    Extension(u64),
    /// At the LF of the line with this size.
    SizeEnd(u64),
    /// With this many bytes of data left; the caller counts them. At the CR behind them if there are none.
    Data(u64),
    /// At the LF behind data.
    DataLf,
    /// At the beginning of a line of the trailer section.
    TrailerStart,
    /// Within such a line.
    Trailer,
    /// At the LF of such a line.
    TrailerLf,
    /// At the LF of the empty line.
    EndLf,
    /// Behind the body.
    End,
}

impl ChunkedBodyState {
    /// The place behind `byte`, which is none of the data; `None` if it must not be there.
    pub(super) fn next_state(self, byte: u8) -> Option<Self> {
        let next = match (self, byte) {
            (Self::Start, _) => Self::Size(hex_digit(byte)?),
            (Self::Size(size) | Self::Blank(size), b' ' | b'\t') => Self::Blank(size),
            (Self::Size(size) | Self::Blank(size), b';') => Self::Extension(size),
            (Self::Size(size) | Self::Blank(size) | Self::Extension(size), b'\r') => Self::SizeEnd(size),
            (Self::Size(size), _) => Self::Size(size.checked_mul(16)?.checked_add(hex_digit(byte)?)?),
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
