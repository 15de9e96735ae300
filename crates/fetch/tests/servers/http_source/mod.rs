//! The HTTP source, with an origin that misbehaves on request.

mod adaptive;
mod connections;
mod dialects;
mod odd;
mod open;
mod ranges;
mod resume;
mod routes;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetch::http::{HttpConfig, HttpSource};
use fetch::{Network, RetryPolicy};
use rustls::ClientConfig;
use stream::error::SourceError;
use stream::source::{Source, SourceBody};
use testkit::certs;
use testkit::origin::{Origin, Script};
use tokio_util::sync::CancellationToken;

use crate::RUNTIME;

/// Returns bytes without a pattern that a shifted or repeated piece could match.
fn noise(len: usize) -> Bytes {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Returns the default configuration with pauses of milliseconds, and one connection.
fn config_with(url: &str, tls: Arc<ClientConfig>) -> HttpConfig {
    let retry_policy = RetryPolicy {
        first_delay: Duration::from_millis(2),
        max_delay: Duration::from_millis(20),
        no_progress_limit: Duration::from_secs(20),
        idle_limit: Duration::from_secs(10),
        contact_limit: Duration::from_secs(3),
        ..RetryPolicy::default()
    };
    let network = Network {
        retry_policy,
        connections: NonZeroUsize::new(1),
        ..Network::new(RUNTIME.handle().clone(), CancellationToken::new(), tls)
    };
    HttpConfig::new(url, &Arc::new(network)).unwrap()
}

/// Returns the network of a configuration, so that it can be changed.
fn network(config: &mut HttpConfig) -> &mut Network {
    Arc::make_mut(&mut config.network)
}

fn config(url: &str) -> HttpConfig {
    config_with(url, certs::distrustful_client_config().unwrap())
}

/// Returns a configuration that ends with `stop`.
fn until(stop: CancellationToken, url: &str) -> HttpConfig {
    let mut config = config(url);
    network(&mut config).stop = stop;
    config
}

fn open(config: HttpConfig) -> Result<HttpSource, SourceError> {
    HttpSource::open(config)
}

fn start(script: Script) -> Origin {
    Origin::start(script).unwrap()
}

fn read_all(body: &mut dyn SourceBody) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next_chunk()? {
        assert!(!chunk.is_empty());
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Fetches the whole object at `/disk.img`, with the configuration that `change` has altered.
fn fetch_with(
    origin: &Origin,
    change: impl FnOnce(&mut HttpConfig),
) -> Result<Vec<u8>, SourceError> {
    let mut config = config(&origin.url("/disk.img"));
    change(&mut config);
    read_all(&mut *open(config)?.open_body()?)
}

fn fetch(origin: &Origin) -> Result<Vec<u8>, SourceError> {
    fetch_with(origin, |_| {})
}

/// Returns the `Range` header of every request that was answered, in order.
fn ranges_asked(origin: &Origin) -> Vec<Option<String>> {
    let requests = origin.requests();
    requests.iter().map(|recorded| recorded.request.header("range").map(str::to_owned)).collect()
}
