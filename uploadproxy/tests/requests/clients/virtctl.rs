//! `virtctl image-upload`, as implemented in kubevirt's pkg/virtctl/imageupload, against upload
//! servers that fail.

use testkit::disk;
use testkit::fail::OrFail;
use testkit::https::{Connection, Request};
use testkit::upload_pod::Server;
use testkit::upload_proxy::{NAMESPACE, PVC, Scripted};
use testkit::upstream::{Reads, Script, Then};

use crate::clients::{BINARY, Pair, UPLOADED};

/// Retries after the first attempt: the default of `--retry`.
const RETRIES: u32 = 5;

/// Imitates what virtctl does with a token and an image.
struct Virtctl<'a> {
    front: &'a Server,
    token: String,
}

impl Virtctl<'_> {
    /// Uploads `image`, or returns the error that virtctl would print.
    fn upload(&self, image: &[u8]) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..=RETRIES {
            match self.attempt(image) {
                Ok((200, _)) => return Ok(()),
                Ok((status, body)) => last = format!("unexpected return value {status}, {body}"),
                Err(error) => last = error.to_string(),
            }
        }
        Err(format!("error uploading image after {RETRIES} retries: {last}"))
    }

    /// Asks by HEAD which of the two paths to use, and sends the image, on the same connection if
    /// it is still open.
    fn attempt(&self, image: &[u8]) -> std::io::Result<(u16, String)> {
        let bearer = format!("Bearer {}", self.token);
        let mut connection = self.front.connect();
        let head = Request::new("HEAD", "/v1beta1/upload-async").header("Authorization", &bearer);
        let is_async = connection.exchange(&head, b"").is_ok_and(|response| response.status == 200);
        let path = if is_async { "/v1beta1/upload-async" } else { "/v1beta1/upload" };
        let request = Request::post(path)
            .header("User-Agent", "Go-http-client/1.1")
            .header("Accept-Encoding", "gzip")
            .header("Content-Type", "application/octet-stream")
            .header("Authorization", &bearer);
        let post = |connection: &mut Connection| connection.exchange(&request, image);
        // Go's transport opens a new connection when an idle one turns out to be closed.
        let response = post(&mut connection).or_else(|_| post(&mut self.front.connect()))?;
        Ok((response.status, response.text()))
    }
}

fn head_ok() -> Script {
    Script::answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn virtctl_uploads_an_image_by_the_asynchronous_path() {
    let pair = Pair::new();
    let content = disk::content(1, 5 << 20);
    let token = pair.proxy.key().token(PVC, NAMESPACE);
    Virtctl { front: &pair.front, token }.upload(&content).or_fail("virtctl");
    pair.upload_server.wait().assert_success("virtctl");
    assert!(std::fs::read(pair.pod.disk()).unwrap() == content);
    assert_eq!(pair.pod.message().as_deref(), Some(UPLOADED));
}

#[test]
fn virtctl_uploads_an_archive_by_the_synchronous_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), disk::content(1, 1 << 20)).unwrap();
    let archive = folder.path().join("archive.tar");
    let arguments =
        ["-C", folder.path().to_str().unwrap(), "-cf", archive.to_str().unwrap(), "file"];
    testkit::tools::run("tar", arguments);
    let pair = Pair::with(|pod| pod, "archive");
    let token = pair.proxy.key().token(PVC, NAMESPACE);
    Virtctl { front: &pair.front, token }
        .upload(&std::fs::read(archive).unwrap())
        .or_fail("virtctl");
    pair.upload_server.wait().assert_success("virtctl");
    assert!(pair.pod.path("data/file").is_file());
}

#[test]
fn virtctl_retries_failed_uploads_from_the_first_byte() {
    let content = disk::content(2, 3 << 20);
    let scripts = vec![
        // An attempt that a busy server refuses before its body is read.
        head_ok(),
        Script::early(testkit::upstream::answer(503, "")),
        // An attempt whose connection is reset.
        head_ok(),
        Script::stop(Reads::Part(1 << 20), Then::Reset),
        // An attempt whose HEAD request fails already.
        Script::stop(Reads::Head, Then::Close),
        Script::status(500, "Saving stream failed: x"),
        head_ok(),
        Script::status(200, ""),
    ];
    let front = Scripted::start(BINARY, scripts);
    let token = front.proxy.key().token(PVC, NAMESPACE);
    Virtctl { front: &front.server, token }.upload(&content).or_fail("virtctl");
    let seen = front.upstream.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.request_line()).collect();
    let (head, post) =
        ("HEAD /v1beta1/upload-async HTTP/1.1", "POST /v1beta1/upload-async HTTP/1.1");
    let sync = "POST /v1beta1/upload HTTP/1.1";
    assert_eq!(lines, [head, post, head, post, head, sync, head, post]);
    let last = seen.last().unwrap();
    assert_eq!(last.body_bytes(), content.len() as u64);
    assert!(content.starts_with(&last.body()));
}
