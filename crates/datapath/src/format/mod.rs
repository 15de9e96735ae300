//! Turns the bytes of an image into extents on the target. `head` decides the format; `raw` and
//! `mapped` copy the data.

#[cfg(feature = "targets")]
mod chain;
mod foreign;
mod head;
#[cfg(feature = "targets")]
mod image;
#[cfg(feature = "targets")]
mod mapped;
#[cfg(feature = "targets")]
pub mod park;
pub mod raw;
mod tables;

#[cfg(feature = "targets")]
pub(crate) use self::chain::{ChainedFile, MappedChain};
#[cfg(feature = "targets")]
pub(crate) use self::head::detect_format;
pub(crate) use self::head::{ImageHead, open_mapped};
#[cfg(feature = "targets")]
pub(crate) use self::image::PreparedImage;
#[cfg(feature = "targets")]
pub(crate) use self::mapped::{MappedImage, pass_mapped};
#[cfg(feature = "targets")]
pub(crate) use self::tables::{MetadataReader, fetch_tables};
pub(crate) use self::tables::{fetch_map, ranged_length};
