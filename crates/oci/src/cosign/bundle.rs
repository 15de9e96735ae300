//! Signatures in Sigstore bundles of version 0.3, as cosign 3 writes them (sigstore/protobuf-specs,
//! `sigstore_bundle.proto`): a signed in-toto statement whose subject is the image.

use std::collections::BTreeMap;
use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use publisher::{ImageSigner, SignatureForm, SignedDocument};
use serde::Deserialize;
use stream::digest::DigestAlgorithm;

use super::SignatureFlaw;
use crate::digest::OciDigest;
use crate::manifest::OciDescriptor;

/// Media type of a bundle, which is also the type of the artifact that holds it.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Another spelling of the media type inside bundles.
const OTHER_MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";

/// The type of the empty configuration of an artifact. In registries without a list of referrers,
/// the list that cosign 3 maintains states it for every artifact (sigstore/cosign#4641).
const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// Annotation of the artifact with the type of the statement in its bundle.
const PREDICATE_ANNOTATION: &str = "dev.sigstore.bundle.predicateType";

/// The type of statements that sign an image. Attestations have other types: a publisher also
/// signs that an image has vulnerabilities.
const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// The type of a signed document that is an in-toto statement (in-toto Attestation Framework,
/// "Envelope").
const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// The types of a statement, of which 0.1 has the same fields.
const STATEMENT_TYPES: [&str; 2] =
    ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SigstoreBundle {
    media_type: String,
    dsse_envelope: Option<DsseEnvelope>,
}

/// A signed document (DSSE, "Envelope").
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DsseEnvelope {
    payload: String,
    payload_type: String,
    signatures: Vec<DsseSignature>,
}

