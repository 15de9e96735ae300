//! Responses of vSphere: results, faults and references to objects.

use std::error::Error;

use fetch::error::invalid_error;
use fetch::messages::plain_line;
use http::StatusCode;
use serde::Serialize;
use stream::error::{SourceError, SourceErrorKind};

use crate::xml::{XmlElement, escape_text};

/// Longest name of an object, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// A reference to an object of vSphere: its type and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ManagedObjectReference {
    #[serde(skip)]
    pub(crate) kind: &'static str,
    pub name: String,
}

impl ManagedObjectReference {
    /// Creates a reference to the object called `name`.
    pub(crate) fn new(kind: &'static str, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// Creates a reference to an object from the name that the server returned. Names become
    /// arguments of nbdkit, so unusual characters are rejected. Real names look like `vm-42` or
    /// `12-snapshot-3`.
    pub fn from_name(kind: &'static str, name: &str) -> Result<Self, SourceError> {
        let name = name.trim();
        let is_usual =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && name.len() <= MAX_NAME_BYTES && name.bytes().all(is_usual) {
            return Ok(Self::new(kind, name));
        }
        Err(invalid_error(format!(
            "vSphere returned {:?} as the name of a {kind}, which is not a valid object name",
            plain_line(name)
        )))
    }

    /// Formats the reference as XML, in an element named `element`.
    pub(crate) fn to_xml(&self, element: &str) -> String {
        format!("<{element} type=\"{}\">{}</{element}>", self.kind, escape_text(&self.name))
    }
}

/// A fault, with vSphere's text.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct VsphereFault {
    /// Name of the fault's type, such as `NotAuthenticated`.
    pub(crate) kind: String,
    sentence: String,
}

impl VsphereFault {
    /// Returns the fault if one is why a call failed with `error`; `None` if vSphere sent no usable
    /// response.
    pub fn of(error: &SourceError) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    fn new<'d>(method: &str, detail: Option<&'d XmlElement>, text: &str) -> Self {
        // The simulator calls every element `Fault` and gives the type only as an attribute;
        // vSphere gives both.
        let named =
            |detail: &'d XmlElement| detail.kind.as_deref().or(detail.name.strip_suffix("Fault"));
        let kind = detail.and_then(named).unwrap_or_default();
        Self {
            kind: plain_line(kind.rsplit(':').next().unwrap_or(kind)),
            sentence: format!("vSphere refuses {method}: {}", plain_line(text)),
        }
    }

    /// Creates the fault of a lease in this `state`, with its property `error`.
    pub(super) fn from_state(state: &str, error: Option<&XmlElement>) -> Self {
        let text = error.and_then(|error| error.text_of("localizedMessage"));
        let text = text.map_or_else(|| format!("its state is {state:?}"), str::to_owned);
        Self::new("the lease", error.and_then(|error| error.child("fault")), &text)
    }
}

/// Returns the result in `envelope`, the response to a call of `method`; an empty element if the
/// method returns nothing.
pub fn parse_response(
    method: &str,
    status: StatusCode,
    envelope: &[u8],
) -> Result<XmlElement, SourceError> {
    let body = XmlElement::parse(envelope)
        .ok()
        .filter(|envelope| envelope.name == "Envelope")
        .and_then(|envelope| envelope.into_child("Body"))
        .and_then(first_child);
    match body {
        Some(fault) if fault.name == "Fault" => {
            let detail = fault.child("detail").and_then(|detail| detail.children.first());
            let text = fault.text_of("faultstring").unwrap_or("no reason");
            let fault = VsphereFault::new(method, detail, text);
            Err(SourceError::from_cause(SourceErrorKind::Invalid, fault))
        }
        Some(response) if status.is_success() => Ok(first_child(response).unwrap_or_default()),
        _ => {
            let code = status.as_u16();
            let message = format!(
                "vSphere answers {method} with status {code} and without SOAP: is this its URL?"
            );
            Err(SourceError::new(SourceErrorKind::Status(code), message))
        }
    }
}

fn first_child(element: XmlElement) -> Option<XmlElement> {
    element.children.into_iter().next()
}

/// Creates the error for a disk of `told` bytes that is `found` bytes long, which `reader` says.
pub(crate) fn resized_error(told: u64, found: u64, reader: &str) -> SourceError {
    let message = format!(
        "the disk has {told} bytes according to vSphere and {found} according to {reader}: it was resized; import it again from the start"
    );
    SourceError::new(SourceErrorKind::Changed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_recognised_by_their_type() {
        for detail in [
            "<NotAuthenticatedFault xmlns='urn:vim25' xsi:type='NotAuthenticated'/>",
            "<NotAuthenticatedFault/>",
            "<Fault xmlns:X='http://www.w3.org/2001/XMLSchema-instance' X:type='vim25:NotAuthenticated'/>",
        ] {
            let envelope = format!(
                "<Envelope><Body><Fault><faultstring>no</faultstring><detail>{detail}</detail></Fault></Body></Envelope>"
            );
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            let error = parse_response("Login", status, envelope.as_bytes()).unwrap_err();
            let fault = VsphereFault::of(&error).unwrap();
            assert_eq!(fault.kind, "NotAuthenticated", "{detail}");
            assert_eq!(fault.to_string(), "vSphere refuses Login: no");
        }
        let error =
            "<val><fault xsi:type='FileFault'/><localizedMessage>no</localizedMessage></val>";
        let error = XmlElement::parse(error.as_bytes()).unwrap();
        let fault = VsphereFault::from_state("error", Some(&error));
        assert_eq!(
            (&*fault.kind, &*fault.to_string()),
            ("FileFault", "vSphere refuses the lease: no")
        );
        let fault = VsphereFault::from_state("done", None);
        assert_eq!(fault.to_string(), "vSphere refuses the lease: its state is \"done\"");
    }
}
