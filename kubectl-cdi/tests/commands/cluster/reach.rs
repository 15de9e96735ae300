//! Ways to a cluster, and clusters that cannot be reached.

use std::fs;
use std::path::Path;

use kubectl_cdi::cluster::{Cluster, ClusterError, ClusterOptions};
use program::command_line::FailedCommand;
use serde_json::{Value, json};
use testkit::fail::OrFail;

use crate::cluster::{administrator, api, target, wanted};

fn reach(kubeconfig: &Path) -> ClusterOptions {
    ClusterOptions { kubeconfig: Some(kubeconfig.to_owned()), ..ClusterOptions::default() }
}

async fn refused(reach: &ClusterOptions) -> String {
    match Cluster::connect(reach).await {
        Ok(_) => panic!("connected"),
        Err(error) => error.to_string(),
    }
}

fn edited(edit: impl FnOnce(&mut Value)) -> (tempfile::TempDir, ClusterOptions) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("config");
    let config = fs::read(api().administrator()).or_fail("a kubeconfig");
    let mut config = serde_json::from_slice(&config).or_fail("a kubeconfig");
    edit(&mut config);
    fs::write(&file, config.to_string()).or_fail("a kubeconfig");
    let reach = reach(&file);
    (folder, reach)
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_kubeconfig_names_contexts_and_their_namespaces() {
    let (_folder, mut reach) = edited(|config| {
        let other = json!({"name": "other", "context": {"cluster": "test", "user": "test", "namespace": "theirs"}});
        config["contexts"].as_array_mut().unwrap().push(other);
    });
    let namespace = async |reach: &ClusterOptions| {
        Cluster::connect(reach).await.unwrap().namespace().to_owned()
    };
    assert_eq!(namespace(&reach).await, "default");
    reach.context = Some("other".to_owned());
    assert_eq!(namespace(&reach).await, "theirs");
    reach.namespace = Some("mine".to_owned());
    assert_eq!(namespace(&reach).await, "mine");
    reach.namespace = Some("../secrets".to_owned());
    let said = refused(&reach).await;
    assert_eq!(said, "\"../secrets\" cannot be the name of a namespace: check --namespace");
    reach = ClusterOptions { context: Some("none".to_owned()), namespace: None, ..reach };
    let said = refused(&reach).await;
    assert!(
        said.contains("no context \"none\" in ") && said.contains("there are: test, other"),
        "{said}"
    );
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let said = refused(&reach(Path::new("/nowhere/config"))).await;
    assert!(said.contains("/nowhere/config") && said.contains("--kubeconfig"), "{said}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn the_credential_plugin_is_run_and_its_error_is_shown() {
    let exec = |script: &str| {
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script],
            "interactiveMode": "Never",
        }})
    };
    let (_folder, reach) = edited(|config| {
        let token = config["users"][0]["user"]["token"].as_str().unwrap();
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": token},
        });
        config["users"][0]["user"] = exec(&format!("echo '{credential}'"));
    });
    let cluster = Cluster::connect(&reach).await.unwrap();
    assert!(cluster.find_target(&target("pvc/none")).await.unwrap().is_empty());

    let (_folder, reach) = edited(|config| {
        config["users"][0]["user"] = exec("echo s3cret; echo the ticket is too old >&2; exit 3");
    });
    let said = refused(&reach).await;
    assert!(said.contains("the ticket is too old") && !said.contains("s3cret"), "{said}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn rejected_credentials_are_not_reported_as_a_missing_right() {
    let (_folder, reach) = edited(|config| config["users"][0]["user"] = json!({"token": "s3cret"}));
    let cluster = Cluster::connect(&reach).await.unwrap();
    let said = cluster.find_target(&target("pvc/none")).await.unwrap_err().to_string();
    assert!(said.contains("rejected your credentials") && !said.contains("s3cret"), "{said}");
    assert!(said.contains(&api().address().to_string()), "{said}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn an_unreachable_cluster_is_named() {
    let [nobody] = testkit::ports::free();
    let (_folder, reach) = edited(|config| {
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{nobody}"))
    });
    let cluster = Cluster::connect(&reach).await.unwrap();
    let error = cluster.find_target(&target("pvc/none")).await.unwrap_err();
    let said = error.to_string();
    assert!(
        error.may_pass() && said.contains(&format!("the API server at {nobody} cannot be reached")),
        "{said}"
    );
    assert!(said.contains("refused"), "{said}");
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_missing_namespace_is_named() {
    api();
    let mut cluster = administrator("reach").await;
    cluster.find_target(&target("dv/none")).await.unwrap();
    cluster = crate::cluster::connect(api().administrator(), "nowhere").await;
    for volume in ["dv/disk", "pvc/disk"] {
        let error = cluster.create_volume(&wanted(volume)).await.unwrap_err();
        assert_eq!(error.to_string(), "namespace nowhere not found: check --namespace");
    }
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_cluster_without_cdi_is_reported_as_such() {
    let bare = testkit::cluster::Cluster::start();
    let with_rights = bare.administrator();
    let without = bare.user("nobody", &[("", "persistentvolumeclaims", &["get", "list"])]);
    for kubeconfig in [with_rights, without] {
        let cluster = Cluster::connect(&reach(&kubeconfig)).await.unwrap();
        let asked = [
            cluster.create_volume(&wanted("dv/disk")).await.unwrap_err(),
            cluster.find_target(&target("dv/disk")).await.unwrap_err(),
            cluster.cdi_config().await.unwrap_err(),
            cluster.request_token("disk").await.unwrap_err(),
            cluster.list_status(None).await.unwrap_err(),
        ];
        for error in asked {
            assert!(matches!(error, ClusterError::NoCdi), "{error}");
            assert_eq!(error.exit_reason().exit_code(), 7);
        }
        // Claims exist without CDI.
        assert!(cluster.find_target(&target("pvc/disk")).await.unwrap().is_empty());
        assert_eq!(cluster.list_targets().await, []);
    }
}
