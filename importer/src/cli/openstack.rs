//! Finds the credentials for an OpenStack cloud in the options, and in the environment variables
//! that OpenStack's own client uses.

use std::collections::HashMap;

use fetch::BasicCredentials;
use program::env::{EnvReader, NamedStrings, ProcessEnv};
use stores::glance::{GlanceAccess, NameStyle};
use url::Url;

use super::advice::GIVE_LOGIN;
use super::failure::{ImporterCommandError, usage_error};

/// The variable that contains the URL of the cloud to which the other variables belong.
const AUTH_URL: &str = "OS_AUTH_URL";

/// Variables that identify the user. They are replaced by `--user` and `--password-file`.
const IDENTITY: [&str; 4] = ["OS_AUTH_TYPE", "OS_USER_ID", "OS_USERNAME", "OS_PASSWORD"];

/// Returns the access to the cloud of `source`, or `None` if `source` is not in an OpenStack
/// cloud. Credentials from variables are sent only to the cloud in `OS_AUTH_URL`, unless `is_lent`
/// (`--ambient-identity`) permits any cloud.
pub(super) fn glance_access(
    source: &str,
    given: Option<&BasicCredentials>,
    is_lent: bool,
) -> Result<Option<GlanceAccess>, ImporterCommandError> {
    if !source.to_ascii_lowercase().starts_with("glance+http") {
        return Ok(None);
    }
    let mut variables: HashMap<_, _> = ProcessEnv.with_prefix("OS_").into_iter().collect();
    match given {
        Some(credentials) => {
            variables.retain(|name, _| !IDENTITY.contains(&name.as_str()));
            variables.insert("OS_USERNAME".to_owned(), credentials.user().to_owned());
            variables.insert("OS_PASSWORD".to_owned(), credentials.password().to_owned());
        }
        None if is_lent => {}
        None => check_cloud(source, variables.get(AUTH_URL))?,
    }
    let mut reader = EnvReader::new(&variables);
    let access = GlanceAccess::from_env(&mut reader, NameStyle::OpenStack);
    reader.into_result().map_err(|errors| {
        usage_error(format!("{errors}: set what your cloud needs, or {GIVE_LOGIN}"))
    })?;
    Ok(access)
}

/// Fails if `auth_url`, which is taken from the variables, names a different host than `source`.
fn check_cloud(source: &str, auth_url: Option<&String>) -> Result<(), ImporterCommandError> {
    let host = |url: &str| Some(Url::parse(url).ok()?.host_str()?.to_owned());
    let Some(own) = auth_url.and_then(|url| host(url)) else {
        return Ok(());
    };
    let named = source.split_once('+').and_then(|(_, url)| host(url));
    match named {
        Some(named) if named != own => Err(usage_error(format!(
            "the variables OS_… are for {own} (see {AUTH_URL}), not for {named}: give --user and --password-file, or allow it with \
             --ambient-identity"
        ))),
        _ => Ok(()),
    }
}
