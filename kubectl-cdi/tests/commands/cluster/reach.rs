//! Ways to a cluster.

use std::fs;

use kubectl_cdi::cluster::{Cluster, ClusterOptions};
use serde_json::{Value, json};
use testkit::fail::OrFail;

use crate::cluster::{api, target};

/// Returns the way to the cluster by a changed kubeconfig of the administrator.
fn edited(edit: impl FnOnce(&mut Value)) -> (tempfile::TempDir, ClusterOptions) {
    let folder = tempfile::tempdir().or_fail("a folder");
    let file = folder.path().join("config");
    let config = fs::read(api().administrator()).or_fail("a kubeconfig");
    let mut config = serde_json::from_slice(&config).or_fail("a kubeconfig");
    edit(&mut config);
    fs::write(&file, config.to_string()).or_fail("a kubeconfig");
    (folder, ClusterOptions { kubeconfig: Some(file), ..ClusterOptions::default() })
}

#[tokio::test]
#[ignore = "server: Kubernetes"]
async fn a_kubeconfig_names_contexts_and_their_namespaces() {
    let (_folder, reach) = edited(|config| {
        let other = json!({"name": "other", "context": {"cluster": "test", "user": "test", "namespace": "theirs"}});
        config["contexts"].as_array_mut().unwrap().push(other);
    });
    for (context, namespace, expected) in [
        (None, None, "default"),
        (Some("other"), None, "theirs"),
        (Some("other"), Some("mine"), "mine"),
    ] {
        let (context, namespace) = (context.map(str::to_owned), namespace.map(str::to_owned));
        let reach = ClusterOptions { context, namespace, ..reach.clone() };
        assert_eq!(Cluster::connect(&reach).await.unwrap().namespace(), expected);
    }
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
    let said = Cluster::connect(&reach).await.err().or_fail("connected").to_string();
    assert!(said.contains("the ticket is too old") && !said.contains("s3cret"), "{said}");
}
