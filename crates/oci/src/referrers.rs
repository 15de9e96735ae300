//! Lists of the artifacts that refer to an image (OCI distribution specification 1.1, "Listing
//! Referrers").

use fetch::address::url_origin;
use fetch::error::invalid_error;
use http::{HeaderMap, header};
use publisher::signature_error;
use serde::Deserialize;
use stream::error::SourceError;
use url::Url;

use super::digest::OciDigest;
use super::manifest::{OciDescriptor, ParsedManifest, ServedManifest};
use super::store::{ImageStore, ReferrersPage};

/// The field of a manifest with the image to which it refers.
#[derive(Deserialize)]
struct ArtifactReference {
    subject: Option<OciDescriptor>,
}

/// True if the artifact `served` refers to the image `digest`, or does not say to which.
pub(super) fn may_refer_to(served: &ServedManifest, digest: &OciDigest) -> bool {
    let reference: Option<ArtifactReference> = serde_json::from_slice(&served.bytes).ok();
    let subject = reference.and_then(|reference| reference.subject);
    subject.is_none_or(|subject| subject.digest == *digest)
}

/// Reads the list that clients maintain under a tag in registries that do not list referrers
/// ("Unavailable Referrers API").
pub(super) fn read_tagged_referrers(
    store: &dyn ImageStore,
    digest: &OciDigest,
) -> Result<ReferrersPage, SourceError> {
    let Some(served) = store.read_tagged(&digest.to_tag())? else {
        return Ok(ReferrersPage::default());
    };
    let what = format!("reading the tagged referrers of {digest}");
    Ok(ReferrersPage { entries: list_referrers(&served, &what)?, next: None })
}

/// Returns the artifacts in a list of referrers; `what` describes the request in errors.
pub(super) fn list_referrers(
    served: &ServedManifest,
    what: &str,
) -> Result<Vec<OciDescriptor>, SourceError> {
    match ParsedManifest::parse(served) {
        Ok(ParsedManifest::Index(index)) => Ok(index.manifests),
        Ok(ParsedManifest::Image(_)) => Ok(Vec::new()),
        Err(reason) => Err(invalid_error(format!("{what}: {reason}"))),
    }
}

/// Returns the address of the page after the one at `page`, which has these headers. Fails if it is
/// on another server, which would receive requests that a user expects only at the registry.
pub(super) fn next_page(page: &Url, headers: &HeaderMap) -> Result<Option<Url>, SourceError> {
    let links = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    let Some(link) = links.filter_map(next_link).next() else {
        return Ok(None);
    };
    let next = page.join(link).ok().filter(|next| url_origin(next) == url_origin(page));
    match next {
        Some(next) => Ok(Some(next)),
        None => Err(signature_error(format!(
            "{}: the list of signatures continues at another server, which is not supported",
            url_origin(page)
        ))),
    }
}

/// Returns the target of the link to the next page in the value of a `Link` header (RFC 8288 §3).
fn next_link(value: &str) -> Option<&str> {
    let mut rest = value;
    loop {
        let (target, after) = rest.split_once('<')?.1.split_once('>')?;
        let parameters = after.split('<').next().unwrap_or_default();
        let is_next = |parameter: &str| {
            parameter.split_once('=').is_some_and(|(name, relation)| {
                name.trim().eq_ignore_ascii_case("rel")
                    && relation.trim().trim_matches('"').eq_ignore_ascii_case("next")
            })
        };
        if parameters.split([';', ',']).any(is_next) {
            return Some(target);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn next(values: &[&'static str]) -> Option<String> {
        let page = Url::parse("https://h:5000/v2/a/referrers/sha256:0?artifactType=x").unwrap();
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::LINK, HeaderValue::from_static(value));
        }
        let next = next_page(&page, &headers).map(|next| next.map(String::from));
        next.unwrap_or_else(|error| Some(error.to_string()))
    }

    #[test]
    fn the_next_page_is_found_on_the_same_server_only() {
        let expected = Some("https://h:5000/v2/a/b?n=1&last=x".to_owned());
        for values in [
            &["</v2/a/b?n=1&last=x>; rel=\"next\""][..],
            &["<../b?n=1&last=x>;rel=next"],
            &["<https://h:5000/v2/a/b?n=1&last=x>; title=\"a\"; REL=Next"],
            &["</c>; rel=\"prev\", </v2/a/b?n=1&last=x>; rel=\"next\""],
            &["</c>; rel=first", "</v2/a/b?n=1&last=x>; rel=\"next\", </d>; rel=\"last\""],
        ] {
            assert_eq!(next(values), expected, "{values:?}");
        }
        for values in [&[][..], &["</c>; rel=\"prev\""], &["</c"], &["c>; rel=next"], &["</c>"]] {
            assert_eq!(next(values), None, "{values:?}");
        }
        for value in [
            "<//i:5000/b>; rel=next",
            "<http://h:5000/b>; rel=next",
            "<https://h/b>; rel=next",
            "<https://h:x/>; rel=next",
        ] {
            let error = next(&[value]).unwrap();
            assert!(error.contains("https://h:5000: the list of signatures continues"), "{error}");
        }
    }
}
