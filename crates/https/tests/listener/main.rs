//! The listener's TLS and metrics, over real connections.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure must fail the test, also in its helpers"
)]

mod metrics;
mod tls;
mod tls_peers;
