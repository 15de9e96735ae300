//! The guard below hyper.

mod framing;

use tokio::io::{AsyncRead, AsyncWrite};

/// Returns `stream` behind the guard, as hyper sees it.
pub fn watched<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
) -> impl AsyncRead + AsyncWrite + Unpin {
    framing::FramingGuard::new(stream)
}
