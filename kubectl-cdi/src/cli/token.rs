//! The command `kubectl cdi token`: prints an upload token, or a curl command that uses it.

use program::cdi::{CURL, UPLOAD};
use serde_json::json;

use super::args::{TokenArgs, TokenFormat};
use super::{cluster_words, print_text, shell_word};
use crate::cluster::config::proxy_url;
use crate::cluster::token::token_expiry;
use crate::cluster::{CdiConfig, Cluster};
use crate::error::PluginError;

pub(super) async fn print_token(arguments: TokenArgs) -> Result<(), PluginError> {
    let cluster = Cluster::connect(&arguments.cluster).await?;
    let target = &arguments.target;
    let token = cluster.request_token(target.name()).await?;
    // CDI also issues tokens for claims that do not exist, so this checks that the target exists.
    // The check follows the token request, and its own failures are ignored, because reading the
    // target requires a separate permission.
    if cluster.find_target(target).await.is_ok_and(|found| found.is_empty()) {
        return Err(cluster.not_found(target));
    }
    let expires = token_expiry(&token).map(|time| time.to_string());
    let token = token.expose();
    match arguments.output {
        Some(TokenFormat::Name) => print_text(&format!("{token}\n")),
        Some(TokenFormat::Json) => {
            // The URL is optional here, because a user who already knows it needs only the token.
            let url = upload_url(&cluster, &arguments).await.ok().map(|(url, _)| url);
            let namespace = cluster.namespace();
            let printed = json!({
                "token": token, "expires": expires, "url": url, "namespace": namespace, "name": target.name(),
            });
            print_text(&format!("{printed}\n"))
        }
        Some(TokenFormat::Curl) | None => {
            let (url, config) = upload_url(&cluster, &arguments).await?;
            let authority = authority_words(&arguments, &config);
            let command = format!("{CURL}{authority} -H 'Authorization: Bearer {token}' {url}\n");
            print_text(&match arguments.output {
                None => format!("{token}\n\n# Valid for five minutes:\n{command}"),
                Some(_) => command,
            })
        }
    }
}

/// Returns the URL for uploads in one request, and CDI's configuration. With `--uploadproxy-url`,
/// a configuration that cannot be read is not an error and is returned empty.
async fn upload_url(
    cluster: &Cluster,
    arguments: &TokenArgs,
) -> Result<(String, CdiConfig), PluginError> {
    let (proxy, config) = match &arguments.uploadproxy_url {
        Some(text) => {
            let wrong = || {
                PluginError::usage(format!(
                    "--uploadproxy-url {text:?} is not a host and a path of plain letters: use https://HOST"
                ))
            };
            (proxy_url(text).ok_or_else(wrong)?, cluster.cdi_config().await.unwrap_or_default())
        }
        None => {
            let config = cluster.cdi_config().await?;
            (config.proxy_url()?, config)
        }
    };
    Ok((format!("{}{UPLOAD}", proxy.as_str().trim_end_matches('/')), config))
}

/// Returns the curl option that names the CA of the upload proxy: the file of `--cacert`, or a
/// shell expression that reads CDI's configuration. Returns an empty text if neither contains a
/// CA.
fn authority_words(arguments: &TokenArgs, config: &CdiConfig) -> String {
    match (&arguments.cacert, config.proxy_ca()) {
        (Some(file), _) => format!(" --cacert {}", shell_word(&file.to_string_lossy())),
        (None, Some(_)) => format!(
            " --cacert <(kubectl get cdiconfig config -o 'jsonpath={{.status.uploadProxyCA}}'{})",
            cluster_words(&arguments.cluster)
        ),
        (None, None) => String::new(),
    }
}
