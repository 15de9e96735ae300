//! Checks whether the password of a registry may be sent to a token service.
//!
//! A registry's challenge contains the URL of its token service, which may be any URL. The author
//! of the challenge could have the password sent anywhere. The token service therefore has to
//! belong to the registry: it is on the same host, on a neighbour below the same domain, or on a
//! host that is known or was named by the user.

use stream::error::SourceError;
use url::{Host, Url};

use super::{ImportPolicy, PolicyMode, TOKEN_SERVICES};
use crate::error::invalid_error;

/// Public registries and their token services, which are accepted without the rule for neighbours.
const KNOWN: [(&str, &str); 2] =
    [("registry.gitlab.com", "gitlab.com"), ("registry-1.docker.io", "auth.docker.io")];

/// Public registries with a host and a token service for each region: the prefixes of both hosts,
/// and the suffix that follows the region's name.
const KNOWN_BY_REGION: [(&str, &str, &str); 1] = [("registry.", "dockerauth.", ".aliyuncs.com")];

/// Domains below which anybody can get a name, so that neighbours have different owners. The full
/// list (publicsuffix.org) has ten thousand entries; these are the domains where registries and
/// web services are run. If a domain is missing here, a registry below it can pass the password,
/// which it may request for itself anyway, on to another tenant.
const SHARED: &str = "
    aliyuncs.com amazonaws.com amazonaws.com.cn app.github.dev appdomain.cloud appspot.com
    awsapprunner.com azure-api.net azure.com azurecontainer.io azurecontainerapps.io azurecr.cn
    azurecr.io azurecr.us azurefd.net azurewebsites.net cfargotunnel.com cloudapp.net cloudfront.net
    cloudfunctions.net codeanyapp.com ddns.net duckdns.org dyndns.org elasticbeanstalk.com
    firebaseapp.com fly.dev github.io gitlab.io googleusercontent.com gitpod.io herokuapp.com
    hopto.org icr.io jfrog.io linodeusercontent.com loca.lt localhost.run mybluemix.net
    myhuaweicloud.com netlify.app ngrok-free.app ngrok.app ngrok.dev ngrok.io nip.io no-ip.org
    ocir.io on.aws ondigitalocean.app onrender.com pages.dev pkg.dev railway.app run.app scw.cloud
    sslip.io tencentcloudcr.com trycloudflare.com vercel.app vultrcr.com workers.dev
";

/// Second-level labels below country domains that do not belong to one owner, in addition to
/// labels of up to three letters (`co.uk`).
const GENERIC: [&str; 8] = ["asso", "coop", "firm", "gouv", "govt", "info", "name", "school"];

impl ImportPolicy {
    /// Checks that the password for `registry` may be sent to the token service at `realm`, which
    /// the registry named.
    pub fn check_token_service(&self, registry: &Url, realm: &Url) -> Result<(), SourceError> {
        let (registry_host, realm_host) = (url_host(registry), url_host(realm));
        let refused = |reason: String| Err(invalid_error(reason));
        // This is checked before the list of named services: naming a host permits that host, but
        // not a connection without TLS.
        if realm.scheme() != "https" && registry.scheme() == "https" {
            return refused(format!(
                "the registry {registry_host} wants its password to be sent to the token service {realm_host} without TLS, where \
                 anybody on the path could read it"
            ));
        }
        let is_named =
            self.token_services.iter().any(|named| named.eq_ignore_ascii_case(realm_host));
        if !is_named && !is_related_realm(registry, realm) {
            let how = match self.face {
                PolicyMode::Pod => format!("name it in {TOKEN_SERVICES}"),
                PolicyMode::CommandLine => "allow it with --token-service".to_owned(),
            };
            return refused(format!(
                "the registry {registry_host} wants its password to be sent to the token service {realm_host}, which is not \
                 known to belong to it: {how} if it does"
            ));
        }
        self.check_secret_target("the password of the registry", realm)
    }
}

fn url_host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

fn is_related_realm(registry: &Url, realm: &Url) -> bool {
    let (registry_host, realm_host) = (url_host(registry), url_host(realm));
    let is_known = KNOWN.contains(&(registry_host, realm_host));
    let names =
        matches!((registry.host(), realm.host()), (Some(Host::Domain(_)), Some(Host::Domain(_))));
    registry_host == realm_host
        || is_known
        || is_known_by_region(registry_host, realm_host)
        || (names && are_neighbours(registry_host, realm_host))
}

fn is_known_by_region(registry: &str, realm: &str) -> bool {
    let region = |host: &str, before: &str, after: &str| {
        let region = host.strip_prefix(before)?.strip_suffix(after)?;
        (!region.contains('.')).then(|| region.to_owned())
    };
    KNOWN_BY_REGION.iter().any(|(registries, realms, domain)| {
        let of_registry = region(registry, registries, domain);
        of_registry.is_some() && of_registry == region(realm, realms, domain)
    })
}

/// True for `registry.example.org` with `auth.example.org` or `example.org`, if that domain has
/// one owner.
fn are_neighbours(registry: &str, realm: &str) -> bool {
    let Some((_, parent)) = registry.split_once('.') else {
        return false;
    };
    let is_below =
        || realm.strip_suffix(parent)?.strip_suffix('.').map(|label| !label.contains('.'));
    has_one_owner(parent) && (realm == parent || is_below().unwrap_or(false))
}

