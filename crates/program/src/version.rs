use std::env::consts::{ARCH, OS};
use std::sync::LazyLock;

/// The commit from which a release was built, set by `images/compile.sh`. The build does not read
/// it from git, because every commit would then recompile everything.
const COMMIT: Option<&str> = option_env!("CDI_WORKERS_COMMIT");

/// Version, commit and target, as in "0.1.0 (1a2b3c4d5e6f, aarch64-linux)". It is the same for all
/// programs. `--version` prints it, and a pod logs it when it starts.
pub static VERSION: LazyLock<String> = LazyLock::new(|| {
    let (version, commit) = parts();
    format!("{version} ({commit}, {ARCH}-{OS})")
});

/// Returns the version and the commit of this build.
pub(crate) fn parts() -> (&'static str, &'static str) {
    (env!("CARGO_PKG_VERSION"), COMMIT.unwrap_or("no release"))
}
