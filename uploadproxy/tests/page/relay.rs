//! A wire between browser and proxy that can be cut.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use testkit::fail::OrFail;

/// Passes on what comes to a loopback port of its own.
pub(crate) struct Relay {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// A relay to `server`. It lives as long as the test program.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
        let relay = Self {
            address: listener.local_addr().or_fail("a port"),
            open: Arc::default(),
        };
        let open = Arc::clone(&relay.open);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A connection that cannot be passed on is closed, and its client sees that.
                join(client, server, &open).ok();
            }
        });
        relay
    }

    /// The URL of the page.
    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// Cuts all connections, without a word of TLS; later ones are passed on again.
    pub(crate) fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may have ended by itself.
            stream.shutdown(Shutdown::Both).ok();
        }
    }
}

fn join(client: TcpStream, server: SocketAddr, open: &Mutex<Vec<TcpStream>>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    let mut streams = open.lock().unwrap_or_else(PoisonError::into_inner);
    streams.extend([client.try_clone()?, server.try_clone()?]);
    pass_on(client.try_clone()?, server.try_clone()?);
    pass_on(server, client);
    Ok(())
}

/// Passes on one direction until its end.
fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let mut piece = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            if to.write_all(&piece[..length]).is_err() {
                break;
            }
        }
        to.shutdown(Shutdown::Write).ok();
    });
}
