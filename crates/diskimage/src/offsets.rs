//! Places on the guest's disk and places in the image: two types, so that neither can be taken for the other.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// The largest length of a file, as QEMU has it (`BDRV_MAX_LENGTH`): 2^63 less a GiB.
pub(crate) const MAX_OFFSET: u64 = (1 << 63) - (1 << 30);

macro_rules! offset {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The place `bytes` further on, if there can be one.
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }

            /// The place `bytes` further on, or the last that there can be.
            pub fn saturating_add(self, bytes: u64) -> Self {
                Self(self.0.saturating_add(bytes))
            }

            /// True if units of `bytes` begin here.
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

        /// The bytes between two places.
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
    /// A byte of the guest's disk.
    Guest
}

offset! {
    /// A byte of the image, which the host has. The end of an image is the place behind its last byte.
    Host
}

impl Guest {
    /// Bytes from here to the end of a disk of `virtual_size` bytes.
    pub(crate) fn remaining_bytes(self, virtual_size: u64) -> u64 {
        virtual_size.saturating_sub(self.0)
    }
}

impl Host {
    /// The first byte of the unit of `bytes` that this one lies in.
    pub(crate) fn unit_start(self, bytes: u64) -> Self {
        Self(self.0 - self.0 % bytes)
    }

    /// The next place where a unit of `bytes` begins: this one, if one does.
    pub(crate) fn next_unit(self, bytes: u64) -> Self {
        Self(self.0.next_multiple_of(bytes))
    }
}
