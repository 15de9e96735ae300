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
