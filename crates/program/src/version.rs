use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The commit that a release was built from, set by `images/compile.sh`. It is not read from git
/// during the build, because every commit would then recompile everything.
const COMMIT: Option<&str> = option_env!("CDI_WORKERS_COMMIT");

/// Version, commit and target, the same for all programs, as in "0.1.0 (1a2b3c4d5e6f,
/// aarch64-linux)". Printed by `--version` and logged by a pod at its start.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let (version, commit) = parts();
    format!("{version} ({commit}, {ARCH}-{OS})")
});

/// The version and the commit of this build.
pub(crate) fn parts() -> (&'static str, &'static str) {
    (env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or("no release"))
}