fn has_one_owner(domain: &str) -> bool {
    let labels: Vec<&str> = domain.split('.').collect();
    let is_registered = match labels.as_slice() {
        [] | [_] => false,
        // `co.uk`, `gouv.fr`: below a country's domain, such names belong to many owners. So do
        // `uk.com` and `eu.org`.
        [second, top] if top.len() == 2 => second.len() > 3 && !GENERIC.contains(second),
        [second, _] => second.len() > 2,
        _ => labels.iter().all(|label| !label.is_empty()),
    };
    let is_shared = |shared: &str| {
        domain.strip_suffix(shared).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    is_registered && !SHARED.split_whitespace().any(is_shared)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::ExtraPermissions;
    use super::*;

    /// `text` lacks its scheme if that is https.
    fn url(text: &str) -> Url {
        let scheme = if text.contains("://") { "" } else { "https://" };
        Url::parse(&format!("{scheme}{text}")).unwrap()
    }

    fn admits(policy: &ImportPolicy, registry: &str, realm: &str) -> Result<(), String> {
        let registry = url(&format!("{registry}/v2/"));
        policy.check_token_service(&registry, &url(realm)).map_err(|error| error.to_string())
    }

    fn policy(named: &[&str]) -> ImportPolicy {
        let granted = ExtraPermissions {
            token_services: named.iter().map(|host| (*host).to_owned()).collect(),
            ..ExtraPermissions::default()
        };
        ImportPolicy::command_line(&HashMap::<String, String>::new(), true, &granted)
    }

    #[test]
    fn a_token_service_may_be_the_registry_a_neighbour_or_well_known() {
        for (registry, realm) in [
            ("quay.io", "quay.io/v2/auth"),
            ("registry:5000", "registry:5001/auth"),
            ("10.0.0.1", "10.0.0.1:8443/auth"),
            ("http://127.0.0.1:5000", "http://127.0.0.1:5001/token"),
            ("registry-1.docker.io", "auth.docker.io/token"),
            ("registry.gitlab.com", "gitlab.com/jwt/auth"),
            ("registry.example.org", "gitlab.example.org/jwt/auth"),
            ("registry.example.org", "example.org/token"),
            ("registry.example.co.uk", "auth.example.co.uk/token"),
            ("docker.elastic.co", "docker-auth.elastic.co/auth"),
            ("registry.digitalocean.com", "api.digitalocean.com/v2/registry/auth"),
            ("registry.cn-hangzhou.aliyuncs.com", "dockerauth.cn-hangzhou.aliyuncs.com/auth"),
            ("registry.shop.svc.cluster.local", "auth.shop.svc.cluster.local/token"),
        ] {
            assert_eq!(admits(&policy(&[]), registry, realm), Ok(()), "{registry} {realm}");
        }
    }

    #[test]
    fn other_token_services_get_no_password() {
        for (registry, realm) in [
            ("quay.io", "evil.example/auth"),
            ("registry.example.org", "example.org.evil.example/"),
            ("registry.example.org", "evilexample.org/"),
            ("registry.example.org", "a.b.example.org/"),
            ("registry.example.org", "registry.example.org.evil.example/"),
            ("example.org", "evil.org/"),
            ("example.co.uk", "evil.co.uk/"),
            ("example.gouv.fr", "evil.gouv.fr/"),
            ("example.uk.com", "evil.uk.com/"),
            ("example.com.au", "evil.com.au/"),
            ("example.github.io", "evil.github.io/"),
            ("acme.azurecr.io", "evil.azurecr.io/oauth2/token"),
            ("acme.jfrog.io", "evil.jfrog.io/token"),
            ("a.us-east-1.elb.amazonaws.com", "evil.us-east-1.elb.amazonaws.com/"),
            ("registry.cn-hangzhou.aliyuncs.com", "evil.cn-hangzhou.aliyuncs.com/auth"),
            ("registry.cn-hangzhou.aliyuncs.com", "dockerauth.cn-beijing.aliyuncs.com/auth"),
            ("10.0.0.1", "10.0.0.2/auth"),
            ("10.0.0.1", "11.0.0.1/auth"),
            ("registry", "auth/token"),
            ("evil.example", "gitlab.com/jwt/auth"),
        ] {
            let error = admits(&policy(&[]), registry, realm).unwrap_err();
            let host = |text: &str| url(text).host_str().unwrap().to_owned();
            for part in [host(registry), host(realm), "--token-service".to_owned()] {
                assert!(error.contains(&part), "{part}: {error}");
            }
            assert_eq!(
                admits(&policy(&[&host(realm)]), registry, realm),
                Ok(()),
                "allowed by name"
            );
        }
    }

    #[test]
    fn secrets_for_a_registry_with_tls_are_never_sent_without() {
        let pod = ImportPolicy::for_pod(&HashMap::<String, String>::new(), false);
        let lax = [policy(&["registry.example.org"]), pod];
        let plain = ("http://registry.example.org", "http://registry.example.org/token");
        for policy in &lax {
            let error = admits(policy, "registry.example.org", plain.1).unwrap_err();
            assert!(error.contains("without TLS"), "{error}");
        }
        assert!(admits(&lax[0], plain.0, plain.1).unwrap_err().contains("--cleartext-secrets"));
        assert_eq!(admits(&lax[1], plain.0, plain.1), Ok(()), "the pod only warns");
    }
}
