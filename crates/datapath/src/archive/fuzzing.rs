//! Functions for the fuzzer.

use super::manifest::find_checksums;
use crate::digest::Checksum;

/// The digests that the manifest of an OVF package has of `wanted`.
pub fn ovf_checksums(manifest: &[u8], wanted: &[u8]) -> Result<Vec<Checksum>, String> {
    find_checksums(manifest, wanted).map_err(|error| error.to_string())
}
