//! The images that CDI's operator gives to its workers: showing them, replacing them with ours, and
//! restoring what was there before.
//!
//! ```text
//!  operator ─► owner    finds the operator's Deployment, and the object to change in its place
//!  report               compares the images that the operator requests with those in effect
//!  change   ─► record   sets all variables in one request, with a record of the previous ones
//!  rollout              waits until CDI uses the images
//! ```

mod change;
mod operator;
mod owner;
mod record;
mod report;
mod rollout;

use std::str::FromStr;

pub use change::ImagesChange;
pub use operator::CdiOperator;
pub use report::ImagesReport;

/// The first and the last version of CDI that is known to work with our images.
const KNOWN_VERSIONS: [[u32; 3]; 2] = [[1, 62, 0], [1, 66, 1]];

/// A part of CDI whose image can be replaced.
#[derive(Debug)]
struct WorkerPart {
    /// The part's name here, and in the values of Harvester's chart
    /// (`deploy/charts/harvester/values.yaml`), which lack ovirt-populator.
    name: &'static str,
    /// The operator's variable with the image (CDI, `pkg/operator/resources/operator/operator.go`).
    variable: &'static str,
    /// The image in our registry.
    image: &'static str,
    /// The variable into which the operator copies the image, in cdi-deployment
    /// (`pkg/operator/resources/namespaced/controller.go`). `None` for cdi-uploadproxy, which runs
    /// the image itself.
    copied_to: Option<&'static str>,
}

const fn part(names: [&'static str; 3], copied_to: Option<&'static str>) -> WorkerPart {
    let [name, variable, image] = names;
    WorkerPart { name, variable, image, copied_to }
}

/// OpenStack's populator has the importer's image.
static WORKER_PARTS: [WorkerPart; 5] = [
    part(["importer", "IMPORTER_IMAGE", "cdi-importer"], Some("IMPORTER_IMAGE")),
    part([OVIRT_POPULATOR, "OVIRT_POPULATOR_IMAGE", "cdi-importer"], Some("OVIRT_POPULATOR_IMAGE")),
    part(["uploadserver", "UPLOAD_SERVER_IMAGE", "cdi-uploadserver"], Some("UPLOADSERVER_IMAGE")),
    part(["uploadproxy", "UPLOAD_PROXY_IMAGE", "cdi-uploadproxy"], None),
    part(["cloner", "CLONER_IMAGE", "cdi-cloner"], Some("CLONER_IMAGE")),
];

const OVIRT_POPULATOR: &str = "ovirt-populator";

/// A part and the image that it gets.
type PartImage = (&'static WorkerPart, String);

/// Our image for VMware's disks, which can be the importer.
const VDDK_IMAGE: &str = "cdi-importer-vddk";

/// The folder of a registry with our images, and their tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRegistry {
    folder: String,
    tag: String,
}

impl ImageRegistry {
    /// Returns the images of all parts. With `vddk`, the importer reads VMware's disks.
    fn images(&self, vddk: bool) -> Vec<PartImage> {
        let image = |part: &'static WorkerPart| {
            let is_vddk = vddk && part.name == "importer";
            let name = if is_vddk { VDDK_IMAGE } else { part.image };
            (part, format!("{}/{name}:{}", self.folder, self.tag))
        };
        WORKER_PARTS.iter().map(image).collect()
    }
}

impl FromStr for ImageRegistry {
    type Err = String;

    /// Parses `REGISTRY[:TAG]`. Without a slash, digits after a colon are a port.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            return Err("each image has its own digest: give a tag".to_owned());
        }
        let is_port = |folder: &str, tag: &str| {
            tag.contains('/') || (!folder.contains(['/', ':']) && tag.parse::<u16>().is_ok())
        };
        let (folder, tag) = match text.rsplit_once(':') {
            Some((folder, tag)) if !is_port(folder, tag) => (folder, tag),
            _ => (text, env!("CARGO_PKG_VERSION")),
        };
        let registry = Self { folder: folder.to_owned(), tag: tag.to_owned() };
        for (_, image) in registry.images(true) {
            oci::check_reference(&format!("docker://{image}")).map_err(|_| {
                format!("{image} cannot be the name of an image: give HOST[:PORT][/PATH][:TAG]")
            })?;
        }
        Ok(registry)
    }
}

/// The goal of a change.
#[derive(Debug, Clone)]
pub enum ImagesGoal {
    /// The images of a registry. If the flag is true, the importer reads VMware's disks.
    Use(ImageRegistry, bool),
    /// The images of before the first change.
    Restore,
}

/// Returns true if our images are known to work with this version of CDI. Builds of distributors
/// append words to the three numbers.
fn is_known_version(version: &str) -> bool {
    let numbers = version.trim_start_matches('v').split('-').next().unwrap_or_default();
    let numbers: Result<Vec<u32>, _> = numbers.split('.').map(str::parse).collect();
    let [first, last] = KNOWN_VERSIONS;
    numbers.is_ok_and(|numbers| {
        numbers.len() == 3 && first[..] <= numbers[..] && numbers[..] <= last[..]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_may_have_a_port_and_a_tag() {
        let version = env!("CARGO_PKG_VERSION");
        for (text, folder, tag) in [
            ("ghcr.io/x/cdi-workers:0.1.0", "ghcr.io/x/cdi-workers", "0.1.0"),
            ("ghcr.io/x", "ghcr.io/x", version),
            ("localhost:5000", "localhost:5000", version),
            ("localhost:5000/x", "localhost:5000/x", version),
            ("localhost:5000/x:7", "localhost:5000/x", "7"),
            ("localhost:5000:7", "localhost:5000", "7"),
            ("example.org:v1.2", "example.org", "v1.2"),
        ] {
            let expected = ImageRegistry { folder: folder.to_owned(), tag: tag.to_owned() };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        let registry: ImageRegistry = "r.io/a".parse().unwrap();
        assert_eq!(registry.images(true)[0].1, format!("r.io/a/cdi-importer-vddk:{version}"));
        assert_eq!(registry.images(true)[1].1, format!("r.io/a/cdi-importer:{version}"));
        for text in
            ["", "docker://r.io", "r.io/A", "r.io/a:", "r.io/a:b c", "r.io/a@sha256:00", "/"]
        {
            assert!(text.parse::<ImageRegistry>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_known_versions_are_those_of_the_tests() {
        let table = include_str!("../../../../images/kubelet/versions.json");
        let table: serde_json::Value = serde_json::from_str(table).unwrap();
        let versions: Vec<_> = table["versions"].as_array().unwrap().iter().collect();
        let [first, last] = KNOWN_VERSIONS.map(|version| version.map(|n| n.to_string()).join("."));
        assert!(matches!(&versions[..], [a, .., z, _main] if **a == *first && **z == *last));
    }

    #[test]
    fn versions_of_distributors_are_known_too() {
        for known in ["v1.62.0", "1.66.1", "v1.64.9", "1.65.0-150700.9.3.1"] {
            assert!(is_known_version(known), "{known}");
        }
        for unknown in ["v1.61.9", "v1.66.2", "v2.0.0", "v1.67.0-rc.1", "1.65", "latest", ""] {
            assert!(!is_known_version(unknown), "{unknown}");
        }
    }
}
