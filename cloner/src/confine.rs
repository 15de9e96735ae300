//! The files, ports and system calls that the cloner keeps.

use std::path::Path;

use https::metrics;
use program::env::NamedStrings;
use program::paths::PodPaths;
use sandbox::{SandboxRules, TcpConnections};
use url::Url;

/// Allows connecting to the server of `url`. Nothing is allowed for a malformed URL, which is
/// reported later.
pub(crate) fn add_server(rules: &mut SandboxRules, url: &str) {
    let port = Url::parse(url).ok().and_then(|url| url.port_or_known_default());
    rules.connect(port.map_or(TcpConnections::None, TcpConnections::To));
}

/// Restricts a pod, which has no other thread yet. It reads the volume at `mount` and sends it to
/// `url`. The error is the reason why it must not continue.
pub(crate) fn enter_pod(
    env: &dyn NamedStrings,
    mount: Option<&str>,
    url: &str,
) -> Result<(), String> {
    let paths = PodPaths::from_env(env);
    let mut rules = SandboxRules::new(env);
    rules.read(paths.metrics_certs()).write_file(paths.termination_log());
    if let Some(mount) = mount {
        rules.read(Path::new(mount));
    }
    rules.listen(metrics::metrics_port(env));
    add_server(&mut rules, url);
    sandbox::enter_pod(env, rules).map_err(|error| error.to_string())
}
