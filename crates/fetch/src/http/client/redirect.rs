//! Redirects: how many are followed, and which secrets the next server does not get.
//!
//! Headers and passwords of the import are sent only to the origin that they were given for.
//! Signatures and tokens of a dialect are also sent to origins that the dialect itself named, and
//! to origins that such an origin redirects to, if the dialect reports that they belong to the
//! same service.

use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use stream::error::SourceAdvice;
use url::Url;

use super::{ObjectClient, ObjectRange};
use crate::credentials::BasicCredentials;
use crate::error::invalid_error;
use crate::retry::AttemptError;

/// Number of redirects that are followed before the chain counts as a loop. Browsers and Go's
/// client allow 10 to 20.
const MAX_REDIRECTS: usize = 10;

impl ObjectClient {
    /// Sends one GET to `url` and follows redirects. Returns the final response, whatever its
    /// status, and the URL that it came from.
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
                    // Only an origin that gets secrets itself can vouch for another one. A
                    // redirect from a CDN adds no origin.
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
        let message = format!(
            "stopped after {MAX_REDIRECTS} redirects, the last one to {}",
            self.display_url(&url)
        );
        Err(AttemptError::Final(invalid_error(message).with_advice(SourceAdvice::CheckAddress)))
    }

    /// True if the dialect is used with the server of `url`.
    pub(super) fn is_acquainted(&self, url: &Url) -> bool {
        let acquainted = self.acquainted.lock();
        acquainted.contains(&url.origin())
    }

    pub(super) fn get_acquainted(&self, url: &Url) {
        let mut acquainted = self.acquainted.lock();
        acquainted.insert(url.origin());
    }

    /// Returns the headers of the import that are sent to the server of `url`.
    pub(super) fn own_headers(&self, url: &Url) -> HeaderMap {
        if self.is_same_origin(url) { self.headers.clone() } else { HeaderMap::new() }
    }

    /// Returns the credentials for `url`. The import's own credentials go only to the origin that
    /// they were given for; a redirect may carry others in its URL.
    pub(super) fn credentials_for(&self, url: &Url) -> Option<BasicCredentials> {
        if !self.is_same_origin(url) {
            return BasicCredentials::of_url(url);
        }
        // An explicit `Authorization` is more specific than user and password, and a request must
        // not have both.
        let explicit = self.headers.contains_key(header::AUTHORIZATION);
        self.credentials.clone().filter(|_| !explicit)
    }

    fn is_same_origin(&self, url: &Url) -> bool {
        url.origin() == self.start.origin()
    }
}

fn redirect_target(
    response: &Response,
    from: &Url,
    shown: &str,
) -> Result<Option<Url>, AttemptError> {
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
        let message = format!("{shown} redirects to an address that cannot be used: {reason}",);
        AttemptError::Final(invalid_error(message).with_advice(SourceAdvice::CheckAddress))
    };
    let location =
        std::str::from_utf8(location.as_bytes()).map_err(|_| refused("Location is not text"))?;
    let mut target = from.join(location).map_err(|error| refused(&error.to_string()))?;
    target.set_fragment(None);
    match target.scheme() {
        "http" | "https" => Ok(Some(target)),
        other => Err(refused(&format!("scheme {other} is neither http nor https"))),
    }
}
