//! The sources with servers: a scripted origin, and VMware's simulator of vSphere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

mod http_source;
mod vddk;

use std::sync::LazyLock;

use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
