//! Framing of request bodies: chunks with trailers (RFC 9112 §7.1) and forms (RFC 7578).

use crate::random::Random;

/// The boundary of [`form`].
pub const BOUNDARY: &str = "------------------------d74496d66958873e";

/// The `Content-Type` of a body made by [`form`].
pub fn form_content_type() -> String {
    format!("multipart/form-data; boundary={BOUNDARY}")
}

/// One part of a form.
pub struct Part<'a> {
    /// The name of the field.
    pub name: &'a str,
    /// The file name, in parts that carry files.
    pub file_name: Option<&'a str>,
    /// The content.
    pub body: &'a [u8],
}

impl<'a> Part<'a> {
    /// The field `file`, as `curl -F file=@disk.img` sends it.
    pub fn file(body: &'a [u8]) -> Self {
        Self { name: "file", file_name: Some("disk.img"), body }
    }

    /// A field that is not a file.
    pub fn field(name: &'a str, body: &'a str) -> Self {
        Self { name, file_name: None, body: body.as_bytes() }
    }
}

/// Returns a complete form, with [`BOUNDARY`].
pub fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend(form_head(part));
        bytes.extend(part.body);
        bytes.extend(b"\r\n");
    }
    bytes.extend(format!("--{BOUNDARY}--\r\n").into_bytes());
    bytes
}

/// Returns the bytes before the content of `part`.
pub fn form_head(part: &Part<'_>) -> Vec<u8> {
    let mut head =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{}\"", part.name);
    if let Some(file_name) = part.file_name {
        head += &format!("; filename=\"{file_name}\"\r\nContent-Type: application/octet-stream");
    }
    head += "\r\n\r\n";
    head.into_bytes()
}

/// Returns the bytes after the content of the last part.
pub fn form_tail() -> Vec<u8> {
    format!("\r\n--{BOUNDARY}--\r\n").into_bytes()
}

/// Returns `body` in chunks of `chunk_bytes`, followed by the last chunk and `trailers`.
pub fn chunked(body: &[u8], chunk_bytes: usize, trailers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + body.len() / 16);
    for piece in body.chunks(chunk_bytes) {
        push_chunk(&mut bytes, piece);
    }
    finish(bytes, trailers)
}

/// Returns `body` in chunks of 1 to 70 000 bytes, which do not align with anything in it.
pub fn oddly_chunked(mut body: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + body.len() / 16);
    while !body.is_empty() {
        let length = usize::try_from(1 + random.below(70_000)).unwrap_or(1).min(body.len());
        let (piece, rest) = body.split_at(length);
        push_chunk(&mut bytes, piece);
        body = rest;
    }
    finish(bytes, &[])
}

fn push_chunk(bytes: &mut Vec<u8>, piece: &[u8]) {
    bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
    bytes.extend(piece);
    bytes.extend(b"\r\n");
}

fn finish(mut bytes: Vec<u8>, trailers: &[(&str, &str)]) -> Vec<u8> {
    bytes.extend(b"0\r\n");
    for (name, value) in trailers {
        bytes.extend(format!("{name}: {value}\r\n").into_bytes());
    }
    bytes.extend(b"\r\n");
    bytes
}
