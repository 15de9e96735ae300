//! Signatures of container images by cosign.
//!
//! cosign up to 2 stores a signature in a manifest with the tag `sha256-<digest>.sig`, one layer
//! for each ([`simple`]). cosign 3 stores a bundle that refers to the image ([`bundle`]). The
//! caller's [`ImageSigner`] decides whether a signature is its own; what it signs is checked here.
//!
//! A repository may hold signatures of others, so one that does not verify only matters if none
//! does.

pub mod bundle;
mod flaw;
pub mod simple;

use publisher::{ImageSigner, signature_error};
use stream::error::{SourceError, SourceErrorKind};

pub use self::flaw::SignatureFlaw;
use super::digest::OciDigest;
use super::manifest::{OciDescriptor, ParsedManifest, ServedManifest};
use super::messages::pull_error;
use super::referrers::may_refer_to;
use super::store::{ImageStore, ReferrersPage, read_document};

/// Maximum number of signatures of one image that are read, and of documents that may hold one.
const MAX_SIGNATURES: usize = 64;

/// Maximum number of pages that are read of the list of an image's referrers. Registries put 50 or
/// more on a page.
const MAX_PAGES: usize = 64;

/// Maximum size of a document with a signature. Signatures with certificates and log entries have
/// 10 to 20 KB.
const MAX_SIGNATURE_BYTES: usize = 256 << 10;

/// Suffix of the tag that names the signatures of an image (cosign, "Signature Spec").
pub(super) const SIGNATURE_TAG: &str = ".sig";

/// A search for a signature by `signer` among those in `store`.
struct SignatureSearch<'a> {
    store: &'a dyn ImageStore,
    signer: &'a dyn ImageSigner,
    /// The best reason why none of the signatures that were found counts.
    flaw: Option<SignatureFlaw>,
}

/// Returns the first digest in `chain` that `signer` has signed, or fails. The chain is the
/// manifest or index that the reference names, and each manifest that was chosen from the one
/// before it. All of them were verified by the digest in the one before.
pub(super) fn verify_image(
    store: &dyn ImageStore,
    signer: &dyn ImageSigner,
    chain: &[OciDigest],
) -> Result<OciDigest, SourceError> {
    let mut search = SignatureSearch { store, signer, flaw: None };
    for digest in chain {
        if search.find_signature(digest)? {
            tracing::info!("the signature of {digest} is from {}", signer.name());
            return Ok(digest.clone());
        }
    }
    Err(search.into_error(chain))
}

