//! The rights that the proxy needs (contract §3.9), and how it finds the API server.

use testkit::cluster::cdi::{CDI_NAMESPACE, PROXY_ACCOUNT};

use crate::cluster::cluster;
use crate::cluster::deployed::{Deployed, NOWHERE, assert_disk, disk};

#[test]
#[ignore = "server: Kubernetes"]
fn in_its_pod_the_proxy_uses_the_mounted_service_account() {
    let deployed = Deployed::new(cluster(), "mounted");
    let pod = deployed.pod();
    let upload_server = pod.start();
    let run = tempfile::tempdir().unwrap();
    let mounted = run.path().join("secrets/kubernetes.io/serviceaccount");
    std::fs::create_dir_all(&mounted).unwrap();
    let token = cluster().service_account_token(CDI_NAMESPACE, PROXY_ACCOUNT);
    std::fs::write(mounted.join("token"), token).unwrap();
    std::fs::write(mounted.join("namespace"), CDI_NAMESPACE).unwrap();
    std::fs::copy(cluster().ca_file(), mounted.join("ca.crt")).unwrap();
    let api = cluster().address();
    // In a mount namespace, as in a container, because the paths of these files are fixed.
    let mount = "mount --bind \"$0\" /var/run && exec \"$@\"";
    let program = deployed
        .bare_program(upload_server.address())
        .env("KUBERNETES_SERVICE_HOST", api.ip().to_string())
        .env("KUBERNETES_SERVICE_PORT", api.port().to_string())
        .under(
            "unshare",
            [
                "--mount".as_ref(),
                "sh".as_ref(),
                "-c".as_ref(),
                mount.as_ref(),
                run.path().as_os_str(),
            ],
        );
    let server = deployed.files.serve(program);
    deployed.upload(&server, &disk()).assert_uploaded();
    upload_server.wait().assert_success("the upload server");
    assert_disk(&pod, &disk());
}

#[test]
#[ignore = "server: Kubernetes"]
fn without_the_right_to_read_claims_the_error_of_the_api_server_is_passed_on() {
    let deployed = Deployed::new(cluster(), "rightless");
    let accounts = format!("/api/v1/namespaces/{CDI_NAMESPACE}/serviceaccounts");
    let account = serde_json::json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "rightless"}});
    cluster().create(&accounts, &account);
    let program = deployed
        .bare_program(NOWHERE)
        .arg("-kubeconfig")
        .arg(cluster().service_account(CDI_NAMESPACE, "rightless"));
    let server = deployed.files.serve(program);
    deployed.upload(&server, &disk()).assert(
        503,
        "persistentvolumeclaims &#34;rightless&#34; is forbidden: User &#34;system:serviceaccount:cdi:rightless&#34; cannot get \
         resource &#34;persistentvolumeclaims&#34; in API group &#34;&#34; in the namespace &#34;default&#34;",
    );
}
