//! Limits the number of interim responses (1xx). hyper itself skips any number of them without an
//! error.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, StatusCode};
use tokio_util::sync::CancellationToken;

/// Maximum number of interim responses to a request. Usually there is one.
const MOST: usize = 32;

/// A server sent too many interim responses.
#[derive(Debug, thiserror::Error)]
#[error("more than {MOST} interim answers")]
pub(crate) struct InterimLimitError;

/// Detects too many interim responses to a request.
#[derive(Debug)]
pub(crate) struct InterimLimit(CancellationToken);

impl InterimLimit {
    /// Watches the interim responses to `request`, and calls `seen` with the status of each.
    pub(crate) fn with_request<B>(
        request: &mut Request<B>,
        seen: impl Fn(StatusCode) + Send + Sync + 'static,
    ) -> Self {
        let (end, count) = (CancellationToken::new(), AtomicUsize::new(0));
        let limit = Self(end.clone());
        hyper::ext::on_informational(request, move |interim| {
            seen(interim.status());
            if count.fetch_add(1, Ordering::Relaxed) >= MOST {
                end.cancel();
            }
        });
        limit
    }

    /// Waits for `answer`. Fails if there are too many interim responses before it.
    pub(crate) async fn wait_for<F: Future>(
        self,
        answer: F,
    ) -> Result<F::Output, InterimLimitError> {
        self.0.run_until_cancelled(answer).await.ok_or(InterimLimitError)
    }
}
