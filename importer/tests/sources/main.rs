//! Every source against servers: the contract of all, the features of each, and refusals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod connections;
mod contract;
mod downgrade;
mod glance;
mod imageio;
mod lease;
mod nbd;
mod nfc;
mod objects;
mod openpgp;
mod place;
#[path = "../pod/pod.rs"]
#[allow(dead_code, reason = "the tests of pods use the rest")]
mod pod;
mod registry;
mod secrets;
mod sums;
mod unreachable;
mod vmware;

use std::sync::LazyLock;
use std::time::Duration;

use fetch::{Network, RetryPolicy};
use testkit::certs;
use testkit::objects::{Kind, Store};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static MOTO: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::Moto));
static S3S: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::S3s));
static GCS: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::Gcs));

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");

/// Settings that trust no server, and give up on one that delivers nothing for 30 seconds.
fn network() -> Network {
    Network {
        retry_policy: RetryPolicy {
            no_progress_limit: Duration::from_secs(30),
            contact_limit: Duration::from_secs(3),
            ..RetryPolicy::default()
        },
        ..Network::new(
            RUNTIME.handle().clone(),
            CancellationToken::new(),
            certs::distrustful_client_config().unwrap(),
        )
    }
}
