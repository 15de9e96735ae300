//! Error messages of registries.

use serde::Deserialize;

use fetch::messages::plain_line;
use stream::error::SourceAdvice;

/// Maximum number of errors of one response that are repeated.
const MAX_ERRORS: usize = 3;

/// The error document of a registry (distribution specification, "Error Codes") or of a token
/// service, which may use other fields.
#[derive(Deserialize)]
struct RegistryErrorDocument {
    #[serde(default)]
    errors: Vec<RegistryErrorEntry>,
    details: Option<String>,
    error_description: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct RegistryErrorEntry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Formats the errors in `body` as `: CODE: message`, and returns the remedy for the first that has
/// one. The text is empty if `body` is not an error document.
pub fn error_summary(body: &[u8]) -> (String, Option<SourceAdvice>) {
    let Ok(document) = serde_json::from_slice::<RegistryErrorDocument>(body) else {
        return Default::default();
    };
    let mut codes = document.errors.iter().map(|error| &error.code);
    let advice = codes.find_map(|code| SourceAdvice::of_server_code(code));
    let errors =
        document.errors.into_iter().map(|RegistryErrorEntry { code, message }| [code, message]);
    let others = [document.details, document.error_description, document.message];
    let sentences: Vec<String> = errors
        .map(|words| words.map(|word| plain_line(&word)))
        .map(|words| {
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(": ")
        })
        .chain(others.into_iter().flatten().map(|text| plain_line(&text)))
        .filter(|sentence| !sentence.is_empty())
        .take(MAX_ERRORS)
        .collect();
    let text =
        if sentences.is_empty() { String::new() } else { format!(": {}", sentences.join("; ")) };
    (text, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_are_repeated_and_other_documents_are_not() {
        for (body, expected) in [
            (
                r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"Tag":"x"}}]}"#,
                ": MANIFEST_UNKNOWN: manifest unknown",
            ),
            (r#"{"errors":[{"code":"A"},{"message":"b\nc"},{}]}"#, ": A; b c"),
            (r#"{"details":"incorrect username or password"}"#, ": incorrect username or password"),
            (r#"{"errors":"many"}"#, ""),
            ("<html>", ""),
            ("{}", ""),
        ] {
            assert_eq!(error_summary(body.as_bytes()).0, expected);
        }
        let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(1000));
        assert!(error_summary(long.as_bytes()).0.len() < 400);
    }
}
