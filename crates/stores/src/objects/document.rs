//! XML error documents of object stores.

use http::StatusCode;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

use fetch::http::RefusalVerdict;
use fetch::messages::plain_line;
use stream::error::SourceAdvice;

/// The document `<Error><Code>…</Code><Message>…</Message>…</Error>`. Every element may be
/// missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoreError {
    /// The error code: `NoSuchKey`, `AccessDenied`, …
    pub(crate) code: String,
    /// The error message, one sentence.
    pub(crate) message: String,
    /// The region that the request should have been sent to.
    pub(crate) region: String,
}

impl StoreError {
    /// Parses as much of `body` as possible; `None` if it is not an error document.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(body);
        let mut reader = Reader::from_str(&text);
        let mut error = Self::default();
        let mut path: Vec<Vec<u8>> = Vec::new();
        loop {
            match reader.read_event() {
                Ok(Event::Start(start)) => path.push(start.local_name().as_ref().to_owned()),
                Ok(Event::End(_)) => drop(path.pop()),
                Ok(Event::Text(text)) => error.add_text(&path, &String::from_utf8_lossy(&text)),
                Ok(Event::GeneralRef(reference)) => {
                    if let Ok(Some(char)) = reference.resolve_char_ref() {
                        error.add_text(&path, char.encode_utf8(&mut [0; 4]));
                    } else if let Some(text) =
                        resolve_predefined_entity(&String::from_utf8_lossy(&reference))
                    {
                        error.add_text(&path, text);
                    }
                }
                Ok(Event::Eof) | Err(_) => break,
                Ok(_) => {}
            }
        }
        (!error.code.is_empty()).then_some(error)
    }

    /// Adds text of the element at `path`.
    fn add_text(&mut self, path: &[Vec<u8>], text: &str) {
        let [root, name] = path else { return };
        let field = match (root.as_slice(), name.as_slice()) {
            (b"Error", b"Code") => &mut self.code,
            (b"Error", b"Message") => &mut self.message,
            (b"Error", b"Region") => &mut self.region,
            _ => return,
        };
        field.push_str(text);
    }

    /// Formats code and message: `NoSuchKey: The specified key does not exist.`
    pub fn error_message(&self) -> String {
        if self.message.is_empty() {
            plain_line(&self.code)
        } else {
            format!("{}: {}", plain_line(&self.code), plain_line(&self.message))
        }
    }
}

/// Describes a refusal with the document `error`, if the store sent one, and with the reason why no
/// identity was used, if there is one.
pub(crate) fn describe_refusal(
    status: StatusCode,
    error: Option<&StoreError>,
    withheld: Option<&str>,
    transient: bool,
) -> RefusalVerdict {
    let text = match error {
        Some(error) => error.error_message(),
        None if withheld.is_some() => status.to_string(),
        None => return RefusalVerdict::Plain,
    };
    match withheld {
        Some(reason) => RefusalVerdict::Described {
            text: format!("{text}; {reason}"),
            transient,
            advice: Some(SourceAdvice::InMessage),
        },
        None => {
            let advice = error.and_then(|error| SourceAdvice::of_server_code(&error.code));
            RefusalVerdict::Described { text, transient, advice }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_documents_are_read_as_far_as_they_are_complete() {
        let document = "<?xml version=\"1.0\"?>\n<Error xmlns=\"x\"><Code>NoSuchKey</Code>\
                        <Message>The key &quot;a&#x26;b&quot;\ndoes not exist.</Message><Key><Code>x</Code></Key>\
                        <Region>eu-west-1</Region></Error>";
        let error = StoreError::parse(document.as_bytes()).unwrap();
        assert_eq!(error.error_message(), "NoSuchKey: The key \"a&b\" does not exist.");
        assert_eq!(error.region, "eu-west-1");

        let cut = &document.as_bytes()[..document.find("does").unwrap()];
        assert_eq!(StoreError::parse(cut).unwrap().error_message(), "NoSuchKey: The key \"a&b\"");
        for nothing in
            ["", "not found", "<html><Code>a</Code></html>", "<Error><Co", "<Error>\0</a>"]
        {
            assert_eq!(StoreError::parse(nothing.as_bytes()), None, "{nothing}");
        }
    }
}
