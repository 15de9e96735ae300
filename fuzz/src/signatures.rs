//! Replaces the crate `aws-lc-rs`, which would add a minute to the build. A signature is good
//! unless its last byte is 0, so that the fuzzer reaches the code behind.

#![allow(clippy::result_unit_err, reason = "nobody reads the stand-in's errors")]

use self::digest::Digest;

/// Hash functions. The files that are fuzzed compute digests themselves.
pub mod digest {
    pub struct Algorithm;
    pub struct Digest;

    pub static SHA1_FOR_LEGACY_USE_ONLY: Algorithm = Algorithm;
    pub static SHA256: Algorithm = Algorithm;
    pub static SHA512: Algorithm = Algorithm;

    impl Digest {
        pub fn import_less_safe(_digest: &[u8], _algorithm: &Algorithm) -> Result<Self, ()> {
            Ok(Self)
        }
    }
}

pub trait VerificationAlgorithm {}

pub struct Verification;

impl VerificationAlgorithm for Verification {}

pub static ECDSA_P256_SHA256_ASN1: Verification = Verification;
pub static ECDSA_P256_SHA512_ASN1: Verification = Verification;
pub static ED25519: Verification = Verification;
pub static RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY: Verification = Verification;
pub static RSA_PKCS1_2048_8192_SHA256: Verification = Verification;
pub static RSA_PKCS1_2048_8192_SHA512: Verification = Verification;

pub struct UnparsedPublicKey;

impl UnparsedPublicKey {
    pub fn new<B>(_algorithm: &'static dyn VerificationAlgorithm, _key: B) -> Self {
        Self
    }

    pub fn verify(&self, _message: &[u8], signature: &[u8]) -> Result<(), ()> {
        if signature.last().is_some_and(|last| *last != 0) { Ok(()) } else { Err(()) }
    }

    pub fn verify_digest(&self, _digest: &Digest, signature: &[u8]) -> Result<(), ()> {
        self.verify(&[], signature)
    }
}
