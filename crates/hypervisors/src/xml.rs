//! Small XML documents as trees: the responses of an oVirt engine and of vSphere.
//!
//! No XML tree library is used, because this parser must stop at its limits on depth and number of
//! elements, and must accept only the five entities that XML predefines.

use std::str::FromStr;

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use fetch::messages::plain_line;

/// Maximum depth of nested elements; an engine nests five, vSphere a dozen.
const MAX_DEPTH: usize = 32;
/// Maximum number of elements in a document; an engine with a thousand snapshots sends some ten
/// thousand.
const MAX_ELEMENTS: usize = 200_000;

/// An element, its children and its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XmlElement {
    pub name: String,
    pub id: Option<String>,
    /// The value of `xsi:type`, with any namespace prefix.
    pub(super) kind: Option<String>,
    pub text: String,
    pub children: Vec<XmlElement>,
}

/// The reason why a document cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct XmlError(String);

impl XmlError {
    /// Creates a syntax error. The parser's message repeats names from the document, so it is
    /// escaped and shortened.
    fn from_parser_error(error: &dyn std::fmt::Display) -> Self {
        Self(format!("not well-formed XML: {}", plain_line(&error.to_string())))
    }
}

impl XmlElement {
    /// Parses `document` and returns its root. Entities that a document type declares are not
    /// expanded: any entity that XML does not predefine is an error.
    pub fn parse(document: &[u8]) -> Result<Self, XmlError> {
        let syntax = |error: &dyn std::fmt::Display| XmlError::from_parser_error(error);
        let document = std::str::from_utf8(document).map_err(|error| syntax(&error))?;
        let mut reader = Reader::from_str(document);
        let mut open: Vec<Self> = vec![Self::default()];
        let mut count = 0;
        loop {
            let closed = match reader.read_event().map_err(|error| syntax(&error))? {
                Event::Start(start) => {
                    open.push(Self::from_start_tag(&start)?);
                    count += 1;
                    None
                }
                Event::Empty(start) => {
                    count += 1;
                    Some(Self::from_start_tag(&start)?)
                }
                Event::End(_) => open.pop(),
                Event::Text(text) => {
                    add_text(&mut open, &decoded(&text)?);
                    None
                }
                Event::CData(text) => {
                    add_text(&mut open, &decoded(&text)?);
                    None
                }
                Event::GeneralRef(reference) => {
                    let character =
                        match reference.resolve_char_ref().map_err(|error| syntax(&error))? {
                            Some(character) => character.to_string(),
                            None => {
                                let name = decoded(&reference)?;
                                resolve_predefined_entity(&name)
                                    .ok_or_else(|| {
                                        XmlError::from_parser_error(&format_args!(
                                            "unknown entity &{name};"
                                        ))
                                    })?
                                    .to_owned()
                            }
                        };
                    add_text(&mut open, &character);
                    None
                }
                Event::Eof => break,
                // Declarations of entities are ignored, so references to them are unknown and
                // cannot expand.
                Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Comment(_) => None,
            };
            if let (Some(closed), Some(parent)) = (closed, open.last_mut()) {
                parent.children.push(closed);
            }
            if open.len() > MAX_DEPTH || count > MAX_ELEMENTS {
                return Err(XmlError(format!(
                    "more than {MAX_DEPTH} nested elements, or more than {MAX_ELEMENTS} in total"
                )));
            }
        }
        let document = open.pop().filter(|_| open.is_empty());
        let root = document.and_then(|mut document| document.children.pop());
        root.ok_or_else(|| XmlError("the XML ends before its elements are closed".to_owned()))
    }

    fn from_start_tag(start: &BytesStart<'_>) -> Result<Self, XmlError> {
        let mut element = Self { name: decoded(start.local_name().as_ref())?, ..Self::default() };
        // Skip the check for duplicate names, which takes quadratic time.
        for attribute in start.attributes().with_checks(false) {
            let attribute = attribute.map_err(|error| XmlError::from_parser_error(&error))?;
            match attribute.key.local_name().as_ref() {
                b"id" => element.id = Some(decoded(&attribute.value)?),
                b"type" => element.kind = Some(decoded(&attribute.value)?),
                _ => {}
            }
        }
        Ok(element)
    }

    /// Returns the first child called `name`.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns the first child called `name` and drops the other children.
    pub(super) fn into_child(self, name: &str) -> Option<Self> {
        self.children.into_iter().find(|child| child.name == name)
    }

    /// Returns all children called `name`.
    pub(super) fn children_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the trimmed text; `None` if it is empty.
    pub(super) fn own_text(&self) -> Option<&str> {
        Some(self.text.trim()).filter(|text| !text.is_empty())
    }

    /// Returns the trimmed text of the element at `path` below this one, such as
    /// `backing/fileName`; `None` if it is missing or empty.
    pub(super) fn text_of(&self, path: &str) -> Option<&str> {
        path.split('/').try_fold(self, |element, name| element.child(name))?.own_text()
    }

    /// Returns the value at `path`; `None` if it is missing or not valid.
    pub(super) fn value_of<V: FromStr>(&self, path: &str) -> Option<V> {
        self.text_of(path)?.parse().ok()
    }
}

/// Returns a part of a document, all of which is UTF-8, as text.
fn decoded(part: &[u8]) -> Result<String, XmlError> {
    String::from_utf8(part.to_vec()).map_err(|error| XmlError::from_parser_error(&error))
}

fn add_text(open: &mut [XmlElement], text: &str) {
    if let Some(element) = open.last_mut() {
        element.text.push_str(text);
    }
}

/// Escapes `text` for use as the content of an element or attribute.
pub fn escape_text(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_parsed_to_a_tree() {
        let disk = XmlElement::parse(
            b"<?xml version='1.0'?><disk id=\"d1\"><!-- x --><name> a&amp;b&#33; </name><total_size>512</total_size>\
              <storage_domains><storage_domain id='s1'/><storage_domain id='s2'/></storage_domains></disk>",
        )
        .unwrap();
        assert_eq!((disk.name.as_str(), disk.id.as_deref()), ("disk", Some("d1")));
        assert_eq!(disk.text_of("name"), Some("a&b!"));
        assert_eq!(disk.text_of("total_size"), Some("512"));
        let domains = disk.child("storage_domains").unwrap();
        let ids: Vec<_> = domains
            .children_named("storage_domain")
            .map(|domain| domain.id.as_deref().unwrap())
            .collect();
        assert_eq!(ids, ["s1", "s2"]);
    }

    #[test]
    fn malformed_documents_are_refused() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for text in ["", "plain", "<a>", "<a></b>", "</a>", "<a>&bomb;</a>", deep.as_str()] {
            assert!(XmlElement::parse(text.as_bytes()).is_err(), "{text:?}");
        }
        let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><x>&b;</x>";
        assert!(XmlElement::parse(bomb.as_bytes()).is_err());
    }
}
