//! Keyless signatures by cosign: a key is made for each signature, and a certificate states whose
//! it was. The crate `sigstore-verify` checks certificate, transparency log and time, against a
//! trusted root that the user chose. Nothing is fetched.
//!
//! The file of a trusted root contains no secret, but whoever can change it decides what is
//! accepted.

use std::fmt;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use publisher::{EvidenceError, ImageSigner, SignatureForm, SignedDocument, read_file};
use regex::Regex;
use serde::Deserialize;
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::bundle::{
    InclusionPromise, KindVersion, LogId, MessageSignature, TransparencyLogEntry,
    VerificationMaterialContent, X509Certificate,
};
use sigstore_verify::types::{
    Artifact, Bundle, CanonicalizedBody, DerCertificate, LogIndex, LogKeyId, MediaType, Sha256Hash,
    SignatureBytes, SignatureContent, SignedTimestamp, VerificationMaterial,
};
use sigstore_verify::{VerificationPolicy, Verifier};

/// Largest trusted root, in bytes. That of Sigstore's public instance has 7 KB.
const MAX_ROOT_BYTES: u64 = 1 << 20;

/// Most characters of a reason that messages show. It repeats parts of the signature.
const MAX_REASON_CHARS: usize = 300;

/// Reason for a signature that the owner of a lasting key made.
const NO_CERTIFICATE: &str = "its signature is from a key, without a certificate";

/// The identity in a certificate: an e-mail address, or the URL of a workflow.
#[derive(Debug, Clone)]
pub(crate) enum ExpectedIdentity {
    /// Exactly this one.
    Exact(String),
    /// All that this expression matches as a whole.
    Pattern(Regex),
}

/// A publisher who signs without a lasting key.
pub(crate) struct KeylessSigner {
    verifier: Verifier,
    identity: ExpectedIdentity,
    issuer: String,
}

/// An entry of a transparency log as cosign up to 2 stores it beside a signature (cosign,
/// "Signature Spec", `dev.sigstore.cosign/bundle`).
#[derive(Deserialize)]
struct StoredLogEntry {
    #[serde(rename = "SignedEntryTimestamp")]
    promise: SignedTimestamp,
    #[serde(rename = "Payload")]
    payload: LogPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogPayload {
    body: CanonicalizedBody,
    integrated_time: i64,
    log_index: u64,
    #[serde(rename = "logID")]
    log_id: Sha256Hash,
}

impl ExpectedIdentity {
    /// Parses a regular expression, which has to match whole identities: a part of one could be
    /// chosen by anybody.
    pub(crate) fn parse_pattern(text: &str) -> Result<Self, String> {
        // By itself first: parentheses that do not match could end the group around it.
        Regex::new(text)
            .and_then(|_| Regex::new(&format!("^(?:{text})$")))
            .map(Self::Pattern)
            .map_err(|error| error.to_string())
    }

    fn matches(&self, identity: &str) -> bool {
        match self {
            Self::Exact(expected) => expected == identity,
            Self::Pattern(pattern) => pattern.is_match(identity),
        }
    }
}

impl fmt::Display for ExpectedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(identity) => f.write_str(identity),
            Self::Pattern(pattern) => pattern.fmt(f),
        }
    }
}

impl KeylessSigner {
    /// Requires that the OpenID Connect provider with the URL `issuer` has authenticated
    /// `identity`. Reads the keys of certificate authorities and logs from the file `trusted_root`
    /// (Sigstore's `trusted_root.json`).
    pub(crate) fn new(
        identity: ExpectedIdentity,
        issuer: String,
        trusted_root: &Path,
    ) -> Result<Self, EvidenceError> {
        Ok(Self { verifier: read_trusted_root(trusted_root)?, identity, issuer })
    }

    fn verify<'a>(&self, signed: impl Into<Artifact<'a>>, bundle: &Bundle) -> Result<(), String> {
        // The identity is compared below: the library has no patterns.
        let policy = VerificationPolicy::any_identity().require_issuer(&self.issuer);
        let verified = match self.verifier.verify(signed, bundle, &policy) {
            Ok(verified) => verified,
            Err(sigstore_verify::Error::IssuerMismatch { expected, actual }) => {
                let actual = actual.as_deref().map_or("nobody".into(), shown);
                return Err(format!("its signer was authenticated by {actual}, not {expected}"));
            }
            Err(error) => return Err(refusal(&error)),
        };
        match verified.identity().map(|identity| identity.as_str()) {
            Some(found) if self.identity.matches(found) => Ok(()),
            Some(found) => {
                Err(format!("it was signed by {}, not by {}", shown(found), self.identity))
            }
            None => Err("its certificate states no identity".to_owned()),
        }
    }
}

impl ImageSigner for KeylessSigner {
    fn name(&self) -> String {
        format!("{} ({})", self.identity, self.issuer)
    }

