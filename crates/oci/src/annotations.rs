//! Annotations of blobs and images (OCI image specification, "Annotations").

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Separates the keys and values in [`OciAnnotations`].
const SEPARATOR: char = '\0';

/// Longest key that an error shows, in characters.
const MAX_KEY_CHARS: usize = 80;

/// Keys and values that describe a blob. They are stored in one string: a manifest has room for
/// hundreds of thousands of them, and a map of small strings would take many times their length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OciAnnotations(
    /// `key NUL value NUL`, for each annotation.
    String,
);

impl OciAnnotations {
    /// Returns the value of the annotation `key`.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(SEPARATOR);
        let pairs = std::iter::from_fn(|| Some((parts.next()?, parts.next()?)));
        pairs.into_iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for OciAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnnotationVisitor)
    }
}

struct AnnotationVisitor;

impl<'de> Visitor<'de> for AnnotationVisitor {
    type Value = OciAnnotations;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OciAnnotations, A::Error> {
        let mut text = String::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            // No tool writes NUL, so an annotation that contains it can be dropped.
            if [&key, &value].iter().any(|part| part.contains(SEPARATOR)) {
                continue;
            }
            for part in [key, value] {
                text.push_str(&part);
                text.push(SEPARATOR);
            }
        }
        // Two readers could use two different values.
        if let Some(key) = repeated_key(&text) {
            let key = printable::escape_line(key, MAX_KEY_CHARS);
            return Err(A::Error::custom(format_args!("the annotation {key} is given twice")));
        }
        Ok(OciAnnotations(text))
    }
}

/// Returns a key that is in the text of [`OciAnnotations`] more than once.
fn repeated_key(text: &str) -> Option<&str> {
    // The keys are sorted in one list, because a set would take many times their length.
    let mut keys: Vec<_> = text.split_terminator(SEPARATOR).step_by(2).collect();
    keys.sort_unstable();
    keys.windows(2).find_map(|pair| match pair {
        [first, second] if first == second => Some(*first),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_found_by_their_key() {
        let text = r#"{"a":"1","b":"","a\u0000b":"x","c":"a"}"#;
        let annotations: OciAnnotations = serde_json::from_str(text).unwrap();
        for (key, value) in
            [("a", Some("1")), ("b", Some("")), ("c", Some("a")), ("1", None), ("", None)]
        {
            assert_eq!(annotations.get(key), value, "{key}");
        }
        for text in [r#"{"a":1}"#, r#"["a"]"#, r#"{"a":{}}"#] {
            assert!(serde_json::from_str::<OciAnnotations>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_given_twice_is_refused() {
        for text in [r#"{"a":"1","b":"","a":"2"}"#, r#"{"a":"","\u0061":""}"#] {
            let error = serde_json::from_str::<OciAnnotations>(text).unwrap_err().to_string();
            assert!(error.starts_with("the annotation a is given twice"), "{error}");
        }
        assert!(serde_json::from_str::<OciAnnotations>(r#"{"a":"b","b":"b"}"#).is_ok());
    }
}
