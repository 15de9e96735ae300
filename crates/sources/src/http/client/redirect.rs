//! Redirects: how far they are followed, and what the next server does not get.
//!
//! Headers and passwords of the import go to the origin that they were given for. Signatures and tokens of a dialect also go to
//! origins that it named itself, and to those that such an origin leads to, where the dialect accompanies it.

use datapath::error::SourceErrorKind;
use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use url::Url;

use super::{ObjectClient, ObjectRange};
use crate::credentials::BasicCredentials;
use crate::error::invalid_error;
use crate::retry::AttemptError;

/// Redirects that are followed before it is called a loop; what browsers and Go's client settled on
/// is 10 to 20.
const MAX_REDIRECTS: usize = 10;

impl ObjectClient {
    /// Sends one GET to `url` and follows redirects: the final answer, whatever its status, and where it
    /// came from.
    pub(in crate::http) async fn follow_redirects(
        &self,
        url: &Url,
        part: Option<&ObjectRange>,
    ) -> Result<(Response, Url), AttemptError> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let (response, asked) = self.send_authorized(&url, part).await?;
            url = asked;
            match redirect_target(&response, &url, &self.display_url(&url))? {
                None => return Ok((response, url)),
                Some(target) => {
                    // Only a place that hears secrets itself can introduce another one: a redirect of a CDN introduces none.
                    if let Some(dialect) = &self.dialect
                        && self.is_acquainted(&url)
                        && dialect.is_same_service(&target)
                    {
                        self.get_acquainted(&target);
                    }
                    url = target;
                }
            }
        }
        let message =
            format!("stopped after {MAX_REDIRECTS} redirects, the last one to {}", self.display_url(&url));
        Err(AttemptError::new_final(SourceErrorKind::Invalid, message))
    }

    /// True if the dialect is spoken to the server of `url`.
    pub(super) fn is_acquainted(&self, url: &Url) -> bool {
        let acquainted = self.acquainted.lock();
        acquainted.contains(&url.origin())
    }

    pub(super) fn get_acquainted(&self, url: &Url) {
        let mut acquainted = self.acquainted.lock();
        acquainted.insert(url.origin());
    }

    /// The headers of the import that the server of `url` gets.
    pub(super) fn own_headers(&self, url: &Url) -> HeaderMap {
        if self.is_same_origin(url) { self.headers.clone() } else { HeaderMap::new() }
    }

    /// Ours go to the origin that they were given for and nowhere else; a redirect may carry its own.
    pub(super) fn credentials_for(&self, url: &Url) -> Option<BasicCredentials> {
        if !self.is_same_origin(url) {
            return BasicCredentials::of_url(url);
        }
        // An explicit `Authorization` is more specific than user and password, and two make no request.
        let explicit = self.headers.contains_key(header::AUTHORIZATION);
        self.credentials.clone().filter(|_| !explicit)
    }

    fn is_same_origin(&self, url: &Url) -> bool {
        url.origin() == self.start.origin()
    }
}

fn redirect_target(response: &Response, from: &Url, shown: &str) -> Result<Option<Url>, AttemptError> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = response.headers().get(header::LOCATION).filter(|_| redirects) else {
        return Ok(None);
    };
    let refused = |reason: &str| {
        let message = format!("{shown} redirects to a place that cannot be followed: {reason}",);
        AttemptError::Final(invalid_error(message))
    };
    let location = std::str::from_utf8(location.as_bytes()).map_err(|_| refused("Location is not text"))?;
    let mut target = from.join(location).map_err(|error| refused(&error.to_string()))?;
    target.set_fragment(None);
    match target.scheme() {
        "http" | "https" => Ok(Some(target)),
        other => Err(refused(&format!("scheme {other} is neither http nor https"))),
    }
}
