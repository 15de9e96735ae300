//! Adds a source: reads an image from a TCP connection until the sender closes it, and writes its
//! disk. Any format and compression that the crate knows is converted while the bytes arrive.
//!
//! ```sh
//! nc -l -p 9000 -q 0 < IMAGE.qcow2.xz &
//! cargo run --package datapath --example write_source -- 127.0.0.1:9000 DISK.raw
//! ```

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use datapath::disk::DiskOptions;
use datapath::options::WriteOptions;
use datapath::transfer_image;
use stream::error::{SourceError, SourceErrorKind};
use stream::options::{PayloadKind, ReadOptions};
use stream::source::{Source, SourceBody};

/// A sender that is silent for longer than this has failed: nothing in TCP ends the wait.
const SILENCE: Duration = Duration::from_secs(30);

struct TcpSource {
    address: String,
}

impl Source for TcpSource {
    fn name(&self) -> String {
        format!("tcp://{}", self.address)
    }

    fn total_bytes(&self) -> Option<u64> {
        None
    }

    fn open_body(&self) -> Result<Box<dyn SourceBody>, SourceError> {
        let connection = TcpStream::connect(&self.address)
            .and_then(|connection| connection.set_read_timeout(Some(SILENCE)).map(|()| connection))
            .map_err(|error| SourceError::from_cause(SourceErrorKind::Connect, error))?;
        Ok(Box::new(TcpBody { connection }))
    }
}

struct TcpBody {
    connection: TcpStream,
}

impl SourceBody for TcpBody {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let mut chunk = vec![0; 64 << 10];
        let length = self.connection.read(&mut chunk);
        let length = length.map_err(|error| SourceError::from_cause(SourceErrorKind::Io, error))?;
        chunk.truncate(length);
        // Without a length, a failed sender looks like the end of the image. Compressed images and
        // images with a map are then found to be truncated. For raw disks, pass a checksum.
        Ok((length > 0).then(|| chunk.into()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, address, disk] = &std::env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: write_source ADDRESS DISK.raw".into());
    };
    let source = TcpSource { address: address.clone() };
    let target = DiskOptions::new(disk.as_ref(), 1 << 40);
    let report = transfer_image(
        &source,
        PayloadKind::default(),
        &target,
        &ReadOptions::default(),
        &WriteOptions::default(),
    )?;
    let (received, disk) = (report.source_bytes, report.virtual_size);
    writeln!(std::io::stdout(), "{received} bytes received, a disk of {disk} bytes")?;
    Ok(())
}
