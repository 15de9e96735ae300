//! Parses any XML of an oVirt engine, of vSphere and of object stores: a parsed document means the
//! same when it is written and parsed again, object names are safe as arguments, and errors are
//! printable messages.

use crate::assert_sentence;
use crate::source::objects::store_error;
use crate::source::{document, vddk};
use http::StatusCode;

/// Size of the disk whose changed areas are parsed.
const DISK_BYTES: u64 = 1 << 40;

/// Returns whether the name may be passed to nbdkit as an argument.
fn is_object(name: &str) -> bool {
    let is_usual = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    name.starts_with(|char: char| char.is_ascii_alphanumeric())
        && name.chars().all(is_usual)
        && name.len() <= 128
}

pub fn run(data: &[u8]) {
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
}
