//! Identities that did not come with the import, and the hosts that they may be used for.

use std::collections::BTreeMap;

use program::env::NamedStrings;
use url::Url;

use super::cloud::CloudProvider;
use super::{ImportPolicy, PolicyMode};

/// The place where an identity was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityOrigin {
    /// Keys in environment variables.
    Variables,
    /// A file that variables refer to. Platforms mount the identity of a workload in this way.
    Mounted,
    /// The endpoint of EKS Pod Identity and a token file, which the platform gives to the pods of a
    /// service account.
    PodIdentity,
    /// A service of the platform or the machine that issues identities, or a user's login.
    Machine,
}

/// The hosts that an identity may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedHosts {
    /// The cloud's own hosts, whose certificates are verified.
    Own,
    /// No hosts: without verified certificates, any host can claim to be the cloud's.
    Unverified,
    /// All hosts, as permitted by the user.
    Any,
}

impl AllowedHosts {
    pub(super) fn for_pod(verifies_tls: bool) -> Self {
        if verifies_tls { Self::Own } else { Self::Unverified }
    }
}

/// Variables that contain locations: regions and endpoints.
pub(super) const SETTINGS: [&str; 5] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "STORAGE_EMULATOR_HOST",
];

/// Variables with identities, or with the services and files that provide them.
const IDENTITIES: [(IdentityOrigin, &[&str]); 4] = [
    (
        IdentityOrigin::Variables,
        &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
    ),
    (
        IdentityOrigin::Mounted,
        &[
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AWS_ROLE_ARN",
            "AWS_ROLE_SESSION_NAME",
            "AWS_ENDPOINT_URL_STS",
            "GOOGLE_APPLICATION_CREDENTIALS",
        ],
    ),
    (
        IdentityOrigin::PodIdentity,
        &["AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"],
    ),
    (
        IdentityOrigin::Machine,
        &[
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            "AWS_EC2_METADATA_DISABLED",
        ],
    ),
];

/// Reads the variables of `env` that the policy governs.
pub(super) fn policy_variables(env: &dyn NamedStrings) -> BTreeMap<String, String> {
    let identities = IDENTITIES.iter().flat_map(|(_, names)| names.iter());
    SETTINGS
        .iter()
        .chain(identities)
        .filter_map(|name| Some(((*name).to_owned(), env.get(name)?)))
        .collect()
}

/// Access to the variables of an identity that may be used.
#[derive(Debug, Clone, Copy)]
pub struct IdentityVariables<'a> {
    policy: &'a ImportPolicy,
    found: IdentityOrigin,
}

impl<'a> IdentityVariables<'a> {
    /// Returns the value of a variable of this identity, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let names = IDENTITIES.iter().find(|(found, _)| *found == self.found);
        let is_its_own = names.is_some_and(|(_, names)| names.contains(&name));
        self.policy.get_variable(name).filter(|_| is_its_own)
    }
}

