//! A body whose digest is known in advance.
//!
//! The digest comes from `x-amz-checksum-*`, `x-goog-hash`, a manifest or a layer. No byte of such
//! a body is skipped, and it is read to its end before the disk becomes complete.

use bytes::Bytes;
use stream::digest::{Checksum, ChecksumMismatchError, HashingThread};
use stream::error::{SourceAdvice, SourceError, SourceErrorKind};
use stream::source::SourceBody;

/// A body that ends without an error only if its bytes have the expected digest.
pub struct VerifiedBody {
    body: Box<dyn SourceBody>,
    hashing: Option<HashingThread>,
    expected: Checksum,
    what: String,
    /// Kind of the error if the digest is wrong, and advice.
    kind: (SourceErrorKind, Option<SourceAdvice>),
}

impl VerifiedBody {
    /// Verifies `body`, which must be at its first byte; `what` names the object in errors.
    pub fn new(
        body: Box<dyn SourceBody>,
        expected: Checksum,
        what: String,
    ) -> Result<Self, SourceError> {
        let hashing = HashingThread::start(expected.algorithm());
        let failed = |error| SourceError::with_context(SourceErrorKind::Io, &what, error);
        let kind = (SourceErrorKind::Digest, None);
        Ok(Self { body, hashing: Some(hashing.map_err(failed)?), expected, what, kind })
    }

    /// Makes a wrong digest a failure of what the user gave as evidence, not of the source.
    pub(crate) fn into_evidence(self) -> Self {
        Self { kind: (SourceErrorKind::Signature, Some(SourceAdvice::CopyBackup)), ..self }
    }

    fn verify_checksum(&mut self) -> Result<(), SourceError> {
        let Some(hashing) = self.hashing.take() else {
            return Ok(());
        };
        match self.expected.verify(&hashing.finish_digest()) {
            Err(ChecksumMismatchError { expected, calculated }) => {
                let message = format!(
                    "{}: the received bytes have {calculated}, the source announced {expected}",
                    self.what
                );
                let (kind, advice) = self.kind;
                Err(SourceError::new(kind, message).with_advice(advice))
            }
            Ok(()) => Ok(()),
        }
    }
}

impl SourceBody for VerifiedBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let chunk = self.body.next_chunk()?;
        match (&chunk, &self.hashing) {
            (Some(chunk), Some(hashing)) => hashing.update(chunk),
            (None, _) => self.verify_checksum()?,
            (Some(_), None) => {}
        }
        Ok(chunk)
    }

    // Bytes that are not read cannot be verified, so none are skipped.
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two(Vec<Bytes>);

    impl SourceBody for Two {
        fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
            Ok(self.0.pop())
        }
    }

    fn read(expected: &str) -> Result<(), SourceError> {
        let chunks = vec![Bytes::from_static(b"c"), Bytes::from_static(b"ab")];
        let mut body =
            VerifiedBody::new(Box::new(Two(chunks)), expected.parse().unwrap(), "blob".to_owned())?;
        while body.next_chunk()?.is_some() {}
        // Reading after the end returns the same result again.
        body.next_chunk().map(drop)
    }

    #[test]
    fn a_body_ends_without_error_only_with_the_right_digest() {
        // RFC 1321, appendix A.5.
        read("md5:900150983cd24fb0d6963f7d28e17f72").unwrap();
        let wrong = format!("md5:{}", "0".repeat(32));
        let error = read(&wrong).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Digest);
        assert_eq!(
            error.to_string(),
            format!(
                "blob: the received bytes have md5:900150983cd24fb0d6963f7d28e17f72, the source announced {wrong}"
            )
        );
    }
}
