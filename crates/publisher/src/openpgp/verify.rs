//! Verifies signatures with the keys of a keyring.

use stream::digest::DigestAlgorithm;

use super::algorithm::digest_bytes;
use super::armor::{self, read_packets};
use super::certificate::Keyring;
use super::key::PgpKey;
use super::packet::{self, split_packets};
use super::signature::{BINARY, PgpSignature, TEXT};
use super::{OpenPgpError, now};

/// Maximum number of signatures in one file.
const MAX_SIGNATURES: usize = 16;

/// Seconds by which the clock of a publisher may be ahead of ours.
const CLOCK_TOLERANCE: u64 = 24 * 60 * 60;

/// Signatures over a document or an image that is stored beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedSignature {
    signatures: Vec<PgpSignature>,
    /// The kind that the signatures must have.
    kind: u8,
}

/// A signature whose key may sign, and which only has to match.
#[derive(Debug, Clone)]
pub struct ExpectedSignature {
    signature: PgpSignature,
    /// The hash function of the signature.
    pub(crate) algorithm: DigestAlgorithm,
    key: PgpKey,
    /// The fingerprint of the key.
    pub(crate) fingerprint: String,
}

impl DetachedSignature {
    /// Reads a file of signatures, binary or armoured.
    pub fn parse(bytes: &[u8]) -> Result<Self, OpenPgpError> {
        Self::from_packets(&read_packets(bytes, armor::SIGNATURE)?)
    }

    fn from_packets(packets: &[u8]) -> Result<Self, OpenPgpError> {
        let packets = split_packets(packets)?;
        let bodies = packets.iter().filter(|packet| packet.tag == packet::SIGNATURE);
        let read: Vec<_> =
            bodies.take(MAX_SIGNATURES).map(|packet| PgpSignature::read(packet.body)).collect();
        let signatures: Vec<_> = read.iter().flatten().cloned().collect();
        match (signatures.is_empty(), read.into_iter().find_map(Result::err)) {
            (false, _) => Ok(Self { signatures, kind: BINARY }),
            (true, Some(error)) => Err(error),
            (true, None) => Err(OpenPgpError::Malformed("it has no signature")),
        }
    }

    /// Requires signatures of a text.
    pub(super) fn of_text(self) -> Self {
        Self { kind: TEXT, ..self }
    }

    /// Returns the signatures by keys of `keyring` that may sign. The signed content is not
    /// needed for this, so an image is not fetched in vain.
    pub(crate) fn find_signers(
        &self,
        keyring: &Keyring,
    ) -> Result<Vec<ExpectedSignature>, OpenPgpError> {
        let mut found = Vec::new();
        let mut flaw = OpenPgpError::Malformed("it has no signature");
        for signature in &self.signatures {
            match find_signers(signature, self.kind, keyring) {
                Ok(signers) => found.extend(signers),
                Err(error) => flaw = flaw.max(error),
            }
        }
        if found.is_empty() { Err(flaw) } else { Ok(found) }
    }

    /// Verifies `document`. Returns the fingerprint of the key that signed it.
    pub fn verify(&self, document: &[u8], keyring: &Keyring) -> Result<String, OpenPgpError> {
        let mut signers = self.find_signers(keyring)?.into_iter();
        let good = signers.find(|signer| signer.signature.is_by(&signer.key, &[document]));
        good.map(|signer| signer.fingerprint).ok_or(OpenPgpError::Mismatch)
    }
}

impl ExpectedSignature {
    /// The bytes that are hashed after the signed ones.
    pub(crate) fn trailer(&self) -> &[u8] {
        &self.signature.trailer
    }

    /// True if the signature matches `digest`, the result of hashing the signed bytes and the
    /// trailer, as `algorithm:hex`.
    pub(crate) fn matches(&self, digest: &str) -> bool {
        self.signature.has_digest(&self.key, self.algorithm, &digest_bytes(digest))
    }
}

/// Returns the keys that may have made `signature`, and may sign.
fn find_signers(
    signature: &PgpSignature,
    kind: u8,
    keyring: &Keyring,
) -> Result<Vec<ExpectedSignature>, OpenPgpError> {
    let unsupported = |what: String| Err(OpenPgpError::Unsupported(what));
    if let Some(algorithm) = signature.other_algorithm() {
        return unsupported(format!("signatures of algorithm {algorithm} are not supported"));
    }
    let algorithm = match signature.hash() {
        Some(algorithm @ (DigestAlgorithm::Sha256 | DigestAlgorithm::Sha512)) => algorithm,
        _ => {
            let what = "its hash function is not SHA-256 or SHA-512, which are required";
            return unsupported(what.to_owned());
        }
    };
    if signature.kind != kind {
        return unsupported(format!(
            "signatures of type {:#04x} are not supported",
            signature.kind
        ));
    }
    if signature.facts.has_unknown_critical {
        return unsupported("it has a critical part that is not understood".to_owned());
    }
    let (now, time) = (now(), signature.created());
    if time > now + CLOCK_TOLERANCE {
        return Err(OpenPgpError::Time(
            "it was made in the future, or this machine's clock is wrong",
        ));
    }
    if !signature.is_current(now.max(time)) {
        return Err(OpenPgpError::Time("it has expired"));
    }
    let mut found = Vec::new();
    let mut flaw = OpenPgpError::UnknownKey(issuer_name(signature));
    for issuer in keyring.find_issuers(signature) {
        let fingerprint = issuer.fingerprint();
        match issuer.check_signer(time, now) {
            Ok(()) => found.push(ExpectedSignature {
                signature: signature.clone(),
                algorithm,
                key: issuer.key().clone(),
                fingerprint,
            }),
            Err(why) => flaw = flaw.max(OpenPgpError::Key(fingerprint, why)),
        }
    }
    if found.is_empty() { Err(flaw) } else { Ok(found) }
}

fn issuer_name(signature: &PgpSignature) -> String {
    let issuer = signature.facts.issuers.first();
    issuer.map_or_else(|| "of an unknown number".to_owned(), hex::encode_upper)
}