impl SignatureSearch<'_> {
    /// Returns true if the signer has signed `digest`.
    fn find_signature(&mut self, digest: &OciDigest) -> Result<bool, SourceError> {
        let (store, signer, name) = (self.store, self.signer, digest.to_tag());
        let tagged = store.read_tagged(&format!("{name}{SIGNATURE_TAG}")).map_err(pull_error)?;
        if let Some(served) = tagged
            && self.has_good_layer(digest, &served)?
        {
            return Ok(true);
        }
        let (mut next, mut left) = (None, MAX_SIGNATURES);
        for _ in 0..MAX_PAGES {
            let page = store.read_referrers(digest, bundle::MEDIA_TYPE, next);
            let ReferrersPage { entries, next: after } = page.map_err(pull_error)?;
            for entry in entries.iter().filter(|entry| bundle::may_be_signature(entry)).take(left) {
                left -= 1;
                // The registry may have removed it since, or may list one that it does not have.
                let served = match store.read_manifest(entry) {
                    Err(error) if error.kind() == SourceErrorKind::Status(404) => continue,
                    read => read.map_err(pull_error)?,
                };
                if self.has_good_layer(digest, &served)? {
                    return Ok(true);
                }
            }
            next = match after {
                Some(after) if left > 0 => Some(after),
                _ => return Ok(false),
            };
        }
        Err(signature_error(format!(
            "{}: none of the first {MAX_PAGES} pages with signatures of {digest} has one from {}; check {}, or ask the publisher to remove old ones",
            store.image_name(),
            signer.name(),
            signer.option()
        )))
    }

    /// Returns true if the manifest `served` has a layer by which the signer signs `digest`.
    fn has_good_layer(
        &mut self,
        digest: &OciDigest,
        served: &ServedManifest,
    ) -> Result<bool, SourceError> {
        let signer = self.signer;
        for layer in self.layers_of(served, digest) {
            let is_good = match layer.media_type.as_str() {
                simple::MEDIA_TYPE => self.reads_good(&layer, |payload| {
                    simple::check_signature(signer, digest, &layer, payload)
                }),
                bundle::MEDIA_TYPE => self.reads_good(&layer, |document| {
                    bundle::check_signature(signer, digest, document)
                }),
                _ => continue,
            };
            if is_good? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the layers of a manifest that holds signatures, unless it says that they are for
    /// another image.
    fn layers_of(&mut self, served: &ServedManifest, digest: &OciDigest) -> Vec<OciDescriptor> {
        match ParsedManifest::parse(served) {
            Ok(ParsedManifest::Image(mut manifest)) if may_refer_to(served, digest) => {
                manifest.layers.truncate(MAX_SIGNATURES);
                manifest.layers
            }
            // A layout lists images beside their signatures.
            Ok(_) => Vec::new(),
            Err(reason) => {
                self.record_flaw(SignatureFlaw::Malformed(reason));
                Vec::new()
            }
        }
    }

    /// Reads the document in `layer` and returns true if `check` accepts it. Documents without a
    /// signature of an image (`Ok(false)`) are not counted.
    fn reads_good(
        &mut self,
        layer: &OciDescriptor,
        check: impl FnOnce(&[u8]) -> Result<bool, SignatureFlaw>,
    ) -> Result<bool, SourceError> {
        let checked = match read_document(self.store, layer, MAX_SIGNATURE_BYTES) {
            Ok(document) => check(&document),
            // Damaged or too large: another signature may be good.
            Err(error)
                if matches!(error.kind(), SourceErrorKind::Digest | SourceErrorKind::Length) =>
            {
                Err(SignatureFlaw::Malformed(error.to_string()))
            }
            Err(error) => return Err(pull_error(error)),
        };
        match checked {
            Ok(is_good) => Ok(is_good),
            Err(flaw) => {
                self.record_flaw(flaw);
                Ok(false)
            }
        }
    }

    fn record_flaw(&mut self, flaw: SignatureFlaw) {
        self.flaw = self.flaw.take().max(Some(flaw));
    }

    fn into_error(self, chain: &[OciDigest]) -> SourceError {
        let image = self.store.image_name();
        let digest = chain.first().map(ToString::to_string).unwrap_or_default();
        let option = self.signer.option();
        signature_error(match self.flaw {
            None => format!(
                "{image} ({digest}) has no cosign signature; ask its publisher for a signed image, or leave out {option}"
            ),
            Some(SignatureFlaw::OtherSigner(reason)) => {
                format!("{image}: {reason}; {}", self.signer.advice())
            }
            Some(SignatureFlaw::Malformed(reason)) => format!(
                "{image}: its signature is malformed: {reason}; ask the publisher to sign it again, or leave out {option}"
            ),
            Some(SignatureFlaw::OtherImage(other)) => format!(
                "{image}: its signature is for {other}, not for {digest}; ask the publisher which image {option} should accept"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use publisher::PublisherKey;
    use tokio_util::sync::CancellationToken;

    use super::super::layout::OciLayout;
    use super::*;

    /// A key, and a function that signs with it.
    pub(super) fn key_pair() -> (PublisherKey, impl Fn(&[u8]) -> Vec<u8>) {
        let (pem, sign) = testkit::oci::publisher();
        (PublisherKey::from_pem(pem.as_bytes()).unwrap(), sign)
    }

    #[test]
    fn the_most_informative_flaw_is_reported() {
        let digest = OciDigest::sha256_of(b"").unwrap();
        let (key, _) = key_pair();
        let store = OciLayout::from_directory("i".into(), None, CancellationToken::new());
        let report = |flaws: &[SignatureFlaw]| {
            let mut search = SignatureSearch { store: &store, signer: &key, flaw: None };
            flaws.iter().for_each(|flaw| search.record_flaw(flaw.clone()));
            let error = search.into_error(std::slice::from_ref(&digest));
            assert_eq!(error.kind(), SourceErrorKind::Signature);
            error.to_string()
        };
        assert!(report(&[]).contains("has no cosign signature"));
        let malformed = SignatureFlaw::Malformed("no base64".to_owned());
        let other = SignatureFlaw::OtherImage("another".to_owned());
        let unknown = SignatureFlaw::OtherSigner("unknown".to_owned());
        for (flaws, part) in [
            (vec![unknown.clone(), unknown.clone()], "i: unknown; check --verify-key"),
            (vec![malformed.clone(), unknown.clone()], "is malformed: no base64;"),
            (vec![unknown, other, malformed], "is for another, not for sha256:"),
        ] {
            let sentence = report(&flaws);
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
