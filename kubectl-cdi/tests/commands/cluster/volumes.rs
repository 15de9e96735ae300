//! Creating volumes, and refusals of the cluster.

use kubectl_cdi::cluster::{
    ClusterImport, ContentSource, ObjectUid, VolumeMode, VolumeOptions, WantedVolume,
};
use serde_json::{Value, json};

use crate::cluster::{administrator, api, target, wanted};

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_volume_is_created_as_described_and_can_be_deleted() {
    let cluster = administrator("made").await;
    let options = VolumeOptions {
        storage_class: Some("fast".to_owned()),
        access_mode: Some("ReadWriteMany".to_owned()),
        volume_mode: Some(VolumeMode::Block),
        preallocation: true,
        force_bind: true,
        instancetype: Some("u1.small".to_owned()),
        preference: Some("fedora".to_owned()),
        ..VolumeOptions::default()
    };
    let full = |text| WantedVolume { options: options.clone(), ..wanted(text) };
    for text in ["dv/disk", "pvc/disk"] {
        assert!(!cluster.find_target(&target(text)).await.unwrap().has_target(&target(text)));
        let uid = cluster.create_volume(&full(text)).await.unwrap();
        let found = cluster.find_target(&target(text)).await.unwrap();
        assert!(found.has_target(&target(text)));
        found.takes_upload(&target(text), false).unwrap();
        let again = cluster.create_volume(&wanted(text)).await.unwrap_err();
        assert_eq!(
            again.to_string(),
            format!("{text} already exists: give --no-create to fill it, or choose another name")
        );
        let another = ObjectUid::parse("another-uid").unwrap();
        let other = cluster.remove_volume(&target(text), &another).await.unwrap_err().to_string();
        assert!(other.starts_with(&format!("the cluster rejected {text}: ")), "{other}");
        assert!(cluster.find_target(&target(text)).await.unwrap().has_target(&target(text)));
        cluster.remove_volume(&target(text), &uid).await.unwrap();
        // The API server keeps a deleted claim until a controller confirms that no pod uses it.
        let found = cluster.find_target(&target(text)).await.unwrap();
        let gone = found.takes_upload(&target(text), false).unwrap_err().to_string();
        assert!(gone.contains("has been deleted"), "{gone}");
    }
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_created_claim_can_be_read_back() {
    let cluster = administrator("claim").await;
    let options =
        VolumeOptions { access_mode: Some("Sometimes".to_owned()), ..VolumeOptions::default() };
    let odd = WantedVolume { options, ..wanted("pvc/disk") };
    let said = cluster.create_volume(&odd).await.unwrap_err().to_string();
    let words = "Unsupported value: \"Sometimes\"";
    assert!(said.starts_with("the cluster rejected pvc/disk: ") && said.contains(words), "{said}");
    let uid = cluster.create_volume(&wanted("pvc/disk")).await.unwrap();
    let found = cluster.find_target(&target("pvc/disk")).await.unwrap();
    assert_eq!(found.claim_uid(&target("pvc/disk")).unwrap(), Some(uid));
    assert_eq!(found.claim_bytes(), Some(1 << 30));
    assert_eq!(found.volume_mode(), VolumeMode::Filesystem);
    api().bind_pvc("claim", "disk", "2Gi");
    let found = cluster.find_target(&target("pvc/disk")).await.unwrap();
    assert_eq!(found.claim_bytes(), Some(2 << 30));
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_checksum_that_cdi_does_not_support_is_not_dropped_silently() {
    let old = testkit::cluster::Cluster::start();
    old.create_namespace("default");
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let http = object(json!({"url": {"type": "string"}}));
    let storage = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let spec = object(json!({"source": object(json!({"http": http})), "storage": storage}));
    old.define_with("DataVolume", "Namespaced", &object(json!({"spec": spec})));
    let cluster = crate::cluster::connect(old.administrator(), "default").await;
    let import = |checksum: Option<&str>, name: &str| WantedVolume {
        source: ContentSource::Import(ClusterImport {
            url: "https://example.org/disk.qcow2".to_owned(),
            checksum: checksum.map(str::to_owned),
            ..ClusterImport::default()
        }),
        ..wanted(name)
    };
    let error = cluster.create_volume(&import(Some("sha256:ab"), "dv/disk")).await.unwrap_err();
    assert!(error.to_string().starts_with("dv/disk was not created: "), "{error}");
    assert!(cluster.find_target(&target("dv/disk")).await.unwrap().is_empty());
    cluster.create_volume(&import(None, "dv/disk")).await.unwrap();
}
