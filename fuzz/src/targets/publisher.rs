//! Parses any evidence of a publisher: keys, keyrings, OpenPGP signatures, lists of checksums,
//! cosign signatures. Checks that an accepted checksum, text or digest occurs in the input, and
//! that errors are printable. The stand-in for aws-lc accepts most signatures; see
//! `crate::signatures`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use stream::error::{SourceError, SourceErrorKind};

use oci::cosign::{SignatureFlaw, bundle, simple};
use oci::digest::OciDigest;
use oci::manifest::OciDescriptor;
use publisher::openpgp::{ClearSigned, DetachedSignature, Keyring, OpenPgpError, is_clear_signed};
use publisher::{PublisherKey, sums};

use crate::assert_sentence;

/// The name of the image in lists, and its digest in signatures of cosign.
const NAME: &str = "disk.img";
const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A key of a point that is not on the curve.
const KEY: &[u8] = b"-----BEGIN PUBLIC KEY-----
MBkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDAgAE
-----END PUBLIC KEY-----
";

/// The bytes that are signed: none of the others matters to the stand-in.
const DOCUMENT: &[u8] = b"document";

/// Checks a reason as a part of an error message.
fn assert_reason(reason: String) {
    assert_sentence(&SourceError::new(SourceErrorKind::Signature, reason).to_string());
}

fn is_fingerprint(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_openpgp(keyring: &Keyring, evidence: &[u8]) {
    let signer = DetachedSignature::parse(evidence)
        .and_then(|signature| signature.verify(DOCUMENT, keyring));
    match signer {
        Ok(fingerprint) => assert!(is_fingerprint(&fingerprint), "{fingerprint}"),
        Err(error) => assert_reason(error.to_string()),
    }
    let document = String::from_utf8_lossy(evidence);
    if is_clear_signed(&document)
        && let Err(error) = check_clear_signed(&document, keyring)
    {
        assert_reason(error.to_string());
    }
}

fn check_clear_signed(document: &str, keyring: &Keyring) -> Result<(), OpenPgpError> {
    let signed = ClearSigned::parse(document)?;
    let fingerprint = signed.verify(keyring)?;
    assert!(is_fingerprint(&fingerprint), "{fingerprint}");
    let text = signed.text();
    let is_part = text.lines().all(|line| document.contains(line));
    assert!(is_part, "a line that is not a part of the document: {text:?}");
    Ok(())
}

fn check_list(text: &str) {
    match sums::find_checksum(text, &[NAME]) {
        Ok(checksum) => {
            let checksum = checksum.to_string();
            let (_, hex) = checksum.split_once(':').expect("an algorithm and digits");
            assert!(text.to_ascii_lowercase().contains(hex) && text.contains(NAME), "{checksum}");
        }
        Err(error) => assert_reason(error.to_string()),
    }
}

fn check_cosign(key: &PublisherKey, evidence: &[u8]) {
    let digest = OciDigest::try_from(format!("sha256:{HEX}")).expect("a digest");
    let has_digest = |document: &[u8]| {
        serde_json::from_slice::<Value>(document)
            .is_ok_and(|document| document.to_string().contains(HEX))
    };
    let bundled = bundle::check_signature(key, &digest, evidence);
    if bundled == Ok(true) {
        let bundle: Value = serde_json::from_slice(evidence).expect("a document that was read");
        let payload = bundle["dsseEnvelope"]["payload"].as_str().expect("a payload");
        assert!(has_digest(&STANDARD.decode(payload).expect("base64")), "{bundle}");
    }
    // The descriptor of the layer comes first.
    let at = evidence.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (descriptor, payload) = evidence.split_at(at);
    let layer = serde_json::from_slice::<OciDescriptor>(descriptor);
    let signed =
        layer.map_or(Ok(false), |layer| simple::check_signature(key, &digest, &layer, payload));
    if signed == Ok(true) {
        assert!(has_digest(payload), "{descriptor:?}");
    }
    for checked in [bundled, signed] {
        if let Err(
            SignatureFlaw::OtherSigner(text)
            | SignatureFlaw::Malformed(text)
            | SignatureFlaw::OtherImage(text),
        ) = checked
        {
            assert_reason(text);
        }
    }
}

pub fn run(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (keyring, evidence) = rest.split_at(length);
    match Keyring::parse(keyring) {
        Ok(keyring) => check_openpgp(&keyring, evidence),
        Err(error) => assert_reason(error.to_string()),
    }
    check_list(&String::from_utf8_lossy(evidence));
    if let Err(error) = PublisherKey::from_pem(evidence) {
        assert_reason(error.to_string());
    }
    check_cosign(&PublisherKey::from_pem(KEY).expect("a key"), evidence);
}
