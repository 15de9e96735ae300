//! Uploads with curl through the proxy.

pub(super) const UPLOADS: &[&str] = &[
    "-T {files}/raw {url}/upload",
    "-T {files}/raw -H Authorization:Bearer {url}/upload",
    "-T {files}/raw -H Authorization:Basic{space}am9lOng= {url}/upload",
    "-T {files}/raw -H Authorization:Bearer{space}abc {url}/upload",
    "-T {files}/raw -H Authorization:{expired} {url}/upload",
    "-T {files}/raw -H Authorization:{stranger} {url}/upload",
    "-T {files}/raw -H Authorization:{clone} {url}/upload",
    "-H Authorization:{disk} {url}/upload",
    "-X DELETE -H Authorization:{disk} {url}/upload",
    "-F file=@{files}/raw -H Authorization:{disk} {url}/upload",
    "-T {files}/page.html -H Authorization:{disk} {url}/upload",
    "-T {files}/disk.zip -H Authorization:{disk} {url}/upload",
    "http://{address}/v1beta1/upload",
];
