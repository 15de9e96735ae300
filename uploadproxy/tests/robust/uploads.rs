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

/// PVCs that they are for: one may have 32 at a time.
const PVCS: usize = 50;

/// What a slow client sends at once, and how often.
const PIECE_BYTES: usize = 4096;
const PIECE_INTERVAL: Duration = Duration::from_millis(500);

/// How many handshakes go on at the same time.
const HANDSHAKES: usize = 16;

/// The most memory of the proxy with all uploads in progress.
const MEMORY_BYTES: u64 = 512 << 20;

/// The most of it that stays when they have ended.
const STAYS_BYTES: u64 = 32 << 20;

/// The slowest of the uploads gets at least this part of what the fastest gets.
const FAIR: u64 = 20;

/// How long each phase is looked at.
const PHASE: Duration = Duration::from_secs(4);

/// Bytes that have arrived of each upload.
fn arrived(upstream: &Upstream) -> Vec<u64> {
    upstream.seen().iter().map(|seen| seen.body_bytes()).collect()
}

/// One upload: pieces now and then until `hurry`, then as fast as they go.
async fn upload(client: Arc<Client>, pvc: usize, handshakes: Arc<Semaphore>, hurry: Arc<AtomicBool>) {
    let turn = handshakes.acquire().await.or_fail("a turn");
    let mut stream = client.upload(pvc).await;
    drop(turn);
    let piece = [b'x'; PIECE_BYTES];
    loop {
        // The end of the test is an error here.
        if stream.write_all(&piece).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if hurry.load(Ordering::Relaxed) {
            // The clients among themselves take turns.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(PIECE_INTERVAL).await;
        }
    }
}

#[test]
fn a_thousand_uploads_take_little_memory_give_it_back_and_get_their_share() {
    let front = Scripted::start_for(BINARY, PVCS, vec![Script::status(200, "")]);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .or_fail("a runtime");
    let fresh = memory(front.server.id(), "RssAnon");
    let client = Client::new(&front, 1 << 40);
    let (handshakes, hurry) = (Arc::new(Semaphore::new(HANDSHAKES)), Arc::new(AtomicBool::new(false)));
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
    wait::until(Duration::from_secs(60), || format!("{} have begun", begun()), || begun() >= UPLOADS);
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
    let progress: Vec<_> =
        arrived(&front.upstream).iter().zip(&before).take(UPLOADS).map(|(now, then)| now - then).collect();
    let (least, most) = (progress.iter().min().or_fail("uploads"), progress.iter().max().or_fail("uploads"));
    let total: u64 = progress.iter().sum();
    let rss = memory(front.server.id(), "VmHWM");
    println!("fast: {total} bytes, {least} to {most} of each in {PHASE:?}; {rss} bytes of memory at most");
    assert!(rss < MEMORY_BYTES, "{rss} bytes");
    assert!(*least > most / FAIR, "an upload starves: {least} to {most} bytes of each");

    runtime.shutdown_background();
    let stays = || memory(front.server.id(), "RssAnon").saturating_sub(fresh);
    wait::until(Duration::from_secs(20), || format!("{} bytes stay", stays()), || stays() < STAYS_BYTES);
    println!("{} bytes stay", stays());
}
