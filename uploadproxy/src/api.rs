//! A client for the API server that limits the size of responses. kube itself reads responses and
//! watch lines of any size into memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Body, Frame, SizeHint};
use kube::{Client, Config};
use program::cluster;
use tokio::time::{Sleep, sleep};
use tower::Service;
use tower::layer::layer_fn;

use crate::interim_limit::InterimLimit;

/// Maximum size of a response, or of a line of a watch. etcd accepts requests of up to 1.5 MiB, so
/// every object is smaller.
const MOST_BYTES: usize = 2 << 20;

/// Number of bytes in each response that do not count towards [`MOST_BULK_BYTES`]. Few PVCs have a
/// tenth of this size.
const FREE_BYTES: usize = 64 << 10;

/// Maximum number of bytes beyond [`FREE_BYTES`], summed over all responses in progress. Further
/// bytes are rejected, so that many simultaneous lookups do not hold many times [`MOST_BYTES`].
const MOST_BULK_BYTES: usize = 8 << 20;

/// The cause of any failure in this module.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Pause before a watch is requested again. Without it, an API server that ends every watch
/// immediately would receive requests in a tight loop.
const REST: Duration = Duration::from_millis(500);

/// Creates a client from `config`, for single requests.
pub(crate) fn api_client(config: Config) -> Result<Client, kube::Error> {
    bounded_client(config, Duration::ZERO)
}

/// Creates a client from `config`, for one watch.
pub(crate) fn watch_client(config: Config) -> Result<Client, kube::Error> {
    bounded_client(config, REST)
}

fn bounded_client(config: Config, rest: Duration) -> Result<Client, kube::Error> {
    let bulk = Arc::new(AtomicUsize::new(0));
    let bounded =
        layer_fn(move |inner| BoundedService { inner, rest, pause: None, bulk: Arc::clone(&bulk) });
    Ok(cluster::client(config)?.with_layer(&bounded).build())
}

/// A service that limits the size of responses.
struct BoundedService<S> {
    inner: S,
    /// Minimum time between two requests.
    rest: Duration,
    /// Timer for the rest of the pause before the next request.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes beyond [`FREE_BYTES`], summed over all responses in progress.
    bulk: Arc<AtomicUsize>,
}

impl<S, R, B> Service<Request<R>> for BoundedService<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<Cause>,
{
    type Response = Response<LimitedBody<B>>;
    type Error = Cause;
    type Future = BoxFuture<'static, Result<Self::Response, Cause>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<R>) -> Self::Future {
        if !self.rest.is_zero() {
            self.pause = Some(Box::pin(sleep(self.rest)));
        }
        let query = request.uri().query().unwrap_or_default();
        let asks_for_events = query.split('&').any(|part| part.starts_with("watch="));
        let interim_limit = InterimLimit::with_request(&mut request, |_| ());
        let answer = self.inner.call(request);
        let bulk = Arc::clone(&self.bulk);
        Box::pin(async move {
            let response = interim_limit.wait_for(answer).await?.map_err(Into::into)?;
            // A failed watch is answered with a single object that contains the reason.
            let is_watch = asks_for_events && response.status().is_success();
            Ok(response.map(|body| LimitedBody { body, is_watch, passed: 0, bulk, counted: 0 }))
        })
    }
}

/// A body that fails after too many bytes. For a watch, the bytes of each line are counted
/// separately.
struct LimitedBody<B> {
    body: B,
    is_watch: bool,
    passed: usize,
    bulk: Arc<AtomicUsize>,
    /// The part of `bulk` that this body has added.
    counted: usize,
}

impl<B> LimitedBody<B> {
    /// Counts `data`. The error is the reason why the rest of the body is not read.
    fn count_data(&mut self, data: &Bytes) -> Result<(), String> {
        let last_line = data.iter().rposition(|byte| *byte == b'\n').filter(|_| self.is_watch);
        self.passed = match last_line {
            Some(end) => data.len() - end - 1,
            None => self.passed.saturating_add(data.len()),
        };
        if self.passed > MOST_BYTES {
            return Err(format!("the API server answers with more than {MOST_BYTES} bytes"));
        }
        self.release_counted();
        self.counted = self.passed.saturating_sub(FREE_BYTES);
        let others = self.bulk.fetch_add(self.counted, Ordering::Relaxed);
        if self.counted > 0 && others.saturating_add(self.counted) > MOST_BULK_BYTES {
            return Err(format!(
                "large answers of the API server exceed {MOST_BULK_BYTES} bytes in total; retry later"
            ));
        }
        Ok(())
    }

    fn release_counted(&mut self) {
        self.bulk.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
    }
}

impl<B> Drop for LimitedBody<B> {
    fn drop(&mut self) {
        self.release_counted();
    }
}

impl<B> Body for LimitedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Cause>,
{
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(Into::<Cause>::into)?;
            frame.data_ref().map_or(Ok(()), |data| this.count_data(data))?;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    fn limited(is_watch: bool, bulk: &Arc<AtomicUsize>) -> LimitedBody<Full<Bytes>> {
        LimitedBody {
            body: Full::default(),
            is_watch,
            passed: 0,
            bulk: Arc::clone(bulk),
            counted: 0,
        }
    }

    fn passes(is_watch: bool, pieces: &[&[u8]]) -> bool {
        let mut limited = limited(is_watch, &Arc::default());
        pieces.iter().all(|piece| limited.count_data(&Bytes::copy_from_slice(piece)).is_ok())
    }

    #[test]
    fn objects_and_the_lines_of_a_watch_are_limited_in_length() {
        let (whole, half) = (vec![b'x'; MOST_BYTES], vec![b'x'; MOST_BYTES / 2]);
        for is_watch in [false, true] {
            assert!(passes(is_watch, &[&whole]));
            assert!(passes(is_watch, &[&half, &half]));
            assert!(!passes(is_watch, &[&whole, b"x"]));
            assert_eq!(passes(is_watch, &[&half, b"\n", &half, b"a\nb", &half]), is_watch);
        }
        assert!(!passes(true, &[b"\n", &whole, b"x"]));
    }

    #[test]
    fn large_answers_share_a_limit_and_small_ones_always_pass() {
        let bulk = Arc::default();
        let large = Bytes::from(vec![b'x'; MOST_BYTES]);
        let mut all = Vec::new();
        let is_full = (0..1000).any(|_| {
            let mut answer = limited(false, &bulk);
            let result = answer.count_data(&large);
            all.push(answer);
            result.is_err()
        });
        assert!(is_full && all.len() * (MOST_BYTES - FREE_BYTES) > MOST_BULK_BYTES);
        assert!(limited(false, &bulk).count_data(&large.slice(..FREE_BYTES)).is_ok());
        assert!(limited(false, &bulk).count_data(&large.slice(..=FREE_BYTES)).is_err());
        drop(all);
        assert_eq!(bulk.load(Ordering::Relaxed), 0);
        assert!(limited(false, &bulk).count_data(&large).is_ok());
    }
}
