//! Ways to clusters, and what they lack.

#[test]
#[ignore = "server: Kubernetes, nginx"]
fn mistakes_about_clusters_are_explained() {
    super::check(
        "clusters",
        &[
            "upload {files}/raw dv/x --kubeconfig {files}/nope",
            "KUBECONFIG={files}/nope upload {files}/raw dv/x",
            "upload {files}/raw dv/x --kubeconfig {files}/directory",
            "upload {files}/raw dv/x --kubeconfig {files}/raw",
            "upload {files}/raw dv/x --kubeconfig {files}/page.html",
            "upload {files}/raw dv/x --kubeconfig {files}/without-context",
            "upload {files}/raw dv/x --kubeconfig {cluster} --context nope",
            "KUBECONFIG={cluster} status --context nope",
            "upload {files}/raw dv/x --kubeconfig {cluster} --namespace ../x",
            "status --kubeconfig {cluster} --namespace UPPER",
            "upload {files}/raw dv/x --kubeconfig {stranger}",
            "status --kubeconfig {stranger}",
            "token pvc/there --kubeconfig {stranger}",
            "upload {files}/raw dv/x --kubeconfig {closed}",
            "status --kubeconfig {closed}",
            "token dv/x --kubeconfig {closed}",
            "import https://example.org/a dv/x --size 1Gi --kubeconfig {closed}",
            "upload {files}/raw dv/x --kubeconfig {web}",
            "status pvc/x --kubeconfig {web}",
            "token dv/x --kubeconfig {web}",
            "status --kubeconfig {webpage}",
            "upload {files}/raw dv/x --kubeconfig {untrusted}",
            "upload {files}/raw dv/x --kubeconfig {nohost}",
            "status dv/never-was {here}",
            "status pvc/never-was {here}",
            "token dv/never-was {here}",
            "token pvc/never-was {here}",
            "token pvc/there --uploadproxy-url nonsense:// {here}",
            "token pvc/there {here}",
        ],
    );
}
