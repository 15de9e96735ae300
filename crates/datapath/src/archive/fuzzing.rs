//! Entry points for the fuzzer.

use super::manifest::find_checksums;
use crate::digest::Checksum;

/// Returns the digests that the manifest of an OVF package lists for the file `wanted`.
pub fn ovf_checksums(manifest: &[u8], wanted: &[u8]) -> Result<Vec<Checksum>, String> {
    find_checksums(manifest, wanted).map_err(|error| error.to_string())
}
