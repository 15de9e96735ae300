//! Answers of vSphere: responses, faults, names of objects.

use datapath::error::{SourceError, SourceErrorKind};
use http::StatusCode;

use crate::words::plain;
use crate::xml::{Element, escaped};

/// Longest name of an object.
const MAX_NAME_BYTES: usize = 128;

/// An object of vSphere: its type and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) kind: &'static str,
    pub(super) name: String,
}

impl Reference {
    /// The object that is called this.
    pub(super) fn new(kind: &'static str, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
        }
    }

    /// An object that the server names. Names become arguments of nbdkit, and real ones are like `vm-42` or `12-snapshot-3`.
    pub(super) fn found(kind: &'static str, name: &str) -> Result<Self, SourceError> {
        let name = name.trim();
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let begins = name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_usual) {
            return Ok(Self::new(kind, name));
        }
        let message = format!(
            "vSphere calls a {kind} {:?}, which is no name of an object",
            plain(name)
        );
        Err(SourceError::new(SourceErrorKind::Invalid, message))
    }

    /// The reference as XML, in an element named `element`.
    pub(super) fn xml(&self, element: &str) -> String {
        let (kind, name) = (self.kind, escaped(&self.name));
        format!("<{element} type=\"{kind}\">{name}</{element}>")
    }
}

/// The element with which `envelope` answers a call of `method`.
pub(super) fn response(method: &str, status: StatusCode, envelope: &[u8]) -> Result<Element, SourceError> {
    let body = Element::parse(envelope)
        .ok()
        .filter(|envelope| envelope.name == "Envelope")
        .and_then(|envelope| envelope.into_child("Body"))
        .and_then(first);
    match body {
        Some(fault) if fault.name == "Fault" => Err(fault_error(method, &fault)),
        Some(response) if status.is_success() => Ok(response),
        _ => {
            let code = status.as_u16();
            let message =
                format!("vSphere answers {method} with status {code} and no SOAP: is this its URL?");
            Err(SourceError::new(SourceErrorKind::Status(code), message))
        }
    }
}

/// The first child of `element`.
pub(super) fn first(element: Element) -> Option<Element> {
    element.children.into_iter().next()
}

fn fault_error(method: &str, fault: &Element) -> SourceError {
    let text = plain(fault.text_of("faultstring").unwrap_or("no reason"));
    SourceError::new(
        SourceErrorKind::Invalid,
        format!("vSphere refuses {method}: {text}"),
    )
}
