//! Parses any XML of an oVirt engine, of vSphere and of object stores: a parsed document means the
//! same when it is written and parsed again, object names are safe as arguments, and errors are
//! printable messages.

use http::StatusCode;
use hypervisors::vddk::answer::{ManagedObjectReference, parse_response};
use hypervisors::vddk::areas::ChangedAreas;
use hypervisors::xml::{XmlElement, escape_text};
use stores::objects::StoreError;
use stream::changes::ChangedRanges;
use stream::error::SourceError;

use crate::assert_sentence;

/// Size of the disk whose changed areas are parsed.
const DISK_BYTES: u64 = 1 << 40;

/// Returns whether the name may be passed to nbdkit as an argument.
fn is_object(name: &str) -> bool {
    let is_usual = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    name.starts_with(|char: char| char.is_ascii_alphanumeric())
        && name.chars().all(is_usual)
        && name.len() <= 128
}

/// Parses `document` and writes it again. Names that are not plain are replaced, because the
/// parser accepts some that cannot be written unchanged.
fn document(document: &[u8]) -> Result<String, String> {
    let root = XmlElement::parse(document).map_err(|error| error.to_string())?;
    let mut text = String::new();
    write(&root, &mut text);
    Ok(text)
}

fn write(element: &XmlElement, text: &mut String) {
    let is_plain =
        |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let name = Some(element.name.as_str()).filter(is_plain).unwrap_or("other");
    let id = element.id.as_deref().filter(is_plain);
    let id = id.map(|id| format!(" id=\"{id}\"")).unwrap_or_default();
    *text += &format!("<{name}{id}>{}", escape_text(&element.text));
    for child in &element.children {
        write(child, text);
    }
    *text += &format!("</{name}>");
}

/// Returns the name of the object in the reply `envelope` of vSphere.
fn object(status: StatusCode, envelope: &[u8]) -> Result<String, SourceError> {
    let found = parse_response("FindByUuid", status, envelope)?;
    Ok(ManagedObjectReference::from_name("VirtualMachine", &found.text)?.name)
}

/// Returns the changed ranges according to the first page of a reply of vSphere.
fn changes(page: &[u8]) -> Option<Result<ChangedRanges, SourceError>> {
    let page = XmlElement::parse(page).ok()?;
    let mut areas = ChangedAreas::default();
    let added = areas.add_page(&page, 0, DISK_BYTES);
    Some(added.and_then(|_| areas.into_changes(DISK_BYTES)))
}

pub fn run(data: &[u8]) {
    match document(data) {
        Ok(written) => assert_eq!(document(written.as_bytes()).as_ref(), Ok(&written)),
        Err(sentence) => assert_sentence(&sentence),
    }
    for status in [StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR] {
        match object(status, data) {
            Ok(name) => assert!(is_object(&name)),
            Err(error) => assert_sentence(&error.to_string()),
        }
    }
    match changes(data) {
        Some(Ok(changes)) => assert!(changes.ranges().iter().all(|range| range.end <= DISK_BYTES)),
        Some(Err(error)) => assert_sentence(&error.to_string()),
        None => {}
    }
    if let Some(error) = StoreError::parse(data) {
        assert_sentence(&error.error_message());
    }
}
