//! Settings of everything that writes a disk.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use stream::options::DecodeLimits;

use crate::disk::VerifiedPrefix;

/// The order in which the parts of an image with a map may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadRoute {
    /// The map first if the source supports ranges, otherwise everything in one pass.
    #[default]
    Auto,
    /// Everything in one pass: never ask the source for ranges.
    OnePass,
}

/// Settings of everything that writes a disk.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Number of threads that write, and that inflate clusters if the image contains compressed
    /// ones. As many threads decode, if several threads can decode the stream.
    pub workers: NonZeroUsize,
    /// The order in which an image with a map may be read.
    pub route: ReadRoute,
    /// A directory for clusters that do not fit elsewhere; see `format/park`.
    pub scratch: Option<PathBuf>,
    /// The part of a raw disk that exists already. The stream does not contain it.
    pub kept: Option<Arc<VerifiedPrefix>>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            workers: NonZeroUsize::MIN.saturating_add(1),
            route: ReadRoute::Auto,
            scratch: None,
            kept: None,
        }
    }
}

impl WriteOptions {
    /// The limits of decoders that feed these writers: as many threads as there are writers.
    pub(crate) fn decode_limits(&self, limits: &DecodeLimits) -> DecodeLimits {
        DecodeLimits { threads: self.workers, ..limits.clone() }
    }
}
