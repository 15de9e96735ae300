//! Creating volumes, and refusals of the cluster.

use kubectl_cdi::cluster::{ClusterError, ClusterImport, ContentSource, VolumeMode, WantedVolume};
use program::command_line::FailedCommand;
use serde_json::{Value, json};

use crate::cluster::{administrator, api, target, wanted};

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_volume_is_created_as_described_and_can_be_deleted() {
    let cluster = administrator("made").await;
    let full = |text| WantedVolume {
        storage_class: Some("fast".to_owned()),
        access_mode: Some("ReadWriteMany".to_owned()),
        volume_mode: Some(VolumeMode::Block),
        preallocation: true,
        force_bind: true,
        instancetype: Some("u1.small".to_owned()),
        preference: Some("fedora".to_owned()),
        ..wanted(text)
    };
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
        let another = "another-uid".parse().unwrap();
        let other = cluster.remove_volume(&target(text), &another).await.unwrap_err();
        assert!(matches!(other, ClusterError::Refused { .. }), "{other}");
        assert!(cluster.find_target(&target(text)).await.unwrap().has_target(&target(text)));
        cluster.remove_volume(&target(text), &uid).await.unwrap();
        // The API server keeps a deleted claim until a controller confirms that no pod uses it.
        let gone =
            cluster.find_target(&target(text)).await.unwrap().takes_upload(&target(text), false);
        assert!(matches!(gone, Err(ClusterError::Gone(_))), "{gone:?}");
    }
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_created_claim_can_be_read_back() {
    let cluster = administrator("claim").await;
    let uid = cluster.create_volume(&wanted("pvc/disk")).await.unwrap();
    let found = cluster.find_target(&target("pvc/disk")).await.unwrap();
    assert_eq!(found.claim_uid(&target("pvc/disk")).unwrap(), Some(uid));
    assert_eq!(found.claim_bytes(), Some(1 << 30));
    assert_eq!(found.volume_mode(), Some(VolumeMode::Filesystem));
    api().bind_pvc("claim", "disk", "2Gi");
    let found = cluster.find_target(&target("pvc/disk")).await.unwrap();
    assert_eq!(found.claim_bytes(), Some(2 << 30));
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn an_exceeded_quota_is_reported_in_the_words_of_the_cluster() {
    let cluster = administrator("quota").await;
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.storage": "512Mi"}},
    });
    let made = api().create("/api/v1/namespaces/quota/resourcequotas", &quota);
    // The controller of quotas does this after it has counted.
    let status =
        json!({"status": {"hard": made["spec"]["hard"], "used": {"requests.storage": "0"}}});
    api().patch("/api/v1/namespaces/quota/resourcequotas/small/status", &status);
    let mut number = 0;
    let error = loop {
        // A new quota takes effect in the API server after a moment.
        number += 1;
        if let Err(error) = cluster.create_volume(&wanted(&format!("pvc/disk-{number}"))).await {
            break error;
        }
    };
    let said = error.to_string();
    assert!(
        said.contains(
            "exceeded quota: small, requested: requests.storage=1Gi, used: requests.storage=0, limited: \
                       requests.storage=512Mi"
        ),
        "{said}"
    );
    assert_eq!(error.exit_reason().exit_code(), 5);
    let refused = cluster.find_target(&target(&format!("pvc/disk-{number}"))).await;
    assert!(refused.unwrap().is_empty());
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_refusal_of_the_api_server_is_reported_in_its_words() {
    let cluster = administrator("checked").await;
    let odd = WantedVolume { access_mode: Some("Sometimes".to_owned()), ..wanted("pvc/disk") };
    let said = cluster.create_volume(&odd).await.unwrap_err().to_string();
    assert!(
        said.starts_with("the cluster rejected pvc/disk: ")
            && said.contains("Unsupported value: \"Sometimes\""),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn an_import_names_its_source() {
    let cluster = administrator("import").await;
    let import = WantedVolume {
        source: ContentSource::Import(ClusterImport {
            url: "https://example.org/disk.qcow2".to_owned(),
            checksum: Some("sha256:ab".to_owned()),
            ..ClusterImport::default()
        }),
        ..wanted("dv/disk")
    };
    cluster.create_volume(&import).await.unwrap();
    let made = api().data_volume("import", "disk");
    assert_eq!(
        made["spec"]["source"],
        json!({"http": {"url": "https://example.org/disk.qcow2", "checksum": "sha256:ab"}})
    );
    let found = cluster.find_target(&target("dv/disk")).await.unwrap();
    let error = found.takes_upload(&target("dv/disk"), false).unwrap_err();
    assert!(matches!(error, ClusterError::NoUpload(_)), "{error}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_checksum_that_cdi_does_not_support_is_not_dropped_silently() {
    let old = testkit::cluster::Cluster::start();
    old.create_namespace("default");
    old.install_data_volumes();
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let http = object(json!({"url": {"type": "string"}}));
    let storage = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let source = object(json!({"http": http}));
    let spec = object(json!({"source": source, "storage": storage}));
    let version = json!({
        "name": "v1beta1",
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": object(json!({"spec": spec}))},
    });
    old.patch(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/datavolumes.cdi.kubevirt.io",
        &json!({"spec": {"versions": [version]}}),
    );
    let cluster = crate::cluster::connect(old.administrator(), "default").await;
    let import = |checksum: Option<&str>, name: &str| WantedVolume {
        source: ContentSource::Import(ClusterImport {
            url: "https://example.org/disk.qcow2".to_owned(),
            checksum: checksum.map(str::to_owned),
            ..ClusterImport::default()
        }),
        ..wanted(name)
    };
    let mut number = 0;
    let error = loop {
        // A new schema takes effect in the API server after a moment.
        number += 1;
        let import = import(Some("sha256:ab"), &format!("dv/disk-{number}"));
        if let Err(error) = cluster.create_volume(&import).await {
            break error;
        }
    };
    assert!(matches!(error, ClusterError::NoChecksum(_)), "{error}");
    let refused = target(&format!("dv/disk-{number}"));
    assert!(cluster.find_target(&refused).await.unwrap().is_empty());
    cluster.create_volume(&import(None, "dv/disk")).await.unwrap();
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn the_configuration_is_read_from_cdi() {
    let cluster = administrator("configured").await;
    assert!(matches!(cluster.cdi_config().await.unwrap().proxy_url(), Err(ClusterError::NoProxy)));
    api().set_cdi_config_status(&json!({
        "uploadProxyURL": "proxy.example.org",
        "filesystemOverhead": {"global": "0.06", "storageClass": {"fast": "0.1"}},
    }));
    let config = cluster.cdi_config().await.unwrap();
    assert_eq!(config.proxy_url().unwrap().as_str(), "https://proxy.example.org/");
    assert!((config.class_overhead(Some("fast")) - 0.1).abs() < 1e-9);
    api().set_cdi_config_status(&json!({"uploadProxyURL": null}));
}
