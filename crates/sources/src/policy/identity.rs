//! Identities that did not come with the import, and which hosts they may be used for.

use std::collections::BTreeMap;

use program::env::Strings;
use url::Url;

use super::cloud::Cloud;
use super::{Face, Policy};

/// Place at which an identity was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Keys in variables.
    Variables,
    /// A file that variables name: the platform mounts the identity of a workload like that.
    Mounted,
    /// A service of the platform or the machine that hands identities out, or a user's login.
    Machine,
}

/// The hosts that an identity may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hosts {
    /// The cloud's own, whose certificates are verified.
    Own,
    /// None: where certificates are not verified, any host can say that it is the cloud's.
    Unverified,
    /// All hosts, as the user has said.
    Any,
}

impl Hosts {
    pub(super) fn own(verifies_tls: bool) -> Self {
        if verifies_tls { Self::Own } else { Self::Unverified }
    }
}

/// Variables that say where something is.
pub(super) const SETTINGS: [&str; 5] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "STORAGE_EMULATOR_HOST",
];

/// Variables that say who asks, or whom to ask for that.
const IDENTITIES: [(Found, &[&str]); 3] = [
    (
        Found::Variables,
        &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
    ),
    (
        Found::Mounted,
        &[
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_ROLE_ARN",
            "AWS_ROLE_SESSION_NAME",
            "AWS_ENDPOINT_URL_STS",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ],
    ),
    (
        Found::Machine,
        &[
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "AWS_EC2_METADATA_DISABLED",
        ],
    ),
];

/// The variables of `env` that a policy is about.
pub(super) fn variables(env: &dyn Strings) -> BTreeMap<String, String> {
    let identities = IDENTITIES.iter().flat_map(|(_, names)| names.iter());
    SETTINGS
        .iter()
        .chain(identities)
        .filter_map(|name| Some(((*name).to_owned(), env.get(name)?)))
        .collect()
}

/// The variables of an identity that may be used.
#[derive(Debug, Clone, Copy)]
pub struct Lent<'a> {
    policy: &'a Policy,
    found: Found,
}

impl<'a> Lent<'a> {
    /// The value of one of its variables, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let names = IDENTITIES.iter().find(|(found, _)| *found == self.found);
        let is_its_own = names.is_some_and(|(_, names)| names.contains(&name));
        self.policy.variable(name).filter(|_| is_its_own)
    }
}

impl Policy {
    /// An identity of `cloud` that was found, for requests to `url`. The error says why none is used there, and what helps.
    pub fn lend(&self, found: Found, cloud: Cloud, url: &Url) -> Result<Lent<'_>, String> {
        let is_for_host = match self.hosts {
            Hosts::Any => true,
            Hosts::Own => cloud.owns(url),
            Hosts::Unverified => false,
        };
        // What the node or the cluster knows is not the pod's. Upstream never asks for it.
        let is_for_face = self.face == Face::CommandLine || found == Found::Mounted;
        if is_for_host && is_for_face {
            return Ok(Lent { policy: self, found });
        }
        Err(self.advice(cloud, url.host_str().unwrap_or_default()))
    }

    fn advice(&self, cloud: Cloud, host: &str) -> String {
        let name = cloud.name();
        let keys = match cloud {
            Cloud::Amazon => "--user and --password-file",
            Cloud::Google => "--key-file",
        };
        match self.face {
            Face::Pod => {
                format!("{host} was asked without keys: they have to be in the Secret of the DataVolume")
            }
            Face::CommandLine => format!(
                "{host} was asked without keys: give them with {keys}; the identity of this machine is used for {name}'s own \
                 hosts with verified certificates, and for others only with --ambient-identity"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Granted;
    use super::*;

    const AMAZON: &str = "https://s3.eu-west-1.amazonaws.com/b/k";
    const STRANGER: &str = "https://minio.example/b/k";

    fn env() -> HashMap<String, String> {
        let identities = IDENTITIES.iter().flat_map(|(_, names)| names.iter());
        let names = identities
            .chain(&SETTINGS)
            .chain(&["HOME", "IMPORTER_SECRET_KEY"]);
        names
            .map(|name| ((*name).to_owned(), format!("the {name}")))
            .collect()
    }

    fn lends(policy: &Policy, found: Found, url: &str) -> bool {
        let url = Url::parse(url).unwrap();
        policy.lend(found, Cloud::Amazon, &url).is_ok()
    }

    #[test]
    fn a_pod_lends_what_is_mounted_to_the_cloud_itself() {
        let pod = Policy::pod(&env(), true);
        assert!(lends(&pod, Found::Mounted, AMAZON));
        for stranger in [STRANGER, "http://s3.amazonaws.com/b/k", "https://127.0.0.1/"] {
            assert!(!lends(&pod, Found::Mounted, stranger), "{stranger}");
        }
        for found in [Found::Variables, Found::Machine] {
            assert!(!lends(&pod, found, AMAZON), "{found:?}");
        }
        assert!(
            !lends(&Policy::pod(&env(), false), Found::Mounted, AMAZON),
            "who knows who that is"
        );
    }

    #[test]
    fn the_command_line_lends_to_strangers_when_told_so() {
        let granted = Granted {
            ambient_identity: true,
            ..Granted::default()
        };
        let (usual, told) = (
            Policy::command_line(&env(), true, &Granted::default()),
            Policy::command_line(&env(), false, &granted),
        );
        for found in [Found::Variables, Found::Mounted, Found::Machine] {
            assert!(lends(&usual, found, AMAZON) && !lends(&usual, found, STRANGER));
            assert!(lends(&told, found, AMAZON) && lends(&told, found, STRANGER));
        }
        let unverified = Policy::command_line(&env(), false, &Granted::default());
        assert!(!lends(&unverified, Found::Machine, AMAZON));
    }

    #[test]
    fn an_identity_has_its_own_variables_only() {
        let policy = Policy::pod(&env(), true);
        let lent = policy.lend(Found::Mounted, Cloud::Amazon, &Url::parse(AMAZON).unwrap());
        let lent = lent.unwrap();
        assert_eq!(lent.get("AWS_ROLE_ARN"), Some("the AWS_ROLE_ARN"));
        for other in [
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "HOME",
            "IMPORTER_SECRET_KEY",
        ] {
            assert_eq!(lent.get(other), None, "{other}");
            assert_eq!(policy.setting(other), None, "{other}");
        }
        assert_eq!(policy.setting("AWS_REGION"), Some("the AWS_REGION"));
        assert!(!format!("{policy:?}").contains("the AWS_"), "{policy:?}");
    }
}
