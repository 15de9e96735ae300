//! The receiver of a stream's bytes.

use bytes::Bytes;

use crate::Error;
use crate::offsets::{Guest, Host};

/// Takes the guest's bytes, and keeps parts of the image whose place is not known yet.
pub trait GuestSink {
    /// Its errors; those of the image are converted into them.
    type Error: From<Error>;

    /// Guest bytes at `guest`, within the virtual size. Come in any order, in pieces of any size.
    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Self::Error>;

    /// A compressed cluster that belongs at `guest`; it inflates to exactly one cluster, of which the part
    /// beyond the virtual size is dropped.
    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Self::Error>;

    /// Keeps the parking unit of the image that begins at `host` (one pass only). The last one of a file may be short.
    fn park_unit(&mut self, host: Host, pieces: &[Bytes]) -> Result<(), Self::Error>;

    /// The bytes of a parked unit.
    fn read_parked(&mut self, host: Host) -> Result<Bytes, Self::Error>;

    /// A parked unit is not needed any more.
    fn drop_parked(&mut self, host: Host) -> Result<(), Self::Error>;
}