#[derive(Deserialize)]
struct DsseSignature {
    sig: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InTotoStatement {
    #[serde(rename = "_type")]
    statement_type: String,
    predicate_type: String,
    subject: Vec<StatementSubject>,
}

#[derive(Deserialize)]
struct StatementSubject {
    digest: BTreeMap<String, String>,
}

/// True if the artifact of an index may hold a signature, and not another statement.
pub(super) fn may_be_signature(entry: &OciDescriptor) -> bool {
    let is_bundle =
        entry.artifact_type.as_deref().is_none_or(|kind| [MEDIA_TYPE, EMPTY_TYPE].contains(&kind));
    let predicate = entry.annotation(PREDICATE_ANNOTATION);
    is_bundle && predicate.is_none_or(|predicate| predicate == SIGN_PREDICATE)
}

/// Returns true if `signer` has signed the statement in `document`, and it signs `digest`. Returns
/// false for a statement of another type.
pub fn check_signature(
    signer: &dyn ImageSigner,
    digest: &OciDigest,
    document: &[u8],
) -> Result<bool, SignatureFlaw> {
    let malformed = |reason: String| SignatureFlaw::Malformed(reason);
    let unreadable = |error: &dyn Display| malformed(format!("the bundle cannot be read: {error}"));
    let document = str::from_utf8(document).map_err(|error| unreadable(&error))?;
    let bundle: SigstoreBundle =
        serde_json::from_str(document).map_err(|error| unreadable(&error))?;
    if ![MEDIA_TYPE, OTHER_MEDIA_TYPE].contains(&bundle.media_type.as_str()) {
        let found = bundle.media_type;
        return Err(malformed(format!("bundles of type {found:?} are not supported")));
    }
    let envelope =
        bundle.dsse_envelope.ok_or_else(|| malformed("it has no statement".to_owned()))?;
    let DsseEnvelope { payload, payload_type, signatures } = envelope;
    let [signature] = signatures.as_slice() else {
        let count = signatures.len();
        return Err(malformed(format!("the bundle has {count} signatures, expected 1")));
    };
    let decode = |text: &str| {
        STANDARD.decode(text).map_err(|_| malformed("the bundle has invalid base64".to_owned()))
    };
    let (payload, signature) = (decode(&payload)?, decode(&signature.sig)?);
    let (algorithm, hex) = digest.as_parts();
    let image = (algorithm == DigestAlgorithm::Sha256.name()).then_some(hex.as_str());
    let signed = signed_bytes(&payload_type, &payload);
    let form = SignatureForm::Bundle { document, image };
    let found = SignedDocument { signed: &signed, signature: &signature, form };
    signer.verify_signature(&found).map_err(SignatureFlaw::OtherSigner)?;
    if payload_type != PAYLOAD_TYPE {
        return Err(SignatureFlaw::OtherImage(format!("a document of type {payload_type:?}")));
    }
    let statement: InTotoStatement = serde_json::from_slice(&payload)
        .map_err(|error| malformed(format!("the statement cannot be read: {error}")))?;
    if !STATEMENT_TYPES.contains(&statement.statement_type.as_str()) {
        let found = statement.statement_type;
        return Err(malformed(format!("statements of type {found:?} are not supported")));
    }
    if statement.predicate_type != SIGN_PREDICATE {
        return Ok(false);
    }
    let found = |subject: &StatementSubject| subject.digest.get(algorithm).cloned();
    let subjects: Vec<String> = statement.subject.iter().filter_map(found).collect();
    if subjects.contains(&hex) {
        return Ok(true);
    }
    Err(SignatureFlaw::OtherImage(match subjects.first() {
        Some(other) => format!("{algorithm}:{other}"),
        None => "no image".to_owned(),
    }))
}

/// Returns the bytes that a signature covers (DSSE, "Pre-Authentication Encoding").
fn signed_bytes(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::tests::key_pair;
    use super::*;

    fn statement(digest: &OciDigest) -> Value {
        let (algorithm, hex) = digest.as_parts();
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "digest": { algorithm: hex } }],
            "predicateType": SIGN_PREDICATE,
            "predicate": {},
        })
    }

    #[test]
    fn the_signed_bytes_are_those_of_the_example_in_the_specification() {
        // DSSE, protocol.md, "Test vectors".
        let expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world";
        assert_eq!(signed_bytes("http://example.com/HelloWorld", b"hello world"), expected);
    }

    #[test]
    fn a_statement_counts_for_its_own_image_only() {
        let (key, sign) = key_pair();
        let digest = OciDigest::sha256_of(b"image").unwrap();
        let bundle = |statement: &Value, kind: &str| {
            let payload = statement.to_string();
            let signature = STANDARD.encode(sign(&signed_bytes(kind, payload.as_bytes())));
            json!({
                "mediaType": MEDIA_TYPE,
                "verificationMaterial": { "publicKey": { "hint": "x" } },
                "dsseEnvelope": {
                    "payload": STANDARD.encode(payload),
                    "payloadType": kind,
                    "signatures": [{ "sig": signature, "keyid": "" }],
                },
            })
        };
        let check = |bundle: &Value| check_signature(&key, &digest, bundle.to_string().as_bytes());
        let statement = statement(&digest);
        let good = bundle(&statement, PAYLOAD_TYPE);
        assert_eq!(check(&good), Ok(true));

        // Changes after the signature was made.
        let signature = good["dsseEnvelope"]["signatures"][0].clone();
        for (field, value) in [
            ("/dsseEnvelope/signatures", json!([signature.clone(), signature])),
            ("/dsseEnvelope/signatures", json!([])),
            ("/dsseEnvelope/signatures/0/sig", json!("%")),
            ("/dsseEnvelope/payload", json!("%")),
            ("/dsseEnvelope", Value::Null),
            ("/mediaType", json!("application/vnd.dev.sigstore.bundle+json;version=0.1")),
        ] {
            let mut changed = good.clone();
            *changed.pointer_mut(field).unwrap() = value;
            assert!(matches!(check(&changed), Err(SignatureFlaw::Malformed(_))), "{changed}");
        }
        let mut changed = good.clone();
        changed["dsseEnvelope"]["payloadType"] = json!("text/plain");
        assert!(matches!(check(&changed), Err(SignatureFlaw::OtherSigner(_))));

        // Statements that the key has signed.
        for (field, value, is_attestation) in [
            ("/predicateType", json!("https://slsa.dev/provenance/v1"), true),
            ("/subject/0/digest", json!({ "sha512": "00" }), false),
            ("/subject", json!([]), false),
            ("/subject/0/digest/sha256", json!("00"), false),
        ] {
            let mut other = statement.clone();
            *other.pointer_mut(field).unwrap() = value;
            match check(&bundle(&other, PAYLOAD_TYPE)) {
                Ok(false) => assert!(is_attestation, "{other}"),
                Err(SignatureFlaw::OtherImage(_)) => assert!(!is_attestation, "{other}"),
                checked => panic!("{other}: {checked:?}"),
            }
        }
        assert!(matches!(
            check(&bundle(&statement, "application/json")),
            Err(SignatureFlaw::OtherImage(_))
        ));
    }

    #[test]
    fn other_artifacts_are_not_fetched() {
        let entry = |kind: Option<&str>, predicate: Option<&str>| OciDescriptor {
            artifact_type: kind.map(str::to_owned),
            annotations: predicate.map(|predicate| {
                let annotations = json!({ PREDICATE_ANNOTATION: predicate });
                serde_json::from_value(annotations).unwrap()
            }),
            ..OciDescriptor::from_bytes(b"")
        };
        for (kind, predicate, expected) in [
            (Some(MEDIA_TYPE), Some(SIGN_PREDICATE), true),
            (Some(MEDIA_TYPE), None, true),
            (None, None, true),
            (Some(EMPTY_TYPE), None, true),
            (Some(MEDIA_TYPE), Some("https://slsa.dev/provenance/v1"), false),
            (Some("application/spdx+json"), None, false),
        ] {
            assert_eq!(may_be_signature(&entry(kind, predicate)), expected, "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn any_document_is_accepted_or_refused(document in "\\PC{0,200}") {
            let (key, _) = key_pair();
            let digest = OciDigest::sha256_of(b"image").unwrap();
            prop_assert!(check_signature(&key, &digest, document.as_bytes()).is_err());
        }
    }
}
