//! Clear-signed text (RFC 9580 §7), as Fedora publishes its lists of checksums.
//!
//! Only the text that was hashed is returned. Everything around it is refused: a reader of the
//! file would take it for signed.

use super::OpenPgpError;
use super::certificate::Keyring;
use super::verify::DetachedSignature;

const BEGIN: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const BEGIN_SIGNATURE: &str = "-----BEGIN PGP SIGNATURE-----";
const END_SIGNATURE: &str = "-----END PGP SIGNATURE-----";

/// The parts of a clear-signed document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearSigned {
    /// The signed lines, each as it was hashed.
    lines: Vec<String>,
    /// The armoured signatures.
    signature: String,
}

/// True if `text` claims to be clear-signed. Any line may begin it, because a reader who skips the
/// lines before would see a signed document.
pub fn is_clear_signed(text: &str) -> bool {
    text.lines().any(|line| line.trim_end() == BEGIN)
}

impl ClearSigned {
    /// Splits a document into its parts.
    pub fn parse(text: &str) -> Result<Self, OpenPgpError> {
        let malformed = |what| Err(OpenPgpError::Malformed(what));
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
        if lines.next().map(str::trim_end) != Some(BEGIN) {
            return malformed("it has text before the signed one");
        }
        for line in lines.by_ref() {
            match line.trim_end() {
                "" => break,
                header if header.starts_with("Hash: ") => {}
                _ => return malformed("it has text among its headers"),
            }
        }
        let mut signed = Vec::new();
        let mut has_signature = false;
        for line in lines.by_ref() {
            if line.trim_end() == BEGIN_SIGNATURE {
                has_signature = true;
                break;
            }
            let line = match line.strip_prefix("- ") {
                Some(escaped) => escaped,
                None if line.starts_with('-') => {
                    return malformed("a line of it begins with a dash that is not escaped");
                }
                None => line,
            };
            signed.push(line.trim_end_matches([' ', '\t']).to_owned());
        }
        let mut signature = format!("{BEGIN_SIGNATURE}\n");
        let mut has_end = false;
        for line in lines.by_ref() {
            signature.push_str(line);
            signature.push('\n');
            if line.trim_end() == END_SIGNATURE {
                has_end = true;
                break;
            }
        }
        if !has_signature || !has_end {
            return malformed("its signature is missing or truncated");
        }
        if lines.any(|line| !line.trim().is_empty()) {
            return malformed("it has text after the signature");
        }
        Ok(Self { lines: signed, signature })
    }

    /// The text that is signed.
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// Verifies the text. Returns the fingerprint of the key that signed it.
    pub fn verify(&self, keyring: &Keyring) -> Result<String, OpenPgpError> {
        let signatures = DetachedSignature::parse(self.signature.as_bytes())?.of_text();
        signatures.verify(self.lines.join("\r\n").as_bytes(), keyring)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> String {
        format!("{BEGIN}\nHash: SHA256\n\n{text}{BEGIN_SIGNATURE}\n\nAAAA\n{END_SIGNATURE}\n")
    }

    #[test]
    fn the_signed_text_has_neither_escapes_nor_trailing_spaces() {
        let parsed = ClearSigned::parse(&document("a \t\n- -b\n- c\r\n\n")).unwrap();
        assert_eq!(parsed.lines, ["a", "-b", "c", ""]);
        assert_eq!(parsed.text(), "a\n-b\nc\n");
        assert_eq!(
            ClearSigned::parse(&document("a\n").replace('\n', "\r\n")).unwrap().lines,
            ["a"]
        );
        assert_eq!(ClearSigned::parse(&document("")).unwrap().lines, [""; 0]);
    }

    #[test]
    fn text_that_is_not_signed_is_refused() {
        let good = document("a\n");
        assert!(is_clear_signed(&good) && is_clear_signed(&format!("x\n{good}")));
        assert!(!is_clear_signed("a\n"));
        for (forged, reason) in [
            (format!("x\n{good}"), "before"),
            (format!("\n{good}"), "before"),
            (format!("{good}x\n"), "after"),
            (format!("{good}{good}"), "after"),
            (good.replace("Hash: SHA256", "Comment: x"), "among"),
            (good.replace("SHA256\n\n", "SHA256\nx\n\n"), "among"),
            (document("-a\n"), "dash"),
            (document(&good), "dash"),
            (good.replace(END_SIGNATURE, ""), "missing"),
            (good.replace(BEGIN_SIGNATURE, ""), "dash"),
            (format!("{BEGIN}\n\na\n"), "missing"),
        ] {
            let error = ClearSigned::parse(&forged).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}\n{forged}");
        }
    }

    proptest! {
        /// Text that is escaped as the specification says comes back.
        #[test]
        fn any_text_comes_back(lines in prop::collection::vec("[ -~]{0,9}", 0..5)) {
            let escaped: String = lines
                .iter()
                .map(|line| if line.starts_with('-') { format!("- {line}\n") } else { format!("{line}\n") })
                .collect();
            // `- ` at the beginning is always an escape, so it needs one itself.
            let parsed = ClearSigned::parse(&document(&escaped)).unwrap();
            let stripped: Vec<_> = lines.iter().map(|line| line.trim_end_matches(' ')).collect();
            prop_assert_eq!(parsed.lines, stripped);
        }

        #[test]
        fn any_text_is_a_document_or_refused(text in "(-----(BEGIN|END) PGP (SIGNED MESSAGE|SIGNATURE)-----|- |\\PC{0,9}|\n){0,9}") {
            ClearSigned::parse(&text).ok();
        }
    }
}
