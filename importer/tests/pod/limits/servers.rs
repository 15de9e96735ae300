//! Servers under limits.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use testkit::https::{Connection, Request};
use testkit::process::Program;
use testkit::upload_pod::UploadPod;
use testkit::upload_proxy::{PVC, UploadProxy, beside};
use testkit::{disk, ports};

use super::{Limit, MOST, assert_told, program};

/// Longest request under a limit.
const SHORT: Duration = Duration::from_secs(3);

/// Longest request without a limit.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of successive limits under which requests succeed, after which larger ones are not
/// tried.
const UNCHANGED: u32 = 2;

/// Part of the response, and of the line in the log, if a thread cannot be started.
const NO_THREAD: &str = "cannot start a thread";

const IMPORTER: &str = crate::BINARY;

/// Sends a typical request to an address, within a time. Returns status and text.
type Ask = Box<dyn Fn(SocketAddr, Duration) -> io::Result<(u16, String)>>;

/// A server in a folder of its own.
struct Service {
    program: Program,
    /// Log text before the address on which it listens, or that shows that `address` listens.
    listening: &'static str,
    address: Option<SocketAddr>,
    ask: Ask,
    _keep: Box<dyn std::any::Any>,
}

#[track_caller]
fn sweep(name: &str, service: impl Fn() -> Service) {
    for limit in Limit::all() {
        let mut unchanged = 0;
        for most in 1..=MOST {
            let case = format!("{name} with {most} {limit}");
            let service = service();
            let running = limit.wrap(service.program, most).start();
            let Some(line) = running.wait_for_line_or_end(service.listening) else {
                let finished = running.wait();
                assert_told(&case, &finished);
                assert_ne!(finished.code(), 0, "{case}");
                unchanged = 0;
                continue;
            };
            let address = service.address.or_else(|| {
                let (_, rest) = line.split_once(service.listening)?;
                rest.split([' ', '/', '\n']).next()?.trim().parse().ok()
            });
            let address = address.unwrap_or_else(|| panic!("{case}: no address in {line}"));
            let limited = (service.ask)(address, SHORT);
            match &limited {
                Ok((200 | 206, _)) => unchanged += 1,
                Ok((500..=599, words)) => {
                    assert!(!words.trim().is_empty(), "{case}: no sentence");
                    if let Limit::Threads(_) = limit {
                        assert!(words.contains(NO_THREAD), "{case}: {words}");
                        running.wait_for_line(NO_THREAD);
                    }
                    unchanged = 0;
                }
                Ok(other) => panic!("{case}: {other:?}"),
                // Without a file descriptor the connection waits, and is not lost.
                Err(_) if matches!(limit, Limit::Files) => unchanged = 0,
                Err(error) => panic!("{case}: {error}: {}", running.stderr_so_far()),
            }
            limit.lift(running.id());
            if unchanged == 0 {
                let answer = (service.ask)(address, PATIENCE);
                let log = running.stderr_so_far();
                assert!(
                    matches!(answer, Ok((200 | 206, _))),
                    "{case}: {answer:?}, first {limited:?}: {log}"
                );
            }
            running.signal(Signal::TERM);
            let finished = running.wait();
            let code = finished.code();
            assert!([0, 143].contains(&code), "{case}: {code}: {}", finished.stderr);
            if unchanged == UNCHANGED {
                break;
            }
        }
        assert_eq!(unchanged, UNCHANGED, "{name} still fails with {MOST} {limit}");
    }
}

/// Sends `request` with `body` over TLS.
fn ask(config: Arc<rustls::ClientConfig>, request: Request, body: Vec<u8>) -> Ask {
    Box::new(move |address, retry_policy| {
        let tcp = TcpStream::connect(address)?;
        let mut connection = Connection::over_within(retry_policy, tcp, address.ip(), &config)?;
        let answer = connection.exchange(&request, &body)?;
        Ok((answer.status, answer.text()))
    })
}

#[test]
#[ignore = "root: rights of root"]
fn upload_servers_serve_again_when_limits_are_lifted() {
    let content = disk::content(1, 1 << 20);
    sweep("upload server of a pod", || {
        let pod = UploadPod::new(&beside(IMPORTER, "cdi-uploadserver"));
        Service {
            program: pod.program(),
            listening: "Running server on ",
            address: None,
            ask: ask(pod.client_config(), Request::post("/v1beta1/upload"), content.clone()),
            _keep: Box::new(pod),
        }
    });
    sweep("upload server of a laptop", || {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let program = program("cdi-uploadserver")
            .args(["serve", "--insecure", "--force", "--listen", "127.0.0.1:0", "--dir"])
            .arg(folder.path().join("data"))
            .arg("--self-signed")
            .arg(folder.path());
        let config = Arc::new(https::tls::insecure_client_config().unwrap());
        Service {
            program,
            listening: "https://",
            address: None,
            ask: ask(config, Request::post("/v1beta1/upload"), content.clone()),
            _keep: Box::new(folder),
        }
    });
}

#[test]
#[ignore = "root: rights of root"]
fn the_upload_proxy_serves_again_when_limits_are_lifted() {
    sweep("upload proxy", || {
        let proxy = UploadProxy::new(&beside(IMPORTER, "cdi-uploadproxy"));
        let names = ["localhost".to_owned()];
        let server = beside(IMPORTER, "cdi-uploadserver");
        let pod = UploadPod::of_cluster(&server, proxy.cluster(), &names);
        let upload_server = pod.start();
        let proxy = proxy.route(PVC, upload_server.address());
        let program = proxy.program();
        // By name, so that it has to be looked up.
        let routes = fs::read_to_string(proxy.path("routes.toml")).unwrap();
        fs::write(proxy.path("routes.toml"), routes.replace("127.0.0.1", "localhost")).unwrap();
        let request = Request::post("/v1beta1/upload").header("Authorization", &proxy.bearer(PVC));
        Service {
            program,
            listening: "Running server on ",
            address: None,
            ask: ask(proxy.front().client_config().unwrap(), request, disk::content(1, 1 << 20)),
            _keep: Box::new((proxy, pod, upload_server)),
        }
    });
}

#[test]
#[ignore = "root: rights of root"]
fn the_server_of_container_images_serves_again_when_limits_are_lifted() {
    sweep("server of container images", || {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["disk", "shared"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("disk/disk.img"), disk::content(1, 1 << 20)).unwrap();
        let [address] = ports::free();
        let program = program("cdi-containerimage-server")
            .args(["-p".into(), address.port().to_string()])
            .arg("-image-dir")
            .arg(path("disk"))
            .arg("-ready-file")
            .arg(path("shared/ready"))
            .arg("-done-file")
            .arg(path("shared/done"))
            .env("CDI_WORKERS_TEST_ROOT", folder.path());
        Service {
            program,
            listening: "Serving ",
            address: Some(address),
            ask: Box::new(|address, retry_policy| {
                let mut tcp = TcpStream::connect(address)?;
                tcp.set_read_timeout(Some(retry_policy))?;
                tcp.write_all(b"GET /disk.img HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
                let mut answer = Vec::new();
                tcp.read_to_end(&mut answer)?;
                let answer = String::from_utf8_lossy(&answer).into_owned();
                let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
                let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
                Ok((status, answer))
            }),
            _keep: Box::new(folder),
        }
    });
}
