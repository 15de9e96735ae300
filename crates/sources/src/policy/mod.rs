//! Rules for what an import may tell, and to which server: one value, made by the face, and asked by every source.
//!
//! ```text
//!  pod ───────────┐            ┌─► lend:   identities that were found on this machine, for which host
//!  command line ──┴─► Policy ──┼─► reveal: secrets, over which connection
//!                              ├─► admit:  the password of a registry, for which token service
//!                              └─► visit:  servers, which in the pod are not the node's metadata service
//! ```
//!
//! Keys, passwords and tokens that come with the import belong to its author, who also wrote the endpoint. An identity that is
//! found (in the environment, in a mounted file, at a metadata service) belongs to another party: the machine, the node or the
//! pod. An endpoint that names a stranger must not be able to borrow it.

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
use self::secrets::CleartextRule;

/// Hosts that may hear the password of a registry, with commas between them: for administrators, since CDI sets no such variable.
const TOKEN_SERVICES: &str = "IMPORTER_TOKEN_SERVICES";

/// Permissions beyond the usual, by a user of the command line.
#[derive(Debug, Clone, Default)]
pub struct ExtraPermissions {
    /// `--ambient-identity`: identities of this machine may be used for any host.
    pub ambient_identity: bool,
    /// `--cleartext-secrets`: secrets may go over plain HTTP.
    pub cleartext_secrets: bool,
    /// `--token-service`: hosts that may hear the password of a registry.
    pub token_services: Vec<String>,
}

/// The rules of one import.
#[derive(Clone)]
pub struct ImportPolicy {
    face: PolicyMode,
    hosts: AllowedHosts,
    cleartext: CleartextRule,
    token_services: Vec<String>,
    /// Variables of the environment, reached through [`ImportPolicy::get_setting`] and [`ImportPolicy::lend_identity`] only.
    variables: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PolicyMode {
    Pod,
    CommandLine,
}

impl ImportPolicy {
    /// The policy of the pod. Who wrote the DataVolume does not own the node: nothing is borrowed but what was mounted into this
    /// very pod, for the cloud's own hosts. Secrets come with the endpoint that they are for, and go where it says.
    pub fn for_pod(env: &dyn NamedStrings, verifies_tls: bool) -> Self {
        Self {
            face: PolicyMode::Pod,
            hosts: AllowedHosts::for_pod(verifies_tls),
            cleartext: CleartextRule::new_warned(),
            token_services: token_services(&env.get(TOKEN_SERVICES).unwrap_or_default()),
            variables: identity::policy_variables(env),
        }
    }

    /// The policy of the command line: its user owns the identities of the machine, but may be wrong about the server.
    pub fn command_line(env: &dyn NamedStrings, verifies_tls: bool, granted: &ExtraPermissions) -> Self {
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
            variables: identity::policy_variables(env),
        }
    }

    /// A variable that says where something is, and nothing about who asks.
    pub fn get_setting(&self, name: &str) -> Option<&str> {
        self.get_variable(name).filter(|_| SETTINGS.contains(&name))
    }

    /// The value of a variable, unless it is empty.
    fn get_variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value)
    }
}

fn token_services(list: &str) -> Vec<String> {
    let hosts = list.split(',').map(str::trim).filter(|host| !host.is_empty());
    hosts.map(str::to_owned).collect()
}

/// The strictest policy: without any identity, and nothing granted.
impl Default for ImportPolicy {
    fn default() -> Self {
        Self::command_line(&HashMap::new(), true, &ExtraPermissions::default())
    }
}

/// Without the variables: some of them are keys.
impl fmt::Debug for ImportPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportPolicy")
            .field("face", &self.face)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
