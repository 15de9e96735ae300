//! The evidence that a user demands of an image's publisher: a list of checksums, perhaps signed,
//! or a signature of the image itself.

use std::path::Path;

use fetch::http::redact_endpoint;
use fetch::scheme::find_scheme;
use stream::digest::Checksum;
use stream::error::{SourceError, SourceErrorKind};
use url::Url;

use super::document::{Document, DocumentReader, is_url, read_file};
use super::key::{MAX_KEY_FILE_BYTES, PublisherKey, PublisherKeyError};
use super::openpgp::{
    ClearSigned, DetachedSignature, ExpectedSignature, Keyring, MAX_KEYRING_BYTES,
    MAX_SIGNATURE_FILE_BYTES, OpenPgpError, is_clear_signed,
};
use super::sums::{ChecksumListError, MAX_SUMS_BYTES, find_checksum};
use super::{EvidenceError, signature_error};

/// Endings by which publishers name the signature of a list: Ubuntu, Debian, AlmaLinux.
const SIGNATURE_ENDINGS: [&str; 3] = [".gpg", ".sign", ".asc"];

/// Statuses of servers that do not have a file; stores that may not be listed answer 403.
const MISSING: [u16; 3] = [403, 404, 410];

/// A list of checksums that a user trusts, and how.
#[derive(Debug, Clone)]
pub struct ListDemand {
    /// The URL or path of the list.
    pub place: String,
    /// The keys that may have signed it; `None` accepts a list without a signature.
    pub keyring: Option<Keyring>,
    /// The URL or path of its signature; `None` looks beside the list.
    pub signature: Option<String>,
}

/// A list that was read, and verified if a keyring was given.
#[derive(Debug, Clone)]
pub struct TrustedList {
    place: String,
    text: String,
    /// True if nobody on the way can have changed the list.
    pub is_protected: bool,
}

impl ListDemand {
    /// Reads the list and verifies its signature.
    pub fn read(&self, reader: &DocumentReader) -> Result<TrustedList, EvidenceError> {
        let Self { place, .. } = self;
        let list = reader.read("--verify-sums", place, MAX_SUMS_BYTES)?;
        let scheme = reader.image.as_ref().map_or("", Url::scheme);
        let is_secure = scheme == "https"
            || find_scheme(scheme).is_some_and(|scheme| scheme.kind.is_object_store());
        let shown = shown_place(place);
        if !list.is_protected && is_secure && self.keyring.is_none() {
            return Err(signature_error(format!(
                "{shown} came over plain HTTP, so anybody on the way can have changed it: use https for --verify-sums too, or --keyring"
            ))
            .into());
        }
        let text = String::from_utf8_lossy(&list.bytes).into_owned();
        let clear = is_clear_signed(&text).then(|| ClearSigned::parse(&text)).transpose();
        let clear = clear.map_err(|error| refused(place, &error))?;
        if let Some(keyring) = &self.keyring {
            let signer = match (&clear, &self.signature) {
                (Some(clear), None) => {
                    clear.verify(keyring).map_err(|error| refused(place, &error))?
                }
                (_, signature) => {
                    let (place, signature) = match signature {
                        Some(place) => (place.clone(), read_signature(reader, place)?),
                        None => self.find_signature(reader)?,
                    };
                    DetachedSignature::parse(&signature.bytes)
                        .and_then(|signature| signature.verify(&list.bytes, keyring))
                        .map_err(|error| refused(&place, &error))?
                }
            };
            tracing::info!("{shown} is signed by the key {signer}");
        }
        Ok(TrustedList {
            place: place.clone(),
            text: clear.map_or(text, |clear| clear.text()),
            is_protected: list.is_protected || self.keyring.is_some(),
        })
    }

    /// Reads the signature that is stored beside the list.
    fn find_signature(&self, reader: &DocumentReader) -> Result<(String, Document), EvidenceError> {
        for place in signature_places(&self.place) {
            if !is_url(&place) && !Path::new(&place).exists() {
                continue;
            }
            match read_signature(reader, &place) {
                Err(EvidenceError::Source(error)) if matches!(error.kind(), SourceErrorKind::Status(status) if MISSING.contains(&status)) =>
                    {}
                read => return Ok((place, read?)),
            }
        }
        Err(signature_error(format!(
            "{} is not signed: no signature beside it ({}); name it with --signature, or leave out --keyring",
            shown_place(&self.place),
            SIGNATURE_ENDINGS.join(", ")
        ))
        .into())
    }
}

impl TrustedList {
    /// Returns the checksum of the image that was asked for by the name `asked`; `None` if the
    /// list does not have this name.
    pub fn find_asked(&self, asked: &str) -> Result<Option<Checksum>, SourceError> {
        match find_checksum(&self.text, &[asked]) {
            Err(ChecksumListError::NotListed(_)) => Ok(None),
            found => found.map(Some).map_err(|error| self.describe(&error)),
        }
    }

