//! An image with a detached OpenPGP signature, which is verified while the image is read.

use bytes::Bytes;
use fetch::wrapped::WrappedSource;
use stream::digest::HashingThread;
use stream::error::{SourceError, SourceErrorKind, ThreadStartError};
use stream::source::{Source, SourceBody};

use super::openpgp::ExpectedSignature;
use super::signature_error;

/// Maximum number of signatures of an image that are verified, each by a thread that hashes.
const MAX_HASHES: usize = 4;

/// Returns `source`, whose end is reported only if one of `signers` has signed all of its bytes.
pub fn demand_signature(
    source: Box<dyn Source>,
    mut signers: Vec<ExpectedSignature>,
) -> Box<dyn Source> {
    signers.truncate(MAX_HASHES);
    let open = move |source: &dyn Source| {
        let (body, name) = (source.open_body()?, source.name());
        let failed =
            |error: ThreadStartError| SourceError::with_context(SourceErrorKind::Io, &name, error);
        let hashes = signers
            .iter()
            .map(|signer| Ok((signer.clone(), HashingThread::start(signer.algorithm)?)))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        Ok(Box::new(SignedBody { body, hashes, name, is_verified: false }) as _)
    };
    Box::new(WrappedSource { inner: source, is_verified: true, stated_disk: None, open })
}

struct SignedBody {
    body: Box<dyn SourceBody>,
    /// Taken at the end.
    hashes: Vec<(ExpectedSignature, HashingThread)>,
    name: String,
    is_verified: bool,
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
}

impl SignedBody {
    fn verify_hashes(&mut self) -> Result<(), SourceError> {
        let hashes = std::mem::take(&mut self.hashes);
        for (signer, hash) in hashes {
            hash.update(&Bytes::copy_from_slice(signer.trailer()));
            if signer.matches(&hash.finish_digest()) {
                tracing::info!("the image is signed by the key {}", signer.fingerprint);
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
