//! Sources with scripted servers, which run in this process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod http_source;

use std::sync::LazyLock;

use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
