//! Signatures of container images by cosign, checked with a public key.
//!
//! cosign up to 2 stores a signature in a manifest with the tag `sha256-<digest>.sig`, one layer
//! for each ([`simple`]). cosign 3 stores a bundle that refers to the image ([`bundle`]). Entries
//! of transparency logs and certificates are not read: the key alone decides, which cosign calls
//! `--insecure-ignore-tlog`.
//!
//! A repository may hold signatures of others, so one that does not verify only matters if none
//! does.

mod bundle;
mod simple;

use datapath::error::{SourceError, SourceErrorKind};

use super::digest::OciDigest;
use super::manifest::{OciDescriptor, ParsedManifest, ServedManifest};
use super::messages::pull_error;
use super::store::{ImageStore, read_document};
use crate::publisher::{PublisherKey, signature_error};

/// Maximum number of signatures of one image that are read, and of documents that may hold one.
const MAX_SIGNATURES: usize = 64;

/// Maximum size of a document with a signature. Signatures with certificates and log entries have
/// 10 to 20 KB.
const MAX_SIGNATURE_BYTES: usize = 256 << 10;

/// Suffix of the tag that names the signatures of an image (cosign, "Signature Spec").
const TAG_SUFFIX: &str = ".sig";

/// Why a signature does not count, the least informative first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SignatureFlaw {
    /// The key did not make it.
    WrongKey,
    /// The signature cannot be read.
    Malformed(String),
    /// The key made it for something that is not this image.
    OtherImage(String),
}

/// The signatures that were found, and the best reason why none of them counts.
#[derive(Debug, Default)]
struct SignatureSearch {
    count: usize,
    flaw: Option<SignatureFlaw>,
}

/// Returns the first digest in `chain` that `key` has signed, or fails. The chain is the manifest
/// or index that the reference names, and each manifest that was chosen from the one before it. All
/// of them were verified by the digest in the one before.
pub(super) fn verify_image(
    store: &dyn ImageStore,
    key: &PublisherKey,
    chain: &[OciDigest],
) -> Result<OciDigest, SourceError> {
    let mut search = SignatureSearch::default();
    for digest in chain {
        if search.find_signature(store, key, digest)? {
            tracing::info!("the signature of {digest} is from the given key");
            return Ok(digest.clone());
        }
    }
    Err(search.into_error(&store.image_name(), chain))
}

impl SignatureSearch {
    /// Returns true if the key has signed `digest`.
    fn find_signature(
        &mut self,
        store: &dyn ImageStore,
        key: &PublisherKey,
        digest: &OciDigest,
    ) -> Result<bool, SourceError> {
        let name = digest.to_tag();
        let tagged = store.read_tagged(&format!("{name}{TAG_SUFFIX}")).map_err(pull_error)?;
        let layers = tagged.map(|served| self.layers_of(&served)).unwrap_or_default();
        for layer in layers.iter().filter(|layer| layer.media_type == simple::MEDIA_TYPE) {
            let check = |payload: &[u8]| simple::check_signature(key, digest, layer, payload);
            if self.reads_good(store, layer, check)? {
                return Ok(true);
            }
        }
        let referrers = store.read_referrers(digest, bundle::MEDIA_TYPE).map_err(pull_error)?;
        let is_bundle = |entry: &&OciDescriptor| bundle::may_be_signature(entry);
        for entry in referrers.iter().filter(is_bundle).take(MAX_SIGNATURES) {
            // The registry may have removed it since, or may list one that it does not have.
            let served = match store.read_manifest(entry) {
                Err(error) if error.kind() == SourceErrorKind::Status(404) => continue,
                read => read.map_err(pull_error)?,
            };
            let layers = self.layers_of(&served);
            for layer in layers.iter().filter(|layer| layer.media_type == bundle::MEDIA_TYPE) {
                let check = |document: &[u8]| bundle::check_signature(key, digest, document);
                if self.reads_good(store, layer, check)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the layers of a manifest that holds signatures.
    fn layers_of(&mut self, served: &ServedManifest) -> Vec<OciDescriptor> {
        match ParsedManifest::parse(served) {
            Ok(ParsedManifest::Image { mut layers, .. }) => {
                layers.truncate(MAX_SIGNATURES);
                layers
            }
            // A layout lists images beside their signatures.
            Ok(ParsedManifest::Index(_)) => Vec::new(),
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
        store: &dyn ImageStore,
        layer: &OciDescriptor,
        check: impl FnOnce(&[u8]) -> Result<bool, SignatureFlaw>,
    ) -> Result<bool, SourceError> {
        let checked = match read_document(store, layer, MAX_SIGNATURE_BYTES) {
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
        self.count += 1;
        self.flaw = self.flaw.take().max(Some(flaw));
    }

    fn into_error(self, image: &str, chain: &[OciDigest]) -> SourceError {
        let Self { count, flaw } = self;
        let digest = chain.first().map(ToString::to_string).unwrap_or_default();
        signature_error(match flaw {
            None => format!(
                "{image} ({digest}) has no cosign signature; ask its publisher for a signed image, or leave out --verify-key"
            ),
            Some(SignatureFlaw::WrongKey) => format!(
                "{image}: none of its {count} signature(s) is from this key; check --verify-key, or ask the publisher for the current key"
            ),
            Some(SignatureFlaw::Malformed(reason)) => format!(
                "{image}: its signature is malformed: {reason}; ask the publisher to sign it again, or leave out --verify-key"
            ),
            Some(SignatureFlaw::OtherImage(other)) => format!(
                "{image}: its signature is for {other}, not for {digest}; ask the publisher which image --verify-key should accept"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_informative_flaw_is_reported() {
        let digest = OciDigest::sha256_of(b"").unwrap();
        let report = |flaws: &[SignatureFlaw]| {
            let mut search = SignatureSearch::default();
            flaws.iter().for_each(|flaw| search.record_flaw(flaw.clone()));
            let error = search.into_error("i", std::slice::from_ref(&digest));
            assert_eq!(error.kind(), SourceErrorKind::Signature);
            error.to_string()
        };
        assert!(report(&[]).contains("has no cosign signature"));
        let malformed = SignatureFlaw::Malformed("no base64".to_owned());
        let other = SignatureFlaw::OtherImage("another".to_owned());
        for (flaws, part) in [
            (vec![SignatureFlaw::WrongKey, SignatureFlaw::WrongKey], "none of its 2 signature(s)"),
            (vec![malformed.clone(), SignatureFlaw::WrongKey], "is malformed: no base64;"),
            (vec![SignatureFlaw::WrongKey, other, malformed], "is for another, not for sha256:"),
        ] {
            let sentence = report(&flaws);
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
