//! A JSON parser for API server responses that counts memory before it allocates it. Parsed JSON
//! may be much larger than its text: a map that is written in seven bytes may take a hundred times
//! as many.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use stream::memory::{MemoryGrant, MemoryLimitError};

/// The memory of a map. A node of its B-tree has room for 11 entries (640 bytes); in a map with
/// several nodes, at least 5 entries of each node are used.
const MAP_BYTES: u64 = 512;
const ENTRY_BYTES: u64 = 128;

/// The memory of an array element. An array may have room for twice its elements.
const ELEMENT_BYTES: u64 = 2 * size_of::<Value>() as u64;

/// The smallest heap allocation for a string.
const TEXT_BYTES: u64 = 24;

/// Step by which the memory grant is increased.
const STEP_BYTES: u64 = 64 << 10;

/// The metadata that records which program has set which field. It makes up half of an object and
/// is never used, so it is skipped.
const SKIPPED: &str = "managedFields";

/// Reasons why a JSON text cannot be parsed.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// The text is not valid JSON.
    Json(serde_json::Error),
    /// The parsed value would take too much memory.
    Memory(MemoryLimitError),
}

/// Parses the whole `text`. `memory` is increased by the size of the value.
pub(crate) fn parse(text: &[u8], memory: &mut MemoryGrant) -> Result<Value, ParseError> {
    let mut counter = MemoryCounter { taken: memory.granted_bytes(), memory, exceeded: None };
    let mut json = serde_json::Deserializer::from_slice(text);
    let value = counter.deserialize(&mut json);
    let value = value.and_then(|value| json.end().map(|()| value));
    match counter.exceeded {
        Some(exceeded) => Err(ParseError::Memory(exceeded)),
        None => value.map_err(ParseError::Json),
    }
}

/// Deserializes values and counts their memory.
struct MemoryCounter<'a> {
    memory: &'a mut MemoryGrant,
    taken: u64,
    exceeded: Option<MemoryLimitError>,
}

impl MemoryCounter<'_> {
    fn take_bytes<E: Error>(&mut self, bytes: u64) -> Result<(), E> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken <= self.memory.granted_bytes() {
            return Ok(());
        }
        let wanted = self.taken.saturating_add(STEP_BYTES);
        self.memory.resize(wanted).map_err(|exceeded| {
            let error = E::custom(&exceeded);
            // The cause is stored here, because serde_json's error keeps only the text.
            self.exceeded = Some(exceeded);
            error
        })
    }

    fn take_text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        self.take_bytes(TEXT_BYTES + text.len() as u64)
    }
}

impl<'de> DeserializeSeed<'de> for &mut MemoryCounter<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut MemoryCounter<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.take_text(text)?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(element) = elements.next_element_seed(&mut *self)? {
            self.take_bytes(ELEMENT_BYTES)?;
            array.push(element);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key == SKIPPED {
                entries.next_value::<IgnoredAny>()?;
                continue;
            }
            self.take_bytes(ENTRY_BYTES + if map.is_empty() { MAP_BYTES } else { 0 })?;
            self.take_text(&key)?;
            map.insert(key, entries.next_value_seed(&mut *self)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stream::memory::MemoryBudget;

    use super::*;

    #[test]
    fn values_equal_those_of_serde_json_without_managed_fields() {
        let value = json!({"a": [1, -2, 0.5, true, null, "x\n\u{1f600}"], "b": {"c": {}, "d": []}});
        let text = value.to_string();
        let mut memory = MemoryBudget::new(1 << 20).empty_grant();
        assert_eq!(parse(text.as_bytes(), &mut memory).unwrap(), value);
        let text = r#"{"metadata": {"name": "x", "managedFields": [{"f:a": {}}]}}"#;
        let read = parse(text.as_bytes(), &mut memory).unwrap();
        assert_eq!(read, json!({"metadata": {"name": "x"}}));
        for broken in ["", "{", "[1,]", "{} {}", &"[".repeat(1000)] {
            let error = parse(broken.as_bytes(), &mut memory).unwrap_err();
            assert!(matches!(error, ParseError::Json(_)), "{broken}");
        }
    }

    #[test]
    fn memory_is_counted_for_every_kind_of_value() {
        const LIMIT: u64 = 1 << 20;
        let repeated = |piece: &str, count: usize| format!("[{}0]", piece.repeat(count));
        for (piece, least) in
            [("0,", 64), ("[],", 64), (r#"{"":0},"#, 64 + 640), (r#""","#, 64 + 24)]
        {
            let fits = usize::try_from((LIMIT - 2 * STEP_BYTES) / (least + 100)).unwrap();
            let mut memory = MemoryBudget::new(LIMIT).empty_grant();
            parse(repeated(piece, fits).as_bytes(), &mut memory).unwrap();
            let too_many = usize::try_from(LIMIT / least).unwrap() + 1;
            let mut memory = MemoryBudget::new(LIMIT).empty_grant();
            let error = parse(repeated(piece, too_many).as_bytes(), &mut memory).unwrap_err();
            assert!(matches!(error, ParseError::Memory(_)), "{piece}");
        }
        let text = format!("\"{}\"", "x".repeat(2 << 20));
        let error =
            parse(text.as_bytes(), &mut MemoryBudget::new(LIMIT).empty_grant()).unwrap_err();
        assert!(matches!(error, ParseError::Memory(_)));
    }

    #[test]
    fn several_documents_share_one_budget() {
        let text = format!("[{}0]", "0,".repeat(5000));
        let mut memory = MemoryBudget::new(1 << 20).empty_grant();
        let mut read = 0;
        while parse(text.as_bytes(), &mut memory).is_ok() {
            read += 1;
        }
        assert!((2..4).contains(&read), "{read}");
    }
}
