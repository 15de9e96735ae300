//! Downloads a disk from a claim, through a reader pod and a port-forward.
//!
//! ```text
//!  claim ─► reader pod (cdi-cloner serve) ─► connection ─► stream ─► local
//!                                            HTTP           zstd      FILE.partial, then FILE
//! ```
//!
//! The download resumes after every interruption, also in another process and with another pod.
//! No ledger is needed for that: before each stream, the pod and this machine compare checksums of
//! the disk up to several offsets, and the stream begins where the two are still equal. The same
//! comparison at the end proves that the whole disk is.

mod connection;
mod disk_body;
mod frames;
mod local;
mod names;
mod qcow2;
#[cfg_attr(not(unix), path = "windows.rs")]
mod unix;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use program::cdi::SERVED_DISK;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::connection::{ReaderConnection, unreadable_volume};
pub(crate) use self::local::{DiskFormat, LocalDisk};
use crate::cluster::{Cluster, DownloadSource, ReaderPod, ReaderState};
use crate::error::{PluginError, PluginErrorKind, on_thread};
use crate::send::{StallTimer, UploadWatch};

/// The reason for not giving a file its name.
const REPLACED: &str = "another program has replaced the incomplete file";

/// Interval at which a starting pod is looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// Time limit for the start of a pod, whose image may have to be pulled.
const START_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Maximum number of pods that are made without progress between them.
const MAX_PODS: u32 = 5;

/// Maximum number of times that the disk may turn out to have changed.
const MAX_CHANGES: u32 = 10;

/// Time limit for the removal of the pod.
const REMOVAL_LIMIT: Duration = Duration::from_secs(15);

/// The reader pod of a download. It is shared with the code that removes the pod after a signal.
#[derive(Default)]
pub(crate) struct ReaderSlot(Mutex<Option<ReaderPod>>);

impl ReaderSlot {
    /// Removes the pod, if there is one.
    pub(crate) async fn remove_pod(&self, cluster: &Cluster) {
        let Some(pod) = self.0.lock().take() else {
            return;
        };
        let reason = match timeout(REMOVAL_LIMIT, cluster.remove_reader(&pod)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", REMOVAL_LIMIT.as_secs()),
        };
        tracing::warn!("cannot remove pod/{}, which ends by itself later: {reason}", pod.name);
    }
}

/// Everything that is needed to run a download.
pub(crate) struct DownloadTask<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) source: &'a DownloadSource,
    /// The identity of the download ([`LocalDisk::identity`]).
    pub(crate) download: &'a str,
    /// The image of the reader pod.
    pub(crate) image: &'a str,
    /// True to read a claim that is in use.
    pub(crate) is_forced: bool,
    /// Time without progress after which the download fails.
    pub(crate) stall_limit: Duration,
    pub(crate) watch: &'a Arc<UploadWatch>,
    /// The size of the disk in bytes; 0 until it is known.
    pub(crate) total: &'a AtomicU64,
    pub(crate) reader: &'a ReaderSlot,
}

/// The knowledge that is kept between two attempts.
#[derive(Default)]
struct DownloadState {
    size: Option<u64>,
    /// The number of pods that were made since the last progress.
    pods: u32,
    /// True if the current pod has answered.
    was_reached: bool,
    changes: u32,
}

