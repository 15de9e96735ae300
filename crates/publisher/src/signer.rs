//! The signer that a container image must have.

/// A signed document that was found for an image.
#[derive(Debug, Clone, Copy)]
pub struct SignedDocument<'a> {
    /// The bytes that the signature covers.
    pub signed: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
    /// The place of the signature, with the parts that identify the signer.
    pub form: SignatureForm<'a>,
}

/// A way in which signatures are stored, with the parts that identify the signer.
#[derive(Debug, Clone, Copy)]
pub enum SignatureForm<'a> {
    /// A layer by cosign up to 2, with the texts of its annotations.
    Layer {
        /// The certificate of the key, in PEM.
        certificate: Option<&'a str>,
        /// The entry of the transparency log, in JSON.
        log_entry: Option<&'a str>,
    },
    /// A Sigstore bundle.
    Bundle {
        /// The bundle, in JSON.
        document: &'a str,
        /// The SHA-256 of the image in hexadecimal, if it is named by that.
        image: Option<&'a str>,
    },
}

/// A publisher that must have signed an image.
pub trait ImageSigner: Send + Sync {
    /// Returns what messages call the signer.
    fn name(&self) -> String;

    /// Returns the option that demands a signature.
    fn option(&self) -> &'static str;

    /// Returns what a user can do if a signature is not the signer's.
    fn advice(&self) -> &'static str;

    /// Fails with the reason, in words for users, unless the signer has signed `document`.
    fn verify_signature(&self, document: &SignedDocument<'_>) -> Result<(), String>;
}
