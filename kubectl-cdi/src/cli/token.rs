//! `kubectl cdi token`.

use program::cdi::{CURL, UPLOAD};
use serde_json::json;

use super::args::{TokenArgs, TokenFormat};
use super::failure::PluginCommandError;
use super::{print_text, shell_word};
use crate::cluster::config::proxy_url;
use crate::cluster::{CdiConfig, Cluster};

pub(super) async fn print_token(arguments: TokenArgs) -> Result<(), PluginCommandError> {
    let cluster = Cluster::connect(&arguments.cluster.clone().into()).await?;
    let target = &arguments.target;
    let token = cluster.request_token(target.name()).await?;
    // CDI gives tokens for claims that do not exist. Behind the request, and no failure of its
    // own: the right to look is another one.
    if cluster.find_target(target).await.is_ok_and(|found| found.is_empty()) {
        return Err(cluster.not_found(target).into());
    }
    let expires = token.expires().map(|time| time.to_string());
    let token = token.as_str();
    match arguments.output {
        Some(TokenFormat::Name) => print_text(&format!("{token}\n")),
        Some(TokenFormat::Json) => {
            // A token is of use to those who know the way already.
            let url = upload_url(&cluster, &arguments).await.ok().map(|(url, _)| url);
            let namespace = cluster.namespace();
            let printed = json!({
                "token": token, "expires": expires, "url": url, "namespace": namespace, "name": target.name(),
            });
            print_text(&format!("{printed}\n"))
        }
        Some(TokenFormat::Curl) => {
            let (url, config) = upload_url(&cluster, &arguments).await?;
            print_text(&format!("{}\n", curl_command(token, &url, &authority_words(&arguments, &config))))
        }
        None => {
            let (url, config) = upload_url(&cluster, &arguments).await?;
            let command = curl_command(token, &url, &authority_words(&arguments, &config));
            print_text(&format!("{token}\n\n# For five minutes:\n{command}\n"))
        }
    }
}

/// The URL of an upload in one request, and what CDI says of itself, as far as that may be asked.
async fn upload_url(
    cluster: &Cluster,
    arguments: &TokenArgs,
) -> Result<(String, CdiConfig), PluginCommandError> {
    let (proxy, config) = match &arguments.uploadproxy_url {
        Some(text) => {
            let wrong = || {
                PluginCommandError::Usage(format!(
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

/// The words that name the authority of the upload proxy's certificate to curl: a file that is given, or what CDI's configuration has.
fn authority_words(arguments: &TokenArgs, config: &CdiConfig) -> String {
    match (&arguments.cacert, config.proxy_ca()) {
        (Some(file), _) => format!(" --cacert {}", shell_word(&file.to_string_lossy())),
        (None, Some(_)) => format!(
            " --cacert <(kubectl get cdiconfig config -o 'jsonpath={{.status.uploadProxyCA}}'{})",
            arguments.cluster.to_words()
        ),
        (None, None) => String::new(),
    }
}

/// The command that uploads a file: all lines with curl that this program prints.
fn curl_command(token: &str, url: &str, authority: &str) -> String {
    format!("{CURL}{authority} -H 'Authorization: Bearer {token}' {url}")
}
