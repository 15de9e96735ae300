//! `serve DIR [--port N] [--rate BYTES_PER_S]`: a static file server on loopback that supports
//! ranges, for demos.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use testkit::wire;
use testkit::wire::Request;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Bytes that are read and written at a time.
const BLOCK_BYTES: u64 = 64 * 1024;

struct Options {
    root: PathBuf,
    port: u16,
    rate: Option<u64>,
}

#[tokio::main]
#[allow(clippy::print_stdout, reason = "the address is the output of this program")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options: &'static Options = Box::leak(Box::new(parse(std::env::args().skip(1))?));
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
    println!("listening on http://{}/", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(stream, options));
    }
}

fn parse(
    mut arguments: impl Iterator<Item = String>,
) -> Result<Options, Box<dyn std::error::Error>> {
    let root = arguments.next().ok_or("usage: serve DIR [--port N] [--rate BYTES_PER_S]")?;
    let mut options = Options { root: root.into(), port: 0, rate: None };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--port" => options.port = value.parse()?,
            "--rate" => options.rate = Some(value.parse()?),
            _ => return Err(format!("unknown option {flag}").into()),
        }
    }
    Ok(options)
}

async fn connection(mut stream: TcpStream, options: &Options) -> io::Result<()> {
    while let Some(request) = Request::read(&mut stream).await? {
        match open(&options.root, request.path()) {
            Some((file, length, etag)) => {
                send(&mut stream, &request, &file, length, etag, options.rate).await?;
            }
            None => wire::write_head(&mut stream, 404, &[header("Content-Length", 0)]).await?,
        }
    }
    Ok(())
}

/// Opens the file of a request path and returns it with its length and its ETag. Paths outside of
/// `root` are not found.
fn open(root: &Path, path: &str) -> Option<(File, u64, String)> {
    let relative = Path::new(path.trim_start_matches('/'));
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let file = File::open(root.join(relative)).ok()?;
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let etag = format!("\"{:x}-{:x}\"", metadata.len(), modified.as_nanos());
    Some((file, metadata.len(), etag))
}

async fn send(
    stream: &mut TcpStream,
    request: &Request,
    file: &File,
    length: u64,
    etag: String,
    rate: Option<u64>,
) -> io::Result<()> {
    let current = request.header("if-range").is_none_or(|validator| validator == etag);
    let range = request.range(length).filter(|_| current);
    let mut headers =
        vec![header("Accept-Ranges", "bytes"), header("Date", wire::now()), header("ETag", etag)];
    let (status, range) = match range {
        None => (200, 0..length),
        Some(range) if range.is_empty() => {
            headers.extend([
                header("Content-Range", format!("bytes */{length}")),
                header("Content-Length", 0),
            ]);
            return wire::write_head(stream, 416, &headers).await;
        }
        Some(range) => {
            headers.push(header(
                "Content-Range",
                format!("bytes {}-{}/{length}", range.start, range.end - 1),
            ));
            (206, range)
        }
    };
    headers.push(header("Content-Length", range.end - range.start));
    wire::write_head(stream, status, &headers).await?;
    let mut offset = if request.method == "HEAD" { range.end } else { range.start };
    while offset < range.end {
        let size = BLOCK_BYTES.min(range.end - offset);
        let mut block = vec![0; usize::try_from(size).map_err(io::Error::other)?];
        file.read_exact_at(&mut block, offset)?;
        stream.write_all(&block).await?;
        offset += size;
        if let Some(rate) = rate {
            tokio::time::sleep(Duration::from_secs_f64(size as f64 / rate.max(1) as f64)).await;
        }
    }
    Ok(())
}

fn header(name: &str, value: impl std::fmt::Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}
