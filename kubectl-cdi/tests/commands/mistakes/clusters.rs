//! Ways to clusters, and what they lack.

use testkit::user_mistakes;

#[test]
fn mistakes_about_clusters_are_explained() {
    super::check(user_mistakes! {
        "upload {files}/raw dv/x --kubeconfig {files}/nope" =>
            2: "{files}/nope", "no such file or directory", "give --kubeconfig";
        "KUBECONFIG={files}/nope upload {files}/raw dv/x" =>
            2: "{files}/nope", "no such file or directory", "set KUBECONFIG";
        "upload {files}/raw dv/x --kubeconfig {files}/directory" =>
            2: "{files}/directory", "is a directory", "give --kubeconfig";
        "upload {files}/raw dv/x --kubeconfig {files}/raw" =>
            2: "{files}/raw", "Invalid UTF-8", "give --kubeconfig";
        "upload {files}/raw dv/x --kubeconfig {files}/page.html" =>
            2: "the kubeconfig", "is not valid (line 1)", "give --kubeconfig";
        "upload {files}/raw dv/x --kubeconfig {files}/without-context" =>
            2: "the kubeconfig", "has no current context", "choose a context with --context";
        "upload {files}/raw dv/x --kubeconfig {cluster} --context nope" =>
            2: "{cluster}", "no context \"nope\"", "there are: test";
        "KUBECONFIG={cluster} status --context nope" =>
            2: "{cluster}", "no context \"nope\"", "there are: test";
        "upload {files}/raw dv/x --kubeconfig {cluster} --namespace ../x" =>
            2: "\"../x\"", "cannot be the name of a namespace", "check --namespace";
        "status --kubeconfig {cluster} --namespace UPPER" =>
            2: "\"UPPER\"", "cannot be the name of a namespace", "check --namespace";
        "upload {files}/raw dv/x --kubeconfig {stranger}" =>
            7: "the API server at", "rejected your credentials (401)", "log in again";
        "status --kubeconfig {stranger}" =>
            7: "the API server at", "rejected your credentials (401)", "choose another user with --context";
        "token pvc/there --kubeconfig {stranger}" =>
            7: "the API server at", "rejected your credentials (401)", "log in again";
        "upload {files}/raw dv/x --kubeconfig {closed}" =>
            7: "the API server at {closedport}", "onnection refused;", "choose another cluster with --context";
        "status --kubeconfig {closed}" =>
            7: "the API server at {closedport}", "onnection refused;", "check the network";
        "upload {files}/raw dv/x --kubeconfig {web}" =>
            7: "{http} is not a Kubernetes API server", "does not serve the path /version", "check the server in the kubeconfig";
        "upload {files}/raw dv/x --kubeconfig {untrusted}" =>
            7: "the API server at {https}", "UnknownIssuer", "kubectl config set-cluster NAME --certificate-authority FILE";
        "upload {files}/raw dv/x --kubeconfig {nohost}" =>
            7: "no-such-host.invalid", "cannot be reached", "check the network";
        "status dv/never-was {here}" =>
            7: "dv/never-was", "not found in namespace mistakes", "check the name and --namespace";
        "status pvc/never-was {here}" =>
            7: "pvc/never-was", "not found in namespace mistakes", "check the name and --namespace";
        "token dv/never-was {here}" =>
            7: "dv/never-was", "not found in namespace mistakes", "check the name and --namespace";
        "token pvc/there --uploadproxy-url nonsense:// {here}" =>
            2: "--uploadproxy-url", "not a host and a path of plain letters", "use https://HOST";
        "token pvc/there {here}" =>
            7: "the cluster", "does not publish an external address of its upload proxy", "--uploadproxy-url https://localhost:8443";
    });
}
