//! Content whose last part waits for the test, on standard input or from a web server.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};

use testkit::fail::OrFail;

/// Releases the last part. If it is dropped instead, the content is cut off before that part.
pub(crate) struct Gate(Sender<Vec<u8>>);

impl Gate {
    pub(crate) fn open(self, rest: &[u8]) {
        // A program that was refused no longer receives it.
        self.0.send(rest.to_vec()).ok();
    }
}

/// Returns a gate, and a function that writes `first` and waits for the rest.
pub(crate) fn pipe(first: Vec<u8>) -> (Gate, impl FnOnce(&mut dyn Write) -> io::Result<()> + Send) {
    let (gate, rest) = mpsc::channel();
    (Gate(gate), move |pipe: &mut dyn Write| pass(pipe, &first, &rest))
}

/// Serves an object of `length` bytes to one client. Returns its URL.
pub(crate) fn serve(first: Vec<u8>, length: usize) -> (Gate, String) {
    let (gate, rest) = mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").or_fail("a port");
    let address = listener.local_addr().or_fail("its address");
    std::thread::spawn(move || -> io::Result<()> {
        let (mut client, _) = listener.accept()?;
        skip_head(&mut client)?;
        write!(client, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        pass(&mut client, &first, &rest)
    });
    (Gate(gate), format!("http://{address}/object"))
}

fn pass(to: &mut dyn Write, first: &[u8], rest: &Receiver<Vec<u8>>) -> io::Result<()> {
    to.write_all(first)?;
    to.flush()?;
    match rest.recv() {
        Ok(rest) => to.write_all(&rest),
        Err(_) => Ok(()),
    }
}

fn skip_head(client: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(())
}
