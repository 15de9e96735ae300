//! Our TLS streams against OpenSSL and Go, in both roles.
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use https::tls::Stream;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tempfile::TempDir;
use testkit::certs::{Authority, KeyKind};
use testkit::{golang, tools};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the data for the peers: many records, all of them different.
fn story() -> Vec<u8> {
    (0..3_000_001u32).flat_map(u32::to_le_bytes).take(3_000_001).collect()
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("it hangs") })
}

/// Returns the result of `client`, which runs with our address, while we send back the `bytes`
/// that it sends.
fn echoed<T: Send + 'static>(
    bytes: usize,
    client: impl FnOnce(SocketAddr) -> T + Send + 'static,
) -> T {
    let authority = Authority::new().unwrap();
    let config = authority.server_config().unwrap();
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = tokio::task::spawn_blocking(move || client(address));
        let (plain, _) = listener.accept().await.unwrap();
        let mut stream = Stream::accept(plain, Arc::clone(&config)).await.unwrap();
        let mut buffer = vec![0; 100_000];
        let mut left = bytes;
        // Everything is collected first, because otherwise both sides could wait for the other to
        // read.
        let mut received = Vec::new();
        while left > 0 {
            let length = stream.read(&mut buffer).await.unwrap();
            assert!(length > 0, "{left} bytes are missing");
            left -= length;
            received.extend_from_slice(&buffer[..length]);
        }
        stream.write_all(&received).await.unwrap();
        stream.shutdown().await.unwrap();
        client.await.unwrap()
    })
}

const CIPHERS: [[&str; 3]; 6] = [
    ["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
    ["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"],
    ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
    ["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
];

#[test]
#[ignore = "server: openssl"]
fn a_client_of_openssl_is_served() {
    for cipher in CIPHERS {
        let sent = story();
        let heard = echoed(sent.len(), move |address| {
            let connect = address.to_string();
            let mut arguments = vec!["s_client", "-quiet", "-verify_quiet", "-connect", &connect];
            arguments.extend(cipher);
            tools::filter("openssl", arguments, &sent)
        });
        assert!(heard == story(), "{cipher:?}: {} bytes", heard.len());
    }
}

#[test]
#[ignore = "server: Go"]
fn a_client_of_go_is_served() {
    let sent = story();
    let heard = echoed(sent.len(), move |address| {
        tools::filter(&golang::tls().to_string_lossy(), ["client", &address.to_string()], &sent)
    });
    assert!(heard == story(), "{} bytes", heard.len());
}

#[test]
#[ignore = "server: openssl"]
fn key_updates_of_openssl_are_followed() {
    let lines = ["one\n", "two\n", "three\n", "four\n"];
    let bytes = lines.iter().map(|word| word.len()).sum::<usize>();
    let authority = Authority::new().unwrap();
    let config = authority.server_config().unwrap();
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = tokio::task::spawn_blocking(move || {
            let mut client = Command::new(tools::find("openssl"))
                .args(["s_client", "-tls1_3", "-connect", &address])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut commands = client.stdin.take().unwrap();
            let mut answers = BufReader::new(client.stdout.take().unwrap());
            // Between the lines, OpenSSL changes its keys, with and without a request for new ones
            // of ours.
            for (word, command) in lines.iter().zip(["K\n", "k\n", "K\n", "Q\n"]) {
                commands.write_all(word.as_bytes()).unwrap();
                let mut line = String::new();
                while line != *word {
                    line.clear();
                    assert!(answers.read_line(&mut line).unwrap() > 0, "no {word:?}");
                }
                commands.write_all(command.as_bytes()).unwrap();
                // OpenSSL recognises a command only if it reads nothing else at the same time.
                std::thread::sleep(Duration::from_millis(200));
            }
            client.wait().unwrap();
        });
        let (plain, _) = listener.accept().await.unwrap();
        let mut stream = Stream::accept(plain, Arc::clone(&config)).await.unwrap();
        let mut buffer = [0; 100];
        let mut heard = 0;
        while heard < bytes {
            let length = stream.read(&mut buffer).await.unwrap();
            stream.write_all(&buffer[..length]).await.unwrap();
            stream.flush().await.unwrap();
            heard += length;
        }
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
        client.await.unwrap();
    });
}

/// A server for one connection, which prints its address in a line after `mark`.
struct Server {
    child: Child,
    address: SocketAddr,
    _files: TempDir,
}

impl Server {
    fn start(
        authority: &Authority,
        mark: &str,
        arguments: impl FnOnce(&Path, &Path) -> Vec<PathBuf>,
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let identity = authority.server(KeyKind::Ecdsa).unwrap();
        let (certificate, key) = (files.path().join("crt"), files.path().join("key"));
        std::fs::write(&certificate, &identity.certificate_pem).unwrap();
        std::fs::write(&key, identity.key_pem()).unwrap();
        std::fs::write(files.path().join("story"), story()).unwrap();
        let arguments = arguments(&certificate, &key);
        let mut child = Command::new(&arguments[0])
            .args(&arguments[1..])
            .current_dir(files.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix(mark)?.parse().ok());
        Self { child, address: address.expect("an address"), _files: files }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends `question`, and close_notify if `says_goodbye`; returns the whole answer.
fn ask(
    server: &Server,
    config: &Arc<ClientConfig>,
    question: &[u8],
    says_goodbye: bool,
) -> Vec<u8> {
    run(async {
        let plain = TcpStream::connect(server.address).await.unwrap();
        let name = ServerName::from(server.address.ip());
        let stream = Stream::connect(plain, Arc::clone(config), name).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        writer.write_all(question).await.unwrap();
        writer.flush().await.unwrap();
        if says_goodbye {
            writer.shutdown().await.unwrap();
        }
        let mut answer = Vec::new();
        reader.read_to_end(&mut answer).await.unwrap();
        answer
    })
}

#[test]
#[ignore = "server: openssl"]
fn a_server_of_openssl_is_used() {
    let authority = Authority::new().unwrap();
    let config = authority.client_config().unwrap();
    for cipher in CIPHERS {
        let server = Server::start(&authority, "ACCEPT ", |certificate, key| {
            let mut arguments: Vec<PathBuf> = [tools::find("openssl")].into();
            arguments.extend(
                ["s_server", "-HTTP", "-naccept", "1", "-accept", "127.0.0.1:0"].map(PathBuf::from),
            );
            arguments.extend(cipher.map(PathBuf::from));
            arguments.extend(["-cert".into(), certificate.into(), "-key".into(), key.into()]);
            arguments
        });
        let answer = ask(&server, &config, b"GET /story HTTP/1.0\r\n\r\n", false);
        assert!(answer == story(), "{cipher:?}: {} bytes", answer.len());
    }
}

#[test]
#[ignore = "server: Go"]
fn a_server_of_go_is_used() {
    let authority = Authority::new().unwrap();
    let config = authority.client_config().unwrap();
    let server = Server::start(&authority, "", |certificate, key| {
        vec![golang::tls().into(), "server".into(), certificate.into(), key.into()]
    });
    assert!(ask(&server, &config, &story(), true) == story());
}
