//! A thousand uploads at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use testkit::fail::OrFail;
use testkit::process::cpu;
use testkit::upload_proxy::Scripted;
use testkit::upstream::{Script, Upstream};
use testkit::wait;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::{BINARY, memory, time_upload};

const UPLOADS: usize = 1000;

/// PVCs of the uploads; one PVC may have 32 at a time.
const PVCS: usize = 50;

/// Bytes that a slow client sends at once, and the time between them.
const PIECE_BYTES: usize = 4096;
const PIECE_INTERVAL: Duration = Duration::from_millis(500);

/// Handshakes in progress at the same time.
const HANDSHAKES: usize = 16;

/// Limit on the proxy's memory with all uploads in progress.
const MEMORY_BYTES: u64 = 512 << 20;

/// Limit on the memory that remains when they have ended.
const STAYS_BYTES: u64 = 32 << 20;

/// The slowest upload must get at least this fraction of what the fastest gets: one in `FAIR`.
const FAIR: u64 = 20;

/// How long each phase is observed.
const PHASE: Duration = Duration::from_secs(4);

/// Returns how many bytes of each upload have arrived.
fn arrived(upstream: &Upstream) -> Vec<u64> {
    upstream.seen().iter().map(|seen| seen.body_bytes()).collect()
}

/// Runs an upload: pieces at intervals until `hurry`, then as fast as possible.
async fn upload(
    client: Arc<Client>,
    pvc: usize,
    handshakes: Arc<Semaphore>,
    hurry: Arc<AtomicBool>,
) {
    let turn = handshakes.acquire().await.or_fail("a turn");
    let mut stream = client.upload(pvc).await;
    drop(turn);
    let piece = [b'x'; PIECE_BYTES];
    loop {
        // The end of the test closes the connection.
        if stream.write_all(&piece).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if hurry.load(Ordering::Relaxed) {
            // Lets the other clients take their turns.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(PIECE_INTERVAL).await;
        }
    }
}

#[test]
#[ignore = "alone: measures times or memory under load"]
fn a_thousand_uploads_share_the_rate_and_release_their_memory() {
    let front = Scripted::start_for(BINARY, PVCS, vec![Script::status(200, "")]);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .or_fail("a runtime");
    let fresh = memory(front.server.id(), "RssAnon");
    let client = Client::new(&front, 1 << 40);
    let (handshakes, hurry) =
        (Arc::new(Semaphore::new(HANDSHAKES)), Arc::new(AtomicBool::new(false)));
    for number in 0..UPLOADS {
        runtime.spawn(upload(
            Arc::clone(&client),
            number % PVCS,
            Arc::clone(&handshakes),
            Arc::clone(&hurry),
        ));
    }
    let started = Instant::now();
    let begun = || arrived(&front.upstream).iter().filter(|bytes| **bytes > 0).count();
    wait::until(|| format!("{} have begun", begun()), || begun() >= UPLOADS);
    println!("{UPLOADS} uploads have begun within {:?}", started.elapsed());

    let before = (arrived(&front.upstream), cpu(front.server.id()));
    std::thread::sleep(PHASE);
    let (slow, slow_cpu) = (arrived(&front.upstream), cpu(front.server.id()) - before.1);
    let progress = slow.iter().zip(&before.0).map(|(now, then)| now - then);
    let least = progress.min().or_fail("uploads");
    let expected = PHASE.as_millis() / PIECE_INTERVAL.as_millis() * PIECE_BYTES as u128;
    let took = time_upload(&front);
    println!(
        "slow: at least {least} bytes of each in {PHASE:?}, {slow_cpu:?} of CPU; another upload took {took:?}"
    );
    assert!(u128::from(least) >= expected / 4, "{least} of {expected} bytes");
    assert!(took < Duration::from_secs(1), "{took:?}");

    hurry.store(true, Ordering::Relaxed);
    std::thread::sleep(PHASE);
    let before = arrived(&front.upstream);
    std::thread::sleep(PHASE);
    let progress: Vec<_> = arrived(&front.upstream)
        .iter()
        .zip(&before)
        .take(UPLOADS)
        .map(|(now, then)| now - then)
        .collect();
    let (least, most) =
        (progress.iter().min().or_fail("uploads"), progress.iter().max().or_fail("uploads"));
    let total: u64 = progress.iter().sum();
    let rss = memory(front.server.id(), "VmHWM");
    println!(
        "fast: {total} bytes, {least} to {most} of each in {PHASE:?}; {rss} bytes of memory at most"
    );
    assert!(rss < MEMORY_BYTES, "{rss} bytes");
    assert!(*least > most / FAIR, "an upload starves: {least} to {most} bytes of each");

    runtime.shutdown_background();
    let stays = || memory(front.server.id(), "RssAnon").saturating_sub(fresh);
    wait::until(|| format!("{} bytes stay", stays()), || stays() < STAYS_BYTES);
    println!("{} bytes stay", stays());
}
