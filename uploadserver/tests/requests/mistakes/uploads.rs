//! Uploads with curl.

use testkit::user_mistakes;

#[test]
fn an_upload_that_is_refused_says_why() {
    super::check_uploads(user_mistakes! {
        "-F file=@{files}/raw {url}/upload" =>
            415: "this is a form (multipart/form-data)", "form", "send it to upload-form, or the image by itself";
        "-F file=@{files}/raw {url}/upload-async" =>
            415: "this is a form (multipart/form-data)", "form", "send it to upload-form, or the image by itself";
        "-F image=@{files}/raw {url}/upload-form" =>
            400: "the form", "has no part", "named \"file\"";
        "-T {files}/raw {url}/upload-form" =>
            400: "Content-Type", "this is not a form", "send a plain image to the path upload";
        "{url}/upload" =>
            404: "this path", "accepts only POST, PUT", "such as `curl -T IMAGE`";
        "-X DELETE {url}/upload" =>
            404: "this path", "accepts only POST, PUT", "such as `curl -T IMAGE`";
        "-X PATCH {url}/upload" =>
            404: "this path", "accepts only POST, PUT", "such as `curl -T IMAGE`";
        "-T {files}/page.html {url}/upload" =>
            415: "it begins with \"<!DOCTYPE html>", "this is text, not a disk", "check the address";
        "-T {files}/error.json {url}/upload" =>
            415: "it begins with", "this is text, not a disk", "check the address";
        "-T {files}/pointer {url}/upload" =>
            415: "git-lfs", "this is text, not a disk", "check the address";
        "-T {files}/paper.pdf {url}/upload" =>
            415: "a PDF document", "not a disk", "`qemu-img convert -f raw -O qcow2`";
        "-T {files}/program {url}/upload" =>
            415: "a program (ELF)", "not a disk", "`qemu-img convert -f raw -O qcow2`";
        "-T {files}/disk.zip {url}/upload" =>
            415: "zip compression", "is not supported", "recompress the image";
        "-T {files}/disk.7z {url}/upload" =>
            415: "7z compression", "is not supported", "recompress the image";
        "-T {files}/disk.rar {url}/upload" =>
            415: "a RAR archive", "not a disk", "check the address";
        "-T {files}/half.gz {url}/upload" =>
            400: "compressed bytes", "the gzip stream is truncated", "send it again";
        "-T {files}/half.xz {url}/upload" =>
            400: "compressed bytes", "the xz stream is truncated", "send it again";
        "-T {files}/damaged.gz {url}/upload" =>
            400: "at compressed byte", "the gzip stream is corrupt", "compare the file with its checksum";
        "-T {files}/damaged.xz {url}/upload" =>
            400: "at compressed byte", "the xz stream is corrupt", "compare the file with its checksum";
        "-T {files}/half.qcow2 {url}/upload" =>
            400: "at image offset", "the image is truncated", "qemu-img check";
        "-T {files}/damaged.qcow2 {url}/upload" =>
            400: "invalid qcow2 image", "unsupported cluster size", "qemu-img check";
        "-T {files}/child.qcow2 {url}/upload" =>
            400: "\"/etc/base.img\"", "the image has a backing file", "flatten it first";
        "-T {files}/encrypted.qcow2 {url}/upload" =>
            400: "the image", "is encrypted (LUKS)", "decrypt it first";
        "-T {files}/huge.qcow2 {url}/upload" =>
            400: "virtual image size 1125899906842624", "larger than the reported available storage 8388608", "A larger PVC is required";
        "-T {files}/flat.vmdk {url}/upload" =>
            400: "\"flat-flat.vmdk\"", "in other files", "merge it into one file";
        "-T {files}/raw {url}/upload-archive" =>
            400: "at byte 0x0", "does not look like a tar archive", "send a tar file";
        "-T {files}/disk.qcow2 {url}/upload-archive" =>
            400: "at byte 0x0", "does not look like a tar archive", "send a tar file";
        "-T {files}/half.tar {url}/upload-archive" =>
            400: "entry `a`", "the archive is truncated", "send it again";
        "-T {files}/up.tar {url}/upload-archive" =>
            400: "entry `/../etc/hostname`", "names must be relative to the target directory", "create the archive again";
        "-T {files}/raw -H X-Cdi-Checksum:foo {url}/upload" =>
            400: "x-cdi-checksum", "got 'foo'", "expected 'algorithm:hash'";
        "-T {files}/raw -H X-Cdi-Checksum:md5:00000000000000000000000000000000 {url}/upload" =>
            400: "checksum mismatch", "expected md5:000", "calculated md5:";
        "-T {files}/raw -H Digest:foo=x {url}/upload" =>
            400: "digest", "contains no supported algorithm", "use sha-256 or sha-512";
        "-T {files}/raw -H Repr-Digest:foo=:AA==: {url}/upload" =>
            400: "repr-digest", "contains no supported algorithm", "use sha-256 or sha-512";
        "-T {files}/raw -H Content-Encoding:br {url}/upload" =>
            415: "Content-Encoding \"br\"", "is not supported", "send it without, or with one of gzip";
        "-T {files}/raw -H Content-Range:bytes{space}0-9/10 {url}/upload" =>
            400: "Content-Range", "this is a part", "send all of it at once";
        "-F file=@{files}/raw {url}/upload-resumable" =>
            404: "Tus-Resumable", "is needed to begin", "Tus-Resumable: 1.0.0";
        "-T {files}/raw -X POST {url}/upload-resumable" =>
            404: "Tus-Resumable", "is needed to begin", "Tus-Resumable: 1.0.0";
        "-X POST -H Tus-Resumable:0.2.2 -H Upload-Length:5 {url}/upload-resumable" =>
            412: "tus", "is supported", "only version 1.0.0";
        "-X POST -H Tus-Resumable:1.0.0 {url}/upload-resumable" =>
            400: "Upload-Length", "is needed", "or Upload-Defer-Length: 1";
        "-X POST -H Tus-Resumable:1.0.0 -H Upload-Length:many {url}/upload-resumable" =>
            400: "upload-length", "must be", "a whole number of bytes";
        "-X PATCH -H Tus-Resumable:1.0.0 -H Upload-Offset:0 -H Content-Type:application/offset+octet-stream {url}/upload-resumable/none" =>
            404: "upload", "not found", "begin it again";
        "http://{address}/v1beta1/upload" =>
            400: "this port", "speaks HTTPS only", "use https://";
    });
}
