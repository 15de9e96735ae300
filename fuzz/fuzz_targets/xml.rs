//! Any XML of an engine, of vSphere and of object stores: what is understood means the same when it is written again, names that become
//! arguments are names, and errors are sentences.

#![no_main]

use fuzz::assert_sentence;
use fuzz::source::objects::store_error;
use fuzz::source::{document, vddk};
use http::StatusCode;
use libfuzzer_sys::fuzz_target;

/// The disk of which changed areas are told.
const DISK_BYTES: u64 = 1 << 40;

/// What may be an argument of nbdkit.
fn is_object(name: &str) -> bool {
    let is_usual = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    name.starts_with(|char: char| char.is_ascii_alphanumeric())
        && name.chars().all(is_usual)
        && name.len() <= 128
}

fuzz_target!(|data: &[u8]| {
    match document(data) {
        Ok(written) => assert_eq!(document(written.as_bytes()).as_ref(), Ok(&written)),
        Err(sentence) => assert_sentence(&sentence),
    }
    for status in [StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR] {
        match vddk::object(status, data) {
            Ok(object) => assert!(object.is_none_or(|name| is_object(&name))),
            Err(error) => assert_sentence(&error.to_string()),
        }
    }
    match vddk::changes(data, DISK_BYTES) {
        Some(Ok(changes)) => assert!(changes.ranges().iter().all(|range| range.end <= DISK_BYTES)),
        Some(Err(error)) => assert_sentence(&error.to_string()),
        None => {}
    }
    if let Some((sentence, _)) = store_error(data) {
        assert_sentence(&sentence);
    }
});
