//! Signatures with a "simple signing" payload, as cosign up to 2 writes them (containers/image,
//! "containers-signature(5)"; cosign, "Signature Spec").

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use publisher::{ImageSigner, SignatureForm, SignedDocument};
use serde::Deserialize;

use super::SignatureFlaw;
use crate::digest::OciDigest;
use crate::manifest::OciDescriptor;

/// Media type of a layer with a payload.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

/// Annotation of the layer with the signature over the payload, in base64.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// Annotations of the layer with the certificate and the log entry of a key that was made for this
/// signature only.
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";

/// The type of payloads that sign an image.
const PAYLOAD_TYPE: &str = "cosign container image signature";

#[derive(Deserialize)]
struct SimplePayload {
    critical: CriticalPart,
}

#[derive(Deserialize)]
struct CriticalPart {
    #[serde(rename = "type")]
    payload_type: String,
    image: SignedImage,
}

#[derive(Deserialize)]
struct SignedImage {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Returns true if `signer` has signed `payload`, the content of `layer`, and it names `digest`.
pub fn check_signature(
    signer: &dyn ImageSigner,
    digest: &OciDigest,
    layer: &OciDescriptor,
    payload: &[u8],
) -> Result<bool, SignatureFlaw> {
    let malformed = |reason: &str| SignatureFlaw::Malformed(reason.to_owned());
    let signature = layer.annotation(SIGNATURE).ok_or_else(|| malformed("it is missing"))?;
    let signature = STANDARD.decode(signature).map_err(|_| malformed("it is not base64"))?;
    let form = SignatureForm::Layer {
        certificate: layer.annotation(CERTIFICATE),
        log_entry: layer.annotation(LOG_ENTRY),
    };
    let document = SignedDocument { signed: payload, signature: &signature, form };
    signer.verify_signature(&document).map_err(SignatureFlaw::OtherSigner)?;
    let payload: SimplePayload = serde_json::from_slice(payload)
        .map_err(|error| malformed(&format!("its payload cannot be read: {error}")))?;
    let SimplePayload { critical: CriticalPart { payload_type, image } } = payload;
    if payload_type != PAYLOAD_TYPE {
        return Err(SignatureFlaw::OtherImage(format!("a document of type {payload_type:?}")));
    }
    if image.digest != digest.to_string() {
        return Err(SignatureFlaw::OtherImage(image.digest));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::key_pair;
    use super::*;

    fn layer(signature: Option<&str>) -> OciDescriptor {
        let annotations = signature.map(|text| format!(r#"{{"{SIGNATURE}":"{text}"}}"#));
        OciDescriptor {
            annotations: annotations.map(|text| serde_json::from_str(&text).unwrap()),
            ..OciDescriptor::from_bytes(b"")
        }
    }

    fn payload(payload_type: &str, digest: &str) -> String {
        format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"h/a"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"{payload_type}"}},"optional":null}}"#
        )
    }

    #[test]
    fn a_signature_counts_for_its_own_image_only() {
        let (key, sign) = key_pair();
        let digest = OciDigest::sha256_of(b"image").unwrap();
        let check = |payload: &str| {
            let layer = layer(Some(&STANDARD.encode(sign(payload.as_bytes()))));
            check_signature(&key, &digest, &layer, payload.as_bytes())
        };
        let good = payload(PAYLOAD_TYPE, &digest.to_string());
        assert_eq!(check(&good), Ok(true));
        let other = OciDigest::sha256_of(b"other").unwrap().to_string();
        let is_other = |flaw| matches!(flaw, Err(SignatureFlaw::OtherImage(_)));
        assert!(is_other(check(&payload(PAYLOAD_TYPE, &other))));
        assert!(is_other(check(&payload("atomic container signature", &digest.to_string()))));
        let twice = good.replace(r#""type""#, &format!(r#""type":"{PAYLOAD_TYPE}","type""#));
        for malformed in ["{}", "", &good[1..], &twice] {
            assert!(matches!(check(malformed), Err(SignatureFlaw::Malformed(_))), "{malformed}");
        }
        for (signature, flaw) in [(None, "it is missing"), (Some("%"), "it is not base64")] {
            let checked = check_signature(&key, &digest, &layer(signature), good.as_bytes());
            assert_eq!(checked, Err(SignatureFlaw::Malformed(flaw.to_owned())));
        }
        let unsigned = check_signature(&key, &digest, &layer(Some("AAAA")), good.as_bytes());
        assert!(matches!(unsigned, Err(SignatureFlaw::OtherSigner(_))));
    }

    proptest! {
        #[test]
        fn any_signed_document_is_accepted_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let (key, sign) = key_pair();
            let digest = OciDigest::sha256_of(b"image").unwrap();
            let layer = layer(Some(&STANDARD.encode(sign(&bytes))));
            prop_assert!(check_signature(&key, &digest, &layer, &bytes).is_err());
        }
    }
}
