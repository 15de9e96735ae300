//! Names of what can be filled, for a shell that completes.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::Cluster;
use super::destination::{Kind, Target};
use super::object::text;
use super::resource::Resource;

/// Time for which a person waits after a press of the tab key.
const PATIENCE: Duration = Duration::from_secs(2);

impl Cluster {
    /// The DataVolumes and claims of the namespace; what cannot be known in two seconds is left out.
    pub async fn names(&self) -> Vec<Target> {
        let listed = |resource| timeout(PATIENCE, self.list(resource, None));
        let (volumes, claims) = tokio::join!(listed(Resource::DATA_VOLUMES), listed(Resource::CLAIMS));
        let mut names = Vec::new();
        for (kind, objects) in [(Kind::DataVolume, volumes), (Kind::Claim, claims)] {
            let objects = objects.ok().and_then(Result::ok).unwrap_or_default();
            names.extend(objects.iter().filter_map(|object| target(kind, object)));
        }
        names
    }
}

fn target(kind: Kind, object: &Value) -> Option<Target> {
    Target::new(kind, text(object, "/metadata/name")?).ok()
}
