//! Uploads with curl through the proxy.

use testkit::mistake::UserMistake;
use testkit::user_mistakes;

pub(super) const UPLOADS: &[UserMistake] = user_mistakes! {
    "-T {files}/raw {url}/upload" =>
        400: "token", "no token", "send the header \"Authorization: Bearer TOKEN\"";
    "-T {files}/raw -H Authorization:Bearer {url}/upload" =>
        400: "token", "no token", "send the header \"Authorization: Bearer TOKEN\"";
    "-T {files}/raw -H Authorization:Basic{space}am9lOng= {url}/upload" =>
        400: "token", "no token", "send the header \"Authorization: Bearer TOKEN\"";
    "-T {files}/raw -H Authorization:Bearer{space}abc {url}/upload" =>
        401: "the token", "was not issued by this cluster", "request a new one";
    "-T {files}/raw -H Authorization:{expired} {url}/upload" =>
        401: "the token", "has expired", "request a new one";
    "-T {files}/raw -H Authorization:{stranger} {url}/upload" =>
        401: "the token", "was not issued by this cluster", "request a new one";
    "-T {files}/raw -H Authorization:{clone} {url}/upload" =>
        400: "the token", "is not for an upload to a claim (PVC)", "request a new one";
    "-H Authorization:{disk} {url}/upload" =>
        404: "this path", "accepts only POST, PUT", "such as `curl -T IMAGE`";
    "-X DELETE -H Authorization:{disk} {url}/upload" =>
        404: "this path", "accepts only POST, PUT", "such as `curl -T IMAGE`";
    "-F file=@{files}/raw -H Authorization:{disk} {url}/upload" =>
        415: "this is a form", "multipart/form-data", "send it to upload-form, or the image by itself";
    "-T {files}/page.html -H Authorization:{disk} {url}/upload" =>
        400: "63 bytes", "are not a disk image", "is it an error page?";
    "-T {files}/disk.zip -H Authorization:{disk} {url}/upload" =>
        415: "zip compression", "is not supported", "recompress the image";
    "http://{address}/v1beta1/upload" =>
        400: "this port", "speaks HTTPS only", "use https://";
};
