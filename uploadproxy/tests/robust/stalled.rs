//! Fast clients whose upload servers do not read, without and with a memory limit.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::cgroup::MemoryCgroup;
use testkit::fail::OrFail;
use testkit::https::{Request, Response};
use testkit::upload_proxy::{PVC, Scripted, UploadProxy};
use testkit::upstream::{Reads, Script, Then};
use testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::client::Client;
use crate::{BINARY, PATH, memory, time_upload};

/// PVCs of the uploads; one PVC may have 32 at a time.
const PVCS: usize = 50;

/// Handshakes in progress at the same time.
const HANDSHAKES: usize = 32;

/// Time without progress after which an upload counts as stalled.
const STUCK: Duration = Duration::from_secs(1);

/// Attempts of a client before it gives up.
const TRIES: usize = 10;

/// Limit on the user memory of a stalled upload. The default limit on uploads is computed with it.
const STALLED_BYTES: u64 = 896 << 10;

/// Memory that may remain when all uploads have ended.
const STAYS_BYTES: u64 = 16 << 20;

/// The outcome of an upload.
enum Fate {
    /// Bytes were accepted until the buffers were full. The connection stays open as long as this
    /// value.
    Stalled { _connection: Box<TlsStream<TcpStream>> },
    /// The client got this answer.
    Answered(String),
    /// The connection ended without an answer.
    Broken,
}

/// Many clients that send as fast as they can.
struct Uploads {
    runtime: Runtime,
    tasks: Vec<JoinHandle<Fate>>,
}

impl Uploads {
    /// Starts `count` uploads; with `go_on` they continue to send after a refusal.
    fn start(front: &Scripted, count: usize, go_on: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .or_fail("a runtime");
        let client = Client::new(front, 1 << 40);
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        let pvcs = front.pvcs.len();
        let tasks = (0..count)
            .map(|number| {
                let (client, handshakes) = (Arc::clone(&client), Arc::clone(&handshakes));
                runtime
                    .spawn(async move { upload(&client, number % pvcs, &handshakes, go_on).await })
            })
            .collect();
        Self { runtime, tasks }
    }

    /// Waits until each upload is stalled or has ended.
    fn fates(&mut self) -> Vec<Fate> {
        let tasks = std::mem::take(&mut self.tasks);
        let all = async {
            let mut fates = Vec::new();
            for task in tasks {
                fates.push(task.await.or_fail("a client"));
            }
            fates
        };
        self.runtime.block_on(all)
    }
}

/// Uploads, and tries again if the connection was closed without an answer to make room.
async fn upload(client: &Client, pvc: usize, handshakes: &Semaphore, goes_on: bool) -> Fate {
    for _ in 0..TRIES {
        match try_upload(client, pvc, handshakes, goes_on).await {
            Fate::Broken if !goes_on => tokio::time::sleep(STUCK / 2).await,
            fate => return fate,
        }
    }
    Fate::Broken
}

async fn try_upload(client: &Client, pvc: usize, handshakes: &Semaphore, goes_on: bool) -> Fate {
    let turn = handshakes.acquire().await.or_fail("a turn");
    let Ok(stream) = client.try_upload(pvc).await else {
        return Fate::Broken;
    };
    drop(turn);
    let (mut from, mut to) = split(stream);
    let send = async {
        let piece = vec![b'x'; 64 << 10];
        while let Ok(written) = timeout(STUCK, to.write_all(&piece)).await {
            written?;
        }
        // The proxy may have had no time to answer yet.
        tokio::time::sleep(STUCK * 3).await;
        Ok::<_, std::io::Error>(())
    };
    let read = async {
        let mut answer = vec![0; 4096];
        let length = from.read(&mut answer).await.unwrap_or(0);
        String::from_utf8_lossy(&answer[..length]).into_owned()
    };
    let answer = tokio::select! {
        biased;
        answer = read => answer,
        sent = send => match sent {
            Ok(()) => {
                return Fate::Stalled {
                    _connection: Box::new(from.unsplit(to)),
                };
            }
            // There may be an answer all the same.
            Err(_) => {
                let mut answer = String::new();
                from.read_to_string(&mut answer).await.ok();
                answer
            }
        },
    };
    if goes_on {
        let piece = vec![b'x'; 64 << 10];
        let more = async { while to.write_all(&piece).await.is_ok() {} };
        timeout(STUCK * 3, more).await.ok();
    }
    match answer.is_empty() {
        true => Fate::Broken,
        false => Fate::Answered(answer),
    }
}

/// An upload that sends a byte every second, and so makes progress.
struct Running {
    stop: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Response>,
}