    /// Returns the checksum of an image that was asked for by one name, and served by another.
    pub fn find(&self, asked: &str, served: &str) -> Result<Checksum, SourceError> {
        let checksum = find_checksum(&self.text, &[asked, served]);
        let checksum = checksum.map_err(|error| self.describe(&error))?;
        tracing::info!("{} lists the image with {checksum}", shown_place(&self.place));
        Ok(checksum)
    }

    fn describe(&self, error: &ChecksumListError) -> SourceError {
        let advice = match error {
            ChecksumListError::NoList | ChecksumListError::NotListed(_) => {
                "check --verify-sums and the name of the image"
            }
            ChecksumListError::Ambiguous(..) => "pass the right one with --checksum",
            ChecksumListError::Weak(..) => "to accept it all the same, pass it with --checksum",
        };
        let place = shown_place(&self.place);
        signature_error(format!("{place} cannot verify the image: {error}; {advice}"))
    }
}

/// Reads the signature of an image at `place`. Fails unless a key of `keyring` that may sign has
/// made it.
pub fn read_image_signature(
    reader: &DocumentReader,
    place: &str,
    keyring: &Keyring,
) -> Result<Vec<ExpectedSignature>, EvidenceError> {
    let signature = read_signature(reader, place)?;
    let signers = DetachedSignature::parse(&signature.bytes)
        .and_then(|signature| signature.find_signers(keyring));
    Ok(signers.map_err(|error| refused(place, &error))?)
}

fn read_signature(reader: &DocumentReader, place: &str) -> Result<Document, EvidenceError> {
    reader.read("--signature", place, MAX_SIGNATURE_FILE_BYTES)
}

/// Reads the file of `--verify-key`. A key that is understood, but not supported, is an error of
/// the kind [`SourceErrorKind::Signature`].
pub fn read_key_file(path: &Path) -> Result<PublisherKey, EvidenceError> {
    let pem = read_file("--verify-key", path, MAX_KEY_FILE_BYTES)?;
    PublisherKey::from_pem(&pem).map_err(|error| {
        let sentence = format!("the key {} cannot be used: {error}", path.display());
        match error {
            PublisherKeyError::NoKey => {
                EvidenceError::Usage(format!("{sentence}; check --verify-key"))
            }
            PublisherKeyError::Unsupported(_) => signature_error(sentence).into(),
        }
    })
}

/// Reads the file of `--keyring`.
pub fn read_keyring_file(path: &Path) -> Result<Keyring, EvidenceError> {
    let bytes = read_file("--keyring", path, MAX_KEYRING_BYTES)?;
    Keyring::parse(&bytes).map_err(|error| {
        let path = path.display();
        let advice = "export the keys with `gpg --export`";
        EvidenceError::Usage(format!("the keyring {path} cannot be used: {error}; {advice}"))
    })
}

fn refused(place: &str, error: &OpenPgpError) -> SourceError {
    let advice = match error {
        OpenPgpError::UnknownKey(_) => "check --keyring, and where the publisher names its keys",
        OpenPgpError::Mismatch => "fetch it again, or check --signature",
        OpenPgpError::Key(..) | OpenPgpError::Time(_) => {
            "look for a newer signature, or a newer --keyring"
        }
        OpenPgpError::Malformed(_) | OpenPgpError::Unsupported(_) => "check --signature",
    };
    let place = shown_place(place);
    signature_error(format!("the signature in {place} is refused: {error}; {advice}"))
}

/// Returns `place` for messages, without what may be a secret in a URL.
fn shown_place(place: &str) -> &str {
    if is_url(place) { redact_endpoint(place) } else { place }
}

/// Returns the places where the signature of the list at `place` is looked for.
pub fn signature_places(place: &str) -> [String; 3] {
    SIGNATURE_ENDINGS.map(|ending| with_ending(place, ending))
}

/// Returns the place of a file whose name has `ending` added.
fn with_ending(place: &str, ending: &str) -> String {
    match Url::parse(place) {
        Ok(mut url) if is_url(place) => {
            url.set_path(&format!("{}{ending}", url.path()));
            url.into()
        }
        _ => format!("{place}{ending}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_is_added_to_the_path() {
        for (place, beside) in [
            ("https://h/a/SUMS?x=1", "https://h/a/SUMS.gpg?x=1"),
            ("./SUMS", "./SUMS.gpg"),
            ("c:/SUMS", "c:/SUMS.gpg"),
        ] {
            assert_eq!(with_ending(place, ".gpg"), beside);
        }
    }
}
