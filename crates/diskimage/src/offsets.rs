//! Offsets on the guest's disk and offsets in the image. They are two types, so that one cannot be
//! mistaken for the other.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Largest length of a file in QEMU (`BDRV_MAX_LENGTH`): 2^63 minus 1 GiB.
pub(crate) const MAX_OFFSET: u64 = (1 << 63) - (1 << 30);

macro_rules! offset {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns this offset plus `bytes`, or `None` on overflow.
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }

            /// Returns this offset plus `bytes`, or the largest offset on overflow.
            pub fn saturating_add(self, bytes: u64) -> Self {
                Self(self.0.saturating_add(bytes))
            }

            /// Returns true if the offset is a multiple of `bytes`.
            pub fn is_multiple_of(self, bytes: u64) -> bool {
                self.0.is_multiple_of(bytes)
            }
        }

        impl Add<u64> for $name {
            type Output = Self;

            fn add(self, bytes: u64) -> Self {
                Self(self.0 + bytes)
            }
        }

        impl AddAssign<u64> for $name {
            fn add_assign(&mut self, bytes: u64) {
                self.0 += bytes;
            }
        }

        /// The number of bytes between two offsets.
        impl Sub for $name {
            type Output = u64;

            fn sub(self, earlier: Self) -> u64 {
                self.0 - earlier.0
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

offset! {
    /// Offset of a byte on the guest's disk.
    Guest
}

offset! {
    /// Offset of a byte in the image, which is stored on the host. The end of an image is the
    /// offset after its last byte.
    Host
}

impl Guest {
    /// Bytes from here to the end of a disk of `virtual_size` bytes, or 0 beyond its end.
    pub(crate) fn remaining_bytes(self, virtual_size: u64) -> u64 {
        virtual_size.saturating_sub(self.0)
    }
}

impl Host {
    /// Returns the start of the unit of `bytes` that contains this offset.
    pub(crate) fn unit_start(self, bytes: u64) -> Self {
        Self(self.0 - self.0 % bytes)
    }

    /// Rounds the offset up to a multiple of `bytes`.
    pub(crate) fn next_unit(self, bytes: u64) -> Self {
        Self(self.0.next_multiple_of(bytes))
    }
}
