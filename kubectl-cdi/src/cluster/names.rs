//! Names of targets, for shell completion.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use super::Cluster;
use super::destination::{VolumeTarget, VolumeTargetKind};
use super::object::text_at;
use super::resource::ResourceKind;

/// Time limit for a list. It is short, because a user is waiting after pressing the tab key.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

impl Cluster {
    /// Lists the DataVolumes and claims of the namespace. If one of the lists fails or takes
    /// longer than two seconds, it is omitted.
    pub async fn list_targets(&self) -> Vec<VolumeTarget> {
        let listed = |resource| timeout(ANSWER_LIMIT, self.list_objects(resource, None));
        let (volumes, claims) =
            tokio::join!(listed(ResourceKind::DATA_VOLUMES), listed(ResourceKind::CLAIMS));
        let mut names = Vec::new();
        for (kind, objects) in
            [(VolumeTargetKind::DataVolume, volumes), (VolumeTargetKind::Claim, claims)]
        {
            let objects = objects.ok().and_then(Result::ok).unwrap_or_default();
            names.extend(objects.iter().filter_map(|object| parse_target(kind, object)));
        }
        names
    }
}

fn parse_target(kind: VolumeTargetKind, object: &Value) -> Option<VolumeTarget> {
    VolumeTarget::new(kind, text_at(object, "/metadata/name")?).ok()
}
