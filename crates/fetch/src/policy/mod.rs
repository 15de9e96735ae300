//! Rules for which secrets an import may send to which server. The pod or the command line creates
//! one [`ImportPolicy`], and every source consults it.
//!
//! ```text
//!  pod ───────────┐
//!  command line ──┴─► ImportPolicy
//!                       ├─► lend_identity:       identities found on this machine, for which host
//!                       ├─► check_secret_target: secrets, over which connection
//!                       ├─► check_token_service: a registry's password, for which token service
//!                       └─► check_url: any request; a pod never contacts the metadata service
//! ```
//!
//! Keys, passwords and tokens that come with the import belong to its author, who also chose the
//! endpoint. An identity that is found (in the environment, in a mounted file, at a metadata
//! service) belongs to another party: the machine, the node or the pod. An import must not
//! be able to use it for an unrelated host.

mod cloud;
mod identity;
mod metadata;
mod secrets;
mod token_service;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use program::env::NamedStrings;

pub use self::cloud::CloudProvider;
use self::identity::{AllowedHosts, SETTINGS};
pub use self::identity::{IdentityOrigin, IdentityVariables};
pub use self::metadata::POD_IDENTITY_URLS;
use self::secrets::CleartextRule;

/// Variable with hosts that the password of a registry may be sent to, separated by commas. It is
/// meant for administrators: CDI does not set it.
const TOKEN_SERVICES: &str = "IMPORTER_TOKEN_SERVICES";

/// Additional permissions, given by a user of the command line.
#[derive(Debug, Clone, Default)]
pub struct ExtraPermissions {
    /// `--ambient-identity`: identities of this machine may be used for any host.
    pub ambient_identity: bool,
    /// `--cleartext-secrets`: secrets may be sent over plain HTTP.
    pub cleartext_secrets: bool,
    /// `--token-service`: hosts that the password of a registry may be sent to.
    pub token_services: Vec<String>,
}

/// The rules of one import.
#[derive(Clone)]
pub struct ImportPolicy {
    face: PolicyMode,
    hosts: AllowedHosts,
    cleartext: CleartextRule,
    token_services: Vec<String>,
    /// True for requests to the endpoint of EKS Pod Identity.
    asks_pod_identity: bool,
    /// Environment variables, accessible only through [`ImportPolicy::get_setting`] and
    /// [`ImportPolicy::lend_identity`].
    variables: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyMode {
    Pod,
    CommandLine,
}

impl ImportPolicy {
    /// The policy of a pod. The author of the DataVolume does not own the node, so only an
    /// identity of the pod's service account is used, and only for the cloud's own hosts.
    /// Secrets come with the endpoint that they are for, and are sent to it; without TLS, a
    /// warning is logged.
    pub fn for_pod(env: &dyn NamedStrings, verifies_tls: bool) -> Self {
        Self {
            face: PolicyMode::Pod,
            hosts: AllowedHosts::for_pod(verifies_tls),
            cleartext: CleartextRule::new_warned(),
            token_services: token_services(&env.get(TOKEN_SERVICES).unwrap_or_default()),
            asks_pod_identity: false,
            variables: identity::policy_variables(env),
        }
    }

    /// The policy of the command line. Its user owns the identities of the machine, but may be
    /// mistaken about the server.
    pub fn command_line(
        env: &dyn NamedStrings,
        verifies_tls: bool,
        granted: &ExtraPermissions,
    ) -> Self {
        Self {
            face: PolicyMode::CommandLine,
            hosts: if granted.ambient_identity {
                AllowedHosts::Any
            } else {
                AllowedHosts::for_pod(verifies_tls)
            },
            cleartext: if granted.cleartext_secrets {
                CleartextRule::new_warned()
            } else {
                CleartextRule::Refused
            },
            token_services: granted.token_services.clone(),
            asks_pod_identity: false,
            variables: identity::policy_variables(env),
        }
    }

    /// Returns a variable that contains a location, never one that contains an identity.
    pub fn get_setting(&self, name: &str) -> Option<&str> {
        self.get_variable(name).filter(|_| SETTINGS.contains(&name))
    }

    /// Returns the value of a variable, unless it is empty.
    fn get_variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value)
    }
}

fn token_services(list: &str) -> Vec<String> {
    let hosts = list.split(',').map(str::trim).filter(|host| !host.is_empty());
    hosts.map(str::to_owned).collect()
}

/// The strictest policy: without any identity, and without additional permissions.
impl Default for ImportPolicy {
    fn default() -> Self {
        Self::command_line(&HashMap::new(), true, &ExtraPermissions::default())
    }
}

/// Leaves out the variables, because some of them contain keys.
impl fmt::Debug for ImportPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportPolicy")
            .field("face", &self.face)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
