//! Hosts that a cloud provider runs itself.

use url::Url;

/// A cloud provider whose identities may be found on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudProvider {
    /// Amazon Web Services.
    Amazon,
    /// Google Cloud.
    Google,
}

impl CloudProvider {
    /// Returns the name of the provider: `Amazon` or `Google`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amazon => "Amazon",
            Self::Google => "Google",
        }
    }

    /// True for an HTTPS URL of the cloud's own storage or, at Amazon, of the service that
    /// exchanges tokens. False for services that customers run below the cloud's domains (load
    /// balancers, machines, functions), because customers choose their names.
    pub fn owns_url(self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let is_own = match self {
            Self::Amazon => is_amazons(host),
            Self::Google => host == GOOGLE_STORAGE || host.ends_with(GOOGLE_BUCKETS),
        };
        url.scheme() == "https" && is_own
    }
}

const GOOGLE_STORAGE: &str = "storage.googleapis.com";
/// Suffix of hosts of the form `BUCKET.storage.googleapis.com`.
const GOOGLE_BUCKETS: &str = ".storage.googleapis.com";

/// Matches `[BUCKET.]s3[.dualstack][.REGION].amazonaws.com[.cn]` with the older and special forms
/// of `s3`, and `sts` in the same way, without a bucket. A test for the suffix `.amazonaws.com` is
/// not enough: `s3-1.us-east-1.elb.amazonaws.com` is a customer's load balancer.
fn is_amazons(host: &str) -> bool {
    let host = host.strip_suffix(".cn").unwrap_or(host);
    let Some(labels) = host.strip_suffix(".amazonaws.com") else {
        return false;
    };
    let mut labels: Vec<&str> = labels.split('.').collect();
    let has_region = labels.pop_if(|label| is_region(label)).is_some();
    labels.pop_if(|label| *label == "dualstack");
    match labels.pop() {
        Some("s3" | "s3-fips" | "s3-accelerate" | "s3-external-1") => true,
        // The older form: s3-eu-west-1.amazonaws.com.
        Some(old) if !has_region && old.strip_prefix("s3-").is_some_and(is_region) => true,
        Some("sts" | "sts-fips") => labels.is_empty(),
        _ => false,
    }
}

/// True for the name of a region, which is words followed by a number: `eu-west-1`,
/// `us-gov-east-1`.
fn is_region(label: &str) -> bool {
    let mut parts = label.split('-').rev();
    let number = parts.next().unwrap_or_default();
    let words: Vec<&str> = parts.collect();
    let is_word =
        |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && words.len() >= 2 && words.iter().all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_cloud_are_told_from_hosts_of_its_customers() {
        use CloudProvider::{Amazon, Google};
        for (cloud, url) in [
            (Amazon, "https://s3.amazonaws.com/b/k"),
            (Amazon, "https://b.s3.amazonaws.com/k"),
            (Amazon, "https://a.b.s3.eu-west-1.amazonaws.com/k"),
            (Amazon, "https://b.s3.dualstack.us-gov-east-1.amazonaws.com/k"),
            (Amazon, "https://s3-us-west-2.amazonaws.com/b/k"),
            (Amazon, "https://b.s3.cn-north-1.amazonaws.com.cn/k"),
            (Amazon, "https://b.s3-accelerate.dualstack.amazonaws.com/k"),
            (Amazon, "https://sts.amazonaws.com/"),
            (Amazon, "https://sts.eu-central-1.amazonaws.com"),
            (Google, "https://storage.googleapis.com/b/o"),
            (Google, "https://b.storage.googleapis.com/o"),
        ] {
            assert!(cloud.owns_url(&Url::parse(url).unwrap()), "{url}");
            let other = if cloud == Amazon { Google } else { Amazon };
            assert!(!other.owns_url(&Url::parse(url).unwrap()), "{url}");
        }
    }

    #[test]
    fn other_hosts_are_not_taken_for_a_cloud() {
        for url in [
            "http://s3.amazonaws.com/b/k",
            "https://s3.amazonaws.com.example/b/k",
            "https://s3amazonaws.com/b/k",
            "https://amazonaws.com/b/k",
            "https://s3-evil-1234567890.us-east-1.elb.amazonaws.com/b/k",
            "https://s3.us-east-1.elb.amazonaws.com/b/k",
            "https://s3.execute-api.us-east-1.amazonaws.com/b/k",
            "https://ec2-192-0-2-1.us-west-2.compute.amazonaws.com/b/k",
            "https://s3-evil.amazonaws.com/b/k",
            "https://evil.sts.amazonaws.com/",
            "https://s3.evil.amazonaws.com/b/k",
            "https://127.0.0.1/b/k",
            "http://storage.googleapis.com/b/o",
            "https://storage.googleapis.com.example/b/o",
            "https://xstorage.googleapis.com/b/o",
            "https://evil.googleapis.com/b/o",
        ] {
            let url = Url::parse(url).unwrap();
            assert!(
                !CloudProvider::Amazon.owns_url(&url) && !CloudProvider::Google.owns_url(&url),
                "{url}"
            );
        }
    }
}
