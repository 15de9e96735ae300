use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The commit that a release was built from (`images/compile.sh`). Not asked from git here: each commit would compile everything anew.
const COMMIT: Option<&str> = option_env!("CDI_WORKERS_COMMIT");

/// Version, commit and target of all our programs, as in "0.1.0 (1a2b3c4d5e6f, aarch64-linux)": what `--version` prints, and a pod when it
/// starts.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let (version, commit) = parts();
    format!("{version} ({commit}, {ARCH}-{OS})")
});

/// The version and the commit.
pub(crate) fn parts() -> (&'static str, &'static str) {
    (env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or("no release"))
}