impl DownloadTask<'_> {
    /// Downloads the disk, and gives the file its name.
    pub(crate) async fn run(&self, disk: LocalDisk) -> Result<(), PluginError> {
        let disk = Arc::new(Mutex::new(disk));
        self.fill_disk(&disk).await?;
        self.watch.set_wait_reason("writing the rest to the disk");
        let finishing = Arc::clone(&disk);
        on_thread(move || finishing.lock().finish()).await
    }

    async fn fill_disk(&self, disk: &Arc<Mutex<LocalDisk>>) -> Result<(), PluginError> {
        // Before a pod is made, which would end meanwhile: this may take an hour.
        self.read_left_behind(disk).await?;
        let mut stall_timer = StallTimer::new(self.stall_limit, self.watch);
        let mut state = DownloadState::default();
        loop {
            let attempt = self.attempt(disk, &mut state).await;
            if stall_timer.note_progress(disk.lock().position()) {
                state.pods = state.pods.min(1);
            }
            match attempt {
                Ok(true) => return Ok(()),
                Ok(false) if state.changes < MAX_CHANGES => state.changes += 1,
                Ok(false) => {
                    return Err(PluginError::unread(format!(
                        "the disk changed {MAX_CHANGES} times while it was read: stop what writes to it, and download again"
                    )));
                }
                Err(error) if error.may_pass() => {
                    let waited = stall_timer.wait_before_retry(&error, true).await;
                    waited.map_err(|seconds| {
                        let advice = "the same command resumes the download";
                        PluginError::unread(format!(
                            "no progress for {seconds} s: {error}; {advice}"
                        ))
                    })?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives what is missing, and compares the whole disk. Returns false if the disk in the
    /// volume differs: the next attempt begins where the two are still equal.
    async fn attempt(
        &self,
        disk: &Arc<Mutex<LocalDisk>>,
        state: &mut DownloadState,
    ) -> Result<bool, PluginError> {
        let mut reader = self.connect(state).await?;
        let size = match state.size {
            Some(size) => size,
            None => {
                let size = reader.query_size().await?;
                self.total.store(size, Ordering::Relaxed);
                *state.size.insert(size)
            }
        };
        state.was_reached = true;
        disk.lock().begin(size)?;
        loop {
            let has = disk.lock().position();
            if has > size {
                disk.lock().go_back_to(None)?;
                return Ok(false);
            }
            // The empty prefix needs no checksum.
            if has > 0 && !self.compare(&mut reader, disk, has, size).await? {
                return Ok(false);
            }
            if has == size {
                return Ok(true);
            }
            let body = reader.get_of(SERVED_DISK, has, size).await?;
            disk_body::receive_disk(body, disk, size, self.watch).await?;
        }
    }

    /// Compares the first `has` bytes of the disk with the volume. If they differ, keeps only what
    /// is equal, and returns false.
    async fn compare(
        &self,
        reader: &mut ReaderConnection,
        disk: &Mutex<LocalDisk>,
        has: u64,
        size: u64,
    ) -> Result<bool, PluginError> {
        self.watch.set_wait_reason("comparing the disk with the volume");
        let known = |end| disk.lock().prefix_at(end);
        let equal = reader.query_equal_prefix(has, size, self.watch, known).await?;
        let kept = equal.map_or(0, |equal| equal.end_offset());
        if kept == has {
            return Ok(true);
        }
        tracing::warn!(
            "the volume differs from the {has} bytes of an earlier attempt: only {kept} of them are kept"
        );
        let position = disk.lock().go_back_to(equal)?;
        self.watch.set_position(position);
        Ok(false)
    }

    /// Reads the part of the disk that an earlier process has left.
    async fn read_left_behind(&self, disk: &Arc<Mutex<LocalDisk>>) -> Result<(), PluginError> {
        self.watch.set_wait_reason("reading what an earlier download has left");
        let stop = CancellationToken::new();
        // The guard stops the thread however this function ends, even by a signal.
        let _guard = stop.clone().drop_guard();
        let target = Arc::clone(disk);
        on_thread(move || target.lock().read_left_behind(|| !stop.is_cancelled())).await?;
        let position = disk.lock().position();
        if position > 0 {
            tracing::warn!("resuming after {position} bytes of an earlier download");
        }
        self.watch.set_position(position);
        Ok(())
    }

    /// Connects to the reader pod. Makes a pod if there is none.
    async fn connect(&self, state: &mut DownloadState) -> Result<ReaderConnection, PluginError> {
        let current = self.reader.0.lock().clone();
        if let Some(pod) = current {
            match self.cluster.reader_state(&pod).await? {
                ReaderState::Gone => tracing::info!("the reader pod was deleted"),
                ReaderState::Ended(words) if state.was_reached => {
                    tracing::info!("the reader pod has ended: {words}");
                }
                _ => return self.start(&pod).await,
            }
            self.reader.remove_pod(self.cluster).await;
        }
        if state.pods == MAX_PODS {
            return Err(PluginError::unread(format!(
                "the pod that reads the volume was removed {MAX_PODS} times without progress"
            )));
        }
        state.pods += 1;
        state.was_reached = false;
        self.watch.set_wait_reason("creating a pod that reads the volume");
        let claim = self.cluster.readable_claim(self.source, self.is_forced, self.download).await?;
        self.cluster.check_reader_rights().await?;
        for pod in &claim.left_behind {
            tracing::info!("deleting pod/{} of an earlier process", pod.name);
            self.cluster.remove_reader(pod).await?;
        }
        let planned = ReaderPod::named_for(&claim);
        // Stored before the request, so that the pod is removed even if its response is lost.
        *self.reader.0.lock() = Some(planned.clone());
        let pod = self.cluster.create_reader(&planned, &claim, self.image, self.download).await?;
        *self.reader.0.lock() = Some(pod.clone());
        self.start(&pod).await
    }

    /// Waits until a pod runs, and connects to it.
    async fn start(&self, pod: &ReaderPod) -> Result<ReaderConnection, PluginError> {
        let (started, limit) = (Instant::now(), START_LIMIT.min(self.stall_limit));
        loop {
            let waiting = match self.cluster.reader_state(pod).await {
                Ok(ReaderState::Running) => return self.forward(pod).await,
                Ok(ReaderState::Waiting(waiting)) => waiting.to_string(),
                Ok(ReaderState::Failed(words)) => return Err(unreadable_volume(&words)),
                Ok(ReaderState::Ended(words)) => return Err(ended_pod(&words)),
                Ok(ReaderState::Gone) => {
                    return Err(PluginError::passing("the reader pod was deleted"));
                }
                Err(error) if error.may_pass() => error.to_string(),
                Err(error) => return Err(error),
            };
            if started.elapsed() >= limit {
                let seconds = limit.as_secs();
                let advice = "check --image, or give a longer --timeout";
                return Err(PluginError::unread(format!(
                    "the pod that reads the volume is not running after {seconds} s: {waiting}; {advice}"
                )));
            }
            self.watch.set_wait_reason(waiting);
            sleep(INTERVAL).await;
        }
    }

    async fn forward(&self, pod: &ReaderPod) -> Result<ReaderConnection, PluginError> {
        match self.cluster.forward_port(pod).await {
            Ok(forwarder) => ReaderConnection::start(forwarder).await,
            // The pod was deleted in between.
            Err(error) if error.kind == PluginErrorKind::NotFound => {
                Err(PluginError::passing(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

fn ended_pod(words: &str) -> PluginError {
    PluginError::unread(format!(
        "the pod that reads the volume has ended: {words}; does the image contain cdi-cloner with the command serve? See --image"
    ))
}
