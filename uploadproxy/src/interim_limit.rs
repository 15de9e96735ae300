//! Interim answers (1xx), which hyper passes over: as many as come, for ever.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, StatusCode};
use tokio_util::sync::CancellationToken;

/// Interim answers to a request at most. One is usual.
const MOST: usize = 32;

/// There are too many.
#[derive(Debug, thiserror::Error)]
#[error("more than {MOST} interim answers")]
pub(crate) struct InterimLimitError;

/// The end of patience with the answers to a request.
#[derive(Debug)]
pub(crate) struct InterimLimit(CancellationToken);

impl InterimLimit {
    /// Looks at the interim answers to `request`, and tells `seen` of each.
    pub(crate) fn with_request<B>(
        request: &mut Request<B>,
        seen: impl Fn(StatusCode) + Send + Sync + 'static,
    ) -> Self {
        let (end, count) = (CancellationToken::new(), AtomicUsize::new(0));
        let patience = Self(end.clone());
        hyper::ext::on_informational(request, move |interim| {
            seen(interim.status());
            if count.fetch_add(1, Ordering::Relaxed) >= MOST {
                end.cancel();
            }
        });
        patience
    }

    /// Waits for `answer`, unless too many interim ones come before it.
    pub(crate) async fn wait_for<F: Future>(self, answer: F) -> Result<F::Output, InterimLimitError> {
        self.0.run_until_cancelled(answer).await.ok_or(InterimLimitError)
    }
}
