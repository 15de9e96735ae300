//! An image with a detached OpenPGP signature, which is verified while the image is read.

use std::ops::Range;

use bytes::Bytes;
use fetch::error::invalid_error;
use stream::changes::ChangedRanges;
use stream::digest::HashingThread;
use stream::error::{SourceError, SourceErrorKind, ThreadStartError};
use stream::options::StatedDisk;
use stream::source::{Source, SourceBody};
use stream::storage::StorageLocation;

use super::openpgp::ExpectedSignature;
use super::signature_error;

/// Maximum number of signatures of an image that are verified, each by a thread that hashes.
const MAX_HASHES: usize = 4;

/// A source whose end is reported only if a signature matches.
pub struct SignedSource {
    source: Box<dyn Source>,
    signers: Vec<ExpectedSignature>,
}

struct SignedBody {
    body: Box<dyn SourceBody>,
    /// Taken at the end.
    hashes: Vec<(ExpectedSignature, HashingThread)>,
    name: String,
    is_verified: bool,
}

impl SignedSource {
    /// Demands that one of `signers` has signed all bytes of `source`.
    pub fn new(source: Box<dyn Source>, mut signers: Vec<ExpectedSignature>) -> Self {
        signers.truncate(MAX_HASHES);
        Self { source, signers }
    }
}

impl Source for SignedSource {
    fn name(&self) -> String {
        self.source.name()
    }

    fn total_bytes(&self) -> Option<u64> {
        self.source.total_bytes()
    }

    fn content_type(&self) -> Option<&str> {
        self.source.content_type()
    }

    fn is_ranged(&self) -> bool {
        self.source.is_ranged()
    }

    fn has_own_digest(&self) -> bool {
        true
    }

    fn stated_disk(&self) -> Option<StatedDisk> {
        self.source.stated_disk()
    }

    fn changed_ranges(&self) -> Option<&ChangedRanges> {
        self.source.changed_ranges()
    }

    fn storage_location(&self) -> Option<StorageLocation> {
        self.source.storage_location()
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let body = self.source.open_body()?;
        let name = self.name();
        let failed =
            |error: ThreadStartError| SourceError::with_context(SourceErrorKind::Io, &name, error);
        let hashes = self
            .signers
            .iter()
            .map(|signer| Ok((signer.clone(), HashingThread::start(signer.algorithm())?)))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        Ok(Box::new(SignedBody { body, hashes, name, is_verified: false }))
    }

    /// The bytes are not verified here: [`Source::has_own_digest`] makes the data path compare
    /// them with the body.
    fn read_range(&self, range: Range<u64>) -> Result<Bytes, SourceError> {
        self.source.read_range(range)
    }
}

impl SourceBody for SignedBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = self.body.next_chunk()?;
        match &chunk {
            Some(chunk) => self.hashes.iter().for_each(|(_, hash)| hash.update(chunk)),
            None if self.is_verified => {}
            None => self.verify_hashes()?,
        }
        Ok(chunk)
    }

    /// Always fails: bytes that are not read cannot be verified.
    fn skip_to(&mut self, offset: u64) -> Result<(), SourceError> {
        let message = format!("cannot skip to byte {offset} of an image that is verified");
        Err(invalid_error(message))
    }
}

impl SignedBody {
    fn verify_hashes(&mut self) -> Result<(), SourceError> {
        let hashes = std::mem::take(&mut self.hashes);
        for (signer, hash) in hashes {
            hash.update(&Bytes::copy_from_slice(signer.trailer()));
            if signer.matches(&hash.finish_digest()) {
                tracing::info!("the image is signed by the key {}", signer.fingerprint());
                self.is_verified = true;
                return Ok(());
            }
        }
        Err(signature_error(format!(
            "{}: the signature does not match: the image is damaged, changed, or another one; fetch it again, or check --signature",
            self.name
        )))
    }
}
