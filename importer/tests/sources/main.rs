//! Every source against servers: the contract that all fulfil, what only one has, and what is refused, hidden or given up.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, also in its helpers"
)]

mod contract;
mod downgrade;
mod glance;
mod imageio;
mod nbd;
mod nginx;
mod objects;
mod registry;
mod secrets;
mod unreachable;
mod vmware;

use std::sync::LazyLock;

use testkit::objects::{Kind, Store};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static MOTO: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::Moto));
static S3S: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::S3s));
static GCS: LazyLock<Store> = LazyLock::new(|| Store::start(Kind::Gcs));

const BINARY: &str = env!("CARGO_BIN_EXE_cdi-importer");
