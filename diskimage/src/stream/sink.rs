//! Where a stream's guest bytes go.

use bytes::Bytes;

use crate::Error;

/// Where the guest's bytes go, and where parts of the image wait whose place is not known yet.
pub trait Sink {
    /// What can go wrong on the way; errors of the image are converted into it.
    type Error: From<Error>;

    /// Guest bytes at `guest`, within the virtual size. Come in any order, in pieces of any size.
    fn data(&mut self, guest: u64, bytes: Bytes) -> Result<(), Self::Error>;

    /// A compressed cluster that belongs at `guest`; it inflates to exactly one cluster, of which the part
    /// beyond the virtual size is dropped.
    fn compressed(&mut self, guest: u64, bytes: Bytes) -> Result<(), Self::Error>;

    /// Keeps the parking unit of the image that begins at `host` (one pass only). The last one of a file may be short.
    fn park(&mut self, host: u64, pieces: &[Bytes]) -> Result<(), Self::Error>;

    /// The bytes of a parked unit.
    fn parked(&mut self, host: u64) -> Result<Bytes, Self::Error>;

    /// A parked unit is not needed any more.
    fn forget(&mut self, host: u64) -> Result<(), Self::Error>;
}