    fn option(&self) -> &'static str {
        "--certificate-identity"
    }

    fn advice(&self) -> &'static str {
        "check --certificate-identity, --certificate-oidc-issuer and --trusted-root"
    }

    fn verify_signature(&self, document: &SignedDocument<'_>) -> Result<(), String> {
        let SignedDocument { signed, signature, form } = *document;
        match form {
            SignatureForm::Layer { certificate, log_entry } => {
                let (Some(certificate), Some(log_entry)) = (certificate, log_entry) else {
                    return Err(NO_CERTIFICATE.to_owned());
                };
                self.verify(signed, &layer_bundle(signature, certificate, log_entry)?)
            }
            SignatureForm::Bundle { document, image } => {
                let bundle = Bundle::from_json(document).map_err(|error| refusal(&error))?;
                if bundle.signing_certificate().is_none() {
                    return Err(NO_CERTIFICATE.to_owned());
                }
                // The caller takes the image's digest from what it has read itself.
                let is_same = matches!(
                    &bundle.content,
                    SignatureContent::DsseEnvelope(envelope)
                        if envelope.pae() == signed
                            && envelope.signature.sig.as_bytes() == signature
                );
                if !is_same {
                    return Err("its bundle can be read in two ways".to_owned());
                }
                let image = image.ok_or("its digest is not SHA-256".to_owned())?;
                let image = Sha256Hash::from_hex(image).map_err(|error| refusal(&error))?;
                self.verify(image, &bundle)
            }
        }
    }
}

fn read_trusted_root(path: &Path) -> Result<Verifier, EvidenceError> {
    let text = read_file("--trusted-root", path, MAX_ROOT_BYTES)?;
    let unusable = |error: &dyn fmt::Display| {
        let path = path.display();
        let advice = "make one with `cosign trusted-root create`";
        EvidenceError::Usage(format!("the trusted root {path} cannot be used: {error}; {advice}"))
    };
    let text = String::from_utf8(text).map_err(|error| unusable(&error))?;
    let root = TrustedRoot::from_json(&text).map_err(|error| unusable(&error))?;
    Verifier::new(&root).map_err(|error| unusable(&error))
}

/// Makes a bundle of a signature by cosign up to 2, which stores no proof that the entry is in the
/// log, only the log's signature. Bundles of version 0.1 may lack the proof.
fn layer_bundle(signature: &[u8], certificate: &str, log_entry: &str) -> Result<Bundle, String> {
    let certificate = DerCertificate::from_pem(certificate).map_err(|error| refusal(&error))?;
    let entry: StoredLogEntry = serde_json::from_str(log_entry).map_err(|error| refusal(&error))?;
    let StoredLogEntry { promise, payload } = entry;
    let time = Timestamp::from_second(payload.integrated_time);
    let entry = TransparencyLogEntry::new(
        LogIndex::new(payload.log_index).map_err(|error| refusal(&error))?,
        LogId::new(LogKeyId::from_bytes(payload.log_id.as_bytes())),
        KindVersion::HashedRekordV001,
        payload.body,
    )
    .with_integrated_time(time.map_err(|error| refusal(&error))?)
    .with_inclusion_promise(InclusionPromise::new(promise));
    let certificates = vec![X509Certificate::new(certificate)];
    let material = VerificationMaterial::new(VerificationMaterialContent::X509CertificateChain {
        certificates,
    })
    .with_tlog_entries(vec![entry]);
    let signature = MessageSignature::new(SignatureBytes::from_bytes(signature));
    let content = SignatureContent::MessageSignature(signature);
    Ok(Bundle::new(MediaType::Bundle0_1, material, content))
}

fn refusal(error: &dyn fmt::Display) -> String {
    format!("its signature is refused: {}", shown(&error.to_string()))
}

/// Returns a text from a signature for a message.
fn shown(text: &str) -> String {
    printable::escape_line(text, MAX_REASON_CHARS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_identity_must_match_as_a_whole() {
        let pattern = ExpectedIdentity::parse_pattern("a@example[.]org|b").unwrap();
        for (identity, matches) in
            [("a@example.org", true), ("b", true), ("xb", false), ("a@example.org\n", false)]
        {
            assert_eq!(pattern.matches(identity), matches, "{identity:?}");
        }
        let exact = ExpectedIdentity::Exact("a".to_owned());
        assert!(exact.matches("a") && !exact.matches("aa") && !exact.matches(""));
        assert!(ExpectedIdentity::parse_pattern(r"\w+\d").unwrap().matches("v1"));
        for malformed in ["(", "a)|(?:b"] {
            assert!(ExpectedIdentity::parse_pattern(malformed).is_err(), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn any_signature_of_strangers_is_refused(
            signed in prop::collection::vec(any::<u8>(), 0..50),
            text in "\\PC{0,200}",
            log_entry in "\\PC{0,200}",
        ) {
            let root = TrustedRoot::from_json(r#"{"mediaType":""}"#).unwrap();
            let signer = KeylessSigner {
                verifier: Verifier::new(&root).unwrap(),
                identity: ExpectedIdentity::parse_pattern(".*").unwrap(),
                issuer: String::new(),
            };
            for form in [
                SignatureForm::Layer { certificate: Some(&text), log_entry: Some(&log_entry) },
                SignatureForm::Bundle { document: &text, image: Some(&log_entry) },
            ] {
                let document = SignedDocument { signed: &signed, signature: &signed, form };
                prop_assert!(signer.verify_signature(&document).is_err());
            }
        }
    }
}
