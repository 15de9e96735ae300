//! Tracks the TLS versions and cipher suites that the cluster allows, which are part of CDI's
//! configuration.

use futures_util::{Stream, StreamExt};
use https::tls::TlsProfile;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::watch;

/// The name of the configuration object, the only one of its kind.
const NAME: &str = "config";

/// Returns the API for CDI's configuration, which is not namespaced.
fn config_api(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "CDIConfig");
    Api::all_with(client, &ApiResource::from_gvk_with_plural(&kind, "cdiconfigs"))
}

/// Waits for the first state of the configuration, and then follows its changes in a separate
/// task.
pub(crate) async fn follow_profile(client: Client) -> watch::Receiver<TlsProfile> {
    let mut states = Box::pin(watch_object(config_api(client), NAME).default_backoff());
    let (profile, receiver) = watch::channel(TlsProfile::default());
    take_next(&mut states, &profile).await;
    tokio::spawn(async move { while take_next(&mut states, &profile).await {} });
    receiver
}

type State = watcher::Result<Option<DynamicObject>>;

/// Publishes the next state. Returns false if the stream has ended. If the configuration is
/// missing, the last profile stays in force.
async fn take_next(
    states: &mut (impl Stream<Item = State> + Unpin),
    profile: &watch::Sender<TlsProfile>,
) -> bool {
    loop {
        match states.next().await {
            Some(Ok(Some(config))) => {
                let next = parse_profile(&config.data);
                if let Some(omissions) = next.describe_omissions() {
                    tracing::debug!("{omissions}");
                }
                // Receivers are notified only of changes, because they build a new TLS
                // configuration each time.
                profile.send_if_modified(|current| {
                    let changed = *current != next;
                    if changed {
                        tracing::info!("the TLS profile is now {next:?}");
                        *current = next;
                    }
                    changed
                });
                return true;
            }
            // The configuration was deleted: the last profile stays in force (contract §3.2).
            Some(Ok(None)) => return true,
            Some(Err(error)) => {
                // The stream has not ended: it starts another watch after a pause
                // (`default_backoff`).
                tracing::warn!(
                    "cannot watch CDI's configuration: {}",
                    program::report::error_chain(&error)
                );
            }
            None => return false,
        }
    }
}

/// Returns the profile in a configuration. The profile types have OpenShift's names: `Old`,
/// `Intermediate`, `Modern` and `Custom`.
fn parse_profile(config: &Value) -> TlsProfile {
    let profile = &config["spec"]["tlsSecurityProfile"];
    let custom = &profile["custom"];
    if custom.is_object() {
        let ciphers = custom["ciphers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> = ciphers.iter().filter_map(Value::as_str).collect();
        let version = custom["minTLSVersion"].as_str().unwrap_or_default();
        return TlsProfile::new(version, &names.join(","));
    }
    match profile["type"].as_str() {
        Some("Modern") => TlsProfile::new("VersionTLS13", ""),
        // The default is used, because TLS 1.0 and its cipher suites, which this profile adds, are
        // not supported.
        Some("Old") => TlsProfile::new("", ""),
        _ => TlsProfile::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_profile_is_chosen_by_its_type_unless_it_is_custom() {
        let profile =
            |profile: Value| parse_profile(&json!({"spec": {"tlsSecurityProfile": profile}}));
        let modern = TlsProfile::new("VersionTLS13", "");
        assert_eq!(parse_profile(&json!({})), TlsProfile::default());
        assert_eq!(profile(json!({"type": "Modern", "modern": {}})), modern);
        for kind in ["Old", "Intermediate", "Else"] {
            assert_eq!(profile(json!({"type": kind})), TlsProfile::default());
        }
        let custom = json!({"type": "Modern", "custom": {
            "ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES128-GCM-SHA256"], "minTLSVersion": "VersionTLS12",
        }});
        let expected = TlsProfile::new(
            "VersionTLS12",
            "ECDHE-RSA-AES128-GCM-SHA256,DHE-RSA-AES128-GCM-SHA256",
        );
        assert_eq!(profile(custom), expected);
    }
}