impl Running {
    fn start(front: &Scripted) -> Self {
        const BYTES: usize = 1000;
        let mut connection = front.server.connect();
        connection.begin(&front.request("POST", PATH).length(BYTES)).or_fail("send");
        front.upstream.wait_for("an upload", |seen| !seen.is_empty());
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut left = BYTES;
            while stopped.recv_timeout(Duration::from_secs(1)).is_err() {
                connection.send(b"x").or_fail("a byte");
                left -= 1;
            }
            connection.send(&vec![b'x'; left]).or_fail("the rest");
            connection.response().or_fail("an answer")
        });
        Self { stop, thread }
    }

    fn finish(self) -> Response {
        self.stop.send(()).or_fail("a running upload");
        self.thread.join().ok().or_fail("a running upload")
    }
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn a_stalled_upload_holds_little_memory() {
    const UPLOADS: usize = 64;
    let front = Scripted::start_for(BINARY, PVCS, vec![Script::status(200, "")]);
    time_upload(&front);
    front.upstream.follow(Script::stop(Reads::Head, Then::Hang));
    // Memory that is allocated once or kept for reuse.
    let mut first = Uploads::start(&front, 16, false);
    let _first = first.fates();
    let before = memory(front.server.id(), "RssAnon");
    let mut uploads = Uploads::start(&front, UPLOADS, false);
    let fates = uploads.fates();
    assert!(fates.iter().all(|fate| matches!(fate, Fate::Stalled { .. })));
    let each = memory(front.server.id(), "RssAnon").saturating_sub(before) / UPLOADS as u64;
    println!("{each} bytes for a stalled upload");
    assert!(each <= STALLED_BYTES, "{each} bytes for a stalled upload");
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn hundreds_of_stalled_uploads_do_not_exceed_the_memory_limit() {
    const UPLOADS: usize = 500;
    for (limit, least) in [(128 << 20, 40), (64 << 20, 12)] {
        let group = MemoryCgroup::new(limit);
        let scripts = vec![Script::status(200, "done"), Script::stop(Reads::Head, Then::Hang)];
        let front = Scripted::start_in(&group, UploadProxy::new(BINARY), PVCS, scripts);
        let fresh = memory(front.server.id(), "RssAnon");
        let running = Running::start(&front);

        let mut uploads = Uploads::start(&front, UPLOADS, false);
        let began = Instant::now();
        let fates = uploads.fates();
        let admitted = front.upstream.seen().len();
        assert_eq!(group.oom_kills(), 0, "limit {limit}: the proxy was killed");
        let held = memory(front.server.id(), "RssAnon") - fresh;
        let peak = group.peak_bytes();
        println!(
            "limit {limit}: {admitted} of {UPLOADS} admitted within {:?}, {held} bytes held, {peak} in the cgroup",
            began.elapsed()
        );
        assert!(admitted >= least, "limit {limit}: {admitted} uploads were admitted");
        for fate in &fates {
            match fate {
                Fate::Stalled { .. } => {}
                Fate::Answered(answer) => {
                    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
                    assert!(answer.contains("\r\nretry-after: 10\r\n"), "{answer}");
                    // Either of the two limits may come first.
                    let is_for_memory =
                        answer.contains("the memory limit of the upload proxy allows ");
                    assert!(
                        is_for_memory || answer.contains("too many requests for this PVC"),
                        "{answer}"
                    );
                }
                Fate::Broken => panic!("limit {limit}: a client got no answer"),
            }
        }
        running.finish().assert(200, "done");

        // Some connections are closed to make room before their client has read the answer.
        let mut persistent = Uploads::start(&front, UPLOADS / 5, true);
        let more = persistent.fates();
        assert_eq!(group.oom_kills(), 0, "limit {limit}: the proxy was killed");
        let peak = group.peak_bytes();
        println!("limit {limit}: {peak} in the cgroup beside clients that continue to send");

        // A proxy that has stopped reading does not see that a client has left; the end of the
        // upload server ends the upload.
        let Scripted { server, proxy, upstream, .. } = front;
        drop((fates, more, uploads, persistent, upstream));
        let stays = || memory(server.id(), "RssAnon").saturating_sub(fresh);
        wait::until(|| format!("limit {limit}: {} bytes stay", stays()), || stays() < STAYS_BYTES);
        println!("limit {limit}: {} bytes stay", stays());
        let request = Request::post(PATH).header("Authorization", &proxy.bearer(PVC));
        let next = server.exchange(&request, b"x");
        assert_eq!(
            next.status, 502,
            "the upload is admitted, but its upload server is gone: {next:?}"
        );
        server.signal(Signal::TERM);
        server.wait().assert_success("a proxy with a limit");
    }
}
