//! The receiver of a stream's output.

use bytes::Bytes;

use crate::Error;
use crate::offsets::{Guest, Host};

/// Receives the guest's bytes, and stores parts of the image whose guest offset is not known yet.
pub trait GuestSink {
    /// The error type of the sink. Errors of the image are converted into it.
    type Error: From<Error>;

    /// Writes guest bytes at `guest`, within the virtual size. The calls come in any order, with
    /// pieces of any size.
    fn write_data(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Self::Error>;

    /// Writes the compressed cluster at `guest`. It inflates to exactly one cluster; the part
    /// beyond the virtual size is dropped.
    fn write_compressed(&mut self, guest: Guest, bytes: Bytes) -> Result<(), Self::Error>;

    /// Stores the parking unit of the image that begins at `host`. The last unit of an image may
    /// be short. Only called if the map is read in the same pass as the data, so sinks for images
    /// whose map is complete keep the default implementation, which fails.
    fn park_unit(&mut self, host: Host, _pieces: &[Bytes]) -> Result<(), Self::Error> {
        Err(Error::CannotPark { offset: host }.into())
    }

    /// Returns the bytes of a parked unit.
    fn read_parked(&mut self, host: Host) -> Result<Bytes, Self::Error> {
        Err(Error::CannotPark { offset: host }.into())
    }

    /// Discards a parked unit that is not needed any more.
    fn drop_parked(&mut self, host: Host) -> Result<(), Self::Error> {
        Err(Error::CannotPark { offset: host }.into())
    }
}
