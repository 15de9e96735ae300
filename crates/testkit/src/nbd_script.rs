//! An NBD server that completes the negotiation and then sends whatever replies a test wants.

use std::io;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How the server differs from an honest one.
#[derive(Clone)]
pub struct NbdScript {
    /// Sent instead of the greeting of an NBD server.
    pub greeting: Option<Vec<u8>>,
    /// Size of the export in bytes.
    pub size: u64,
    /// Whether to accept structured replies and block status, whose context gets the number 1.
    pub structured: bool,
    /// An option's number, and the bytes sent instead of the reply to it.
    pub option: Option<(u32, Vec<u8>)>,
    /// Returns the reply to a request. An empty reply closes the connection.
    pub answer: fn(&NbdRequest) -> Vec<u8>,
    /// After the first reply, sends zeros without end, one byte at a time with this pause.
    pub drip: Option<Duration>,
}

impl Default for NbdScript {
    /// An honest server that closes the connection at the first request.
    fn default() -> Self {
        Self {
            greeting: None,
            size: 1 << 20,
            structured: true,
            option: None,
            answer: |_| Vec::new(),
            drip: None,
        }
    }
}

/// A request from the client.
#[derive(Debug, Clone, Copy)]
pub struct NbdRequest {
    /// The command. 0: read, 2: disconnect, 7: block status.
    pub command: u16,
    /// The number that the reply must repeat.
    pub cookie: u64,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes requested.
    pub length: u32,
}

impl NbdRequest {
    /// A chunk of a structured reply.
    pub fn chunk(&self, is_last: bool, kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
        bytes.extend(u16::from(is_last).to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// A chunk with data at `offset`.
    pub fn data(&self, is_last: bool, offset: u64, data: &[u8]) -> Vec<u8> {
        self.chunk(is_last, 1, &[&offset.to_be_bytes(), data].concat())
    }

    /// A chunk that describes extents by length and flags.
    pub fn status(&self, extents: &[(u32, u32)]) -> Vec<u8> {
        let mut payload = 1u32.to_be_bytes().to_vec();
        for (length, flags) in extents {
            payload.extend(length.to_be_bytes());
            payload.extend(flags.to_be_bytes());
        }
        self.chunk(true, 5, &payload)
    }

    /// A reply with data in which every byte is 7.
    pub fn sevens(&self) -> Vec<u8> {
        let data = vec![7; usize::try_from(self.length).unwrap_or_default()];
        self.data(true, self.offset, &data)
    }
}

/// A running server on a loopback port. Its thread ends with the process.
pub struct ScriptedNbd {
    address: SocketAddr,
}

impl ScriptedNbd {
    /// Starts the server.
    pub fn start(script: NbdScript) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let script = script.clone();
                // Errors are ignored: clients that hang up are the subject of many tests.
                std::thread::spawn(move || serve(client, &script));
            }
        });
        Ok(Self { address })
    }

    /// The URI of the server's export.
    pub fn uri(&self) -> String {
        format!("nbd://{}/disk", self.address)
    }
}

fn serve(mut client: TcpStream, script: &NbdScript) -> io::Result<()> {
    client.write_all(script.greeting.as_deref().unwrap_or(b"NBDMAGICIHAVEOPT\0\x03"))?;
    take::<4>(&mut client)?;
    loop {
        let head = take::<16>(&mut client)?;
        let option = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let length = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        io::copy(&mut Read::by_ref(&mut client).take(length.into()), &mut io::sink())?;
        if let Some((_, reply)) = script.option.as_ref().filter(|(other, _)| *other == option) {
            client.write_all(reply)?;
            continue;
        }
        client.write_all(&option_replies(option, script))?;
        if option == 7 {
            break;
        }
    }
    loop {
        let bytes = take::<28>(&mut client)?;
        let number =
            |from: usize| bytes[from..from + 8].iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let request = NbdRequest {
            command: u16::from_be_bytes([bytes[6], bytes[7]]),
            cookie: number(8),
            offset: number(16),
            length: u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]),
        };
        let answer = (script.answer)(&request);
        if answer.is_empty() {
            return Ok(());
        }
        client.write_all(&answer)?;
        if let Some(pause) = script.drip {
            loop {
                client.write_all(&[0])?;
                std::thread::sleep(pause);
            }
        }
    }
}

fn option_replies(option: u32, script: &NbdScript) -> Vec<u8> {
    const ACK: u32 = 1;
    const UNSUPPORTED: u32 = (1 << 31) + 1;
    match option {
        7 => {
            let mut export = vec![0, 0];
            export.extend(script.size.to_be_bytes());
            export.extend([0, 1]);
            [option_reply(option, 3, &export), option_reply(option, ACK, &[])].concat()
        }
        8 if script.structured => option_reply(option, ACK, &[]),
        10 if script.structured => {
            let context = [&1u32.to_be_bytes()[..], b"base:allocation"].concat();
            [option_reply(option, 4, &context), option_reply(option, ACK, &[])].concat()
        }
        _ => option_reply(option, UNSUPPORTED, b""),
    }
}

/// A reply of `kind` to `option`.
pub fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn take<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}