impl ImportPolicy {
    /// Permits the use of an identity of `cloud` for requests to `url`. The error states why the
    /// identity is not used there and what the user can do.
    pub fn lend_identity(
        &self,
        found: IdentityOrigin,
        cloud: CloudProvider,
        url: &Url,
    ) -> Result<IdentityVariables<'_>, String> {
        let is_for_host = match self.hosts {
            AllowedHosts::Any => true,
            AllowedHosts::Own => cloud.owns_url(url),
            AllowedHosts::Unverified => false,
        };
        // The author of the DataVolume chooses the pod's service account, and thereby what is
        // mounted for it. Identities that the node provides do not belong to the pod.
        let is_of_account = matches!(found, IdentityOrigin::Mounted | IdentityOrigin::PodIdentity);
        let is_for_face = self.face == PolicyMode::CommandLine || is_of_account;
        if is_for_host && is_for_face {
            return Ok(IdentityVariables { policy: self, found });
        }
        Err(self.identity_advice(cloud, url.host_str().unwrap_or_default()))
    }

    fn identity_advice(&self, cloud: CloudProvider, host: &str) -> String {
        let name = cloud.name();
        let keys = match cloud {
            CloudProvider::Amazon => "give them with --user and --password-file",
            CloudProvider::Google => "name their file in GOOGLE_APPLICATION_CREDENTIALS",
        };
        match self.face {
            PolicyMode::Pod => {
                format!(
                    "{host} was accessed without keys: put them into the Secret of the DataVolume"
                )
            }
            PolicyMode::CommandLine => format!(
                "{host} was accessed without keys: {keys}; the identity of this machine is used for {name}'s own hosts \
                 with verified certificates, and for others only with --ambient-identity"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::ExtraPermissions;
    use super::*;

    const AMAZON: &str = "https://s3.eu-west-1.amazonaws.com/b/k";
    const STRANGER: &str = "https://minio.example/b/k";

    fn env() -> HashMap<String, String> {
        let identities = IDENTITIES.iter().flat_map(|(_, names)| names.iter());
        let names = identities.chain(&SETTINGS).chain(&["HOME", "IMPORTER_SECRET_KEY"]);
        names.map(|name| ((*name).to_owned(), format!("the {name}"))).collect()
    }

    fn lends(policy: &ImportPolicy, found: IdentityOrigin, url: &str) -> bool {
        let url = Url::parse(url).unwrap();
        policy.lend_identity(found, CloudProvider::Amazon, &url).is_ok()
    }

    #[test]
    fn a_pod_lends_its_mounted_identity_only_to_the_cloud() {
        let pod = ImportPolicy::for_pod(&env(), true);
        for found in [IdentityOrigin::Mounted, IdentityOrigin::PodIdentity] {
            assert!(lends(&pod, found, AMAZON));
            for stranger in [STRANGER, "http://s3.amazonaws.com/b/k", "https://127.0.0.1/"] {
                assert!(!lends(&pod, found, stranger), "{stranger}");
            }
        }
        for found in [IdentityOrigin::Variables, IdentityOrigin::Machine] {
            assert!(!lends(&pod, found, AMAZON), "{found:?}");
        }
        assert!(
            !lends(&ImportPolicy::for_pod(&env(), false), IdentityOrigin::Mounted, AMAZON),
            "the server is not verified"
        );
    }

    #[test]
    fn the_command_line_lends_identities_to_others_only_on_request() {
        let granted = ExtraPermissions { ambient_identity: true, ..ExtraPermissions::default() };
        let (usual, told) = (
            ImportPolicy::command_line(&env(), true, &ExtraPermissions::default()),
            ImportPolicy::command_line(&env(), false, &granted),
        );
        for (found, _) in IDENTITIES {
            assert!(lends(&usual, found, AMAZON) && !lends(&usual, found, STRANGER));
            assert!(lends(&told, found, AMAZON) && lends(&told, found, STRANGER));
        }
        let unverified = ImportPolicy::command_line(&env(), false, &ExtraPermissions::default());
        assert!(!lends(&unverified, IdentityOrigin::Machine, AMAZON));
    }

    #[test]
    fn a_lent_identity_has_only_its_own_variables() {
        let policy = ImportPolicy::for_pod(&env(), true);
        let lent = policy.lend_identity(
            IdentityOrigin::Mounted,
            CloudProvider::Amazon,
            &Url::parse(AMAZON).unwrap(),
        );
        let lent = lent.unwrap();
        assert_eq!(lent.get("AWS_ROLE_ARN"), Some("the AWS_ROLE_ARN"));
        for other in ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HOME", "IMPORTER_SECRET_KEY"] {
            assert_eq!(lent.get(other), None, "{other}");
            assert_eq!(policy.get_setting(other), None, "{other}");
        }
        assert_eq!(policy.get_setting("AWS_REGION"), Some("the AWS_REGION"));
        assert!(!format!("{policy:?}").contains("the AWS_"), "{policy:?}");
    }
}
