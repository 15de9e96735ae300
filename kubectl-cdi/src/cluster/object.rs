//! Access to fields of objects. Other programs have written the objects, so any field may be
//! absent or have another type.

use serde_json::{Map, Value, json};

/// Prefix of CDI's annotations.
pub(crate) const PREFIX: &str = "cdi.kubevirt.io/";

/// Maximum number of characters that are shown of a message from another program.
const WORDS_CHARS: usize = 1 << 10;

/// Returns the string at this JSON pointer.
pub(crate) fn text_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

/// Returns the elements of the array at this JSON pointer, or an empty slice if the value is not
/// an array.
pub(crate) fn list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the CDI annotation `name`, given without CDI's prefix.
pub(crate) fn cdi_annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][format!("{PREFIX}{name}")].as_str()
}

/// Returns the condition of this type.
pub(crate) fn find_condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list_at(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

/// Builds a JSON object from the fields that have a value.
pub(crate) fn object_of<const N: usize>(fields: [(&str, Option<&str>); N]) -> Map<String, Value> {
    let fields = fields.into_iter();
    fields.filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))).collect()
}

/// Converts a message from another program to one line that is safe to print. Returns `None` if
/// the message is absent or empty.
pub(crate) fn printable_text(text: Option<&str>) -> Option<String> {
    text.map(printable_line).filter(|words| !words.is_empty())
}

/// Converts a message from another program to one line that is safe to print.
pub(crate) fn printable_line(words: &str) -> String {
    printable::escape_line(words, WORDS_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_and_fields_of_another_type_are_ignored() {
        let object = json!({
            "metadata": {"annotations": {"cdi.kubevirt.io/storage.pod.ready": "true", "cdi.kubevirt.io/odd": 1}},
            "status": {"phase": 3, "conditions": [{"type": "Running", "message": " a\nb "}]},
        });
        assert_eq!(cdi_annotation(&object, "storage.pod.ready"), Some("true"));
        assert_eq!(cdi_annotation(&object, "odd"), None);
        assert_eq!(text_at(&object, "/status/phase"), None);
        assert!(list_at(&object, "/status/phase").is_empty());
        let message =
            find_condition(&object, "Running").and_then(|found| text_at(found, "/message"));
        assert_eq!(printable_text(message).as_deref(), Some("a b"));
        assert_eq!(find_condition(&object, "Bound"), None);
        assert_eq!(printable_text(Some(" \n")), None);
        assert_eq!(cdi_annotation(&Value::Null, "odd"), None);
    }
}
