//! A minimal parser for the XML that clients send to an engine: flat elements with an ID or a
//! text.

/// Returns the text of the first element `name`.
pub(super) fn text(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.to_owned())
}

/// Returns the attribute `id` of the first element `name`.
pub(super) fn id(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name} "))?;
    let (attributes, _) = rest.split_once('>')?;
    let (_, value) = attributes.split_once("id=")?;
    let quote = value.chars().next().filter(|quote| "\"'".contains(*quote))?;
    value.split(quote).nth(1).map(str::to_owned)
}

/// Formats an error as an engine does.
pub(super) fn fault(detail: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n\
         <fault>\n    <detail>{detail}</detail>\n    <reason>Operation Failed</reason>\n</fault>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_ids_are_found() {
        let document = r#"<image_transfer><image id="1"/><snapshot id='2'></snapshot><format>raw</format></image_transfer>"#;
        assert_eq!(text(document, "format").as_deref(), Some("raw"));
        assert_eq!(id(document, "image").as_deref(), Some("1"));
        assert_eq!(id(document, "snapshot").as_deref(), Some("2"));
        assert_eq!(id(document, "disk"), None);
        assert_eq!(text(document, "phase"), None);
    }
}
