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
mod error;
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
use program::threads;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::connection::ReaderConnection;
use self::error::DownloadAttemptError;
pub(crate) use self::error::DownloadError;
pub(crate) use self::local::{DiskFormat, LocalDisk};
use crate::cluster::{Cluster, ClusterError, DownloadSource, ReaderPod, ReaderState};
use crate::send::{StallTimer, StalledError, UploadWatch};

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
        tracing::warn!("pod/{} is still there, and ends by itself: {reason}", pod.name);
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
    /// True if a claim that is in use is read.
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
    pub(crate) async fn run(&self, disk: LocalDisk) -> Result<(), DownloadError> {
        let disk = Arc::new(Mutex::new(disk));
        self.fill_disk(&disk).await?;
        self.watch.set_wait_reason("writing the rest to the disk");
        let finishing = Arc::clone(&disk);
        on_thread(move || finishing.lock().finish()).await
    }

    async fn fill_disk(&self, disk: &Arc<Mutex<LocalDisk>>) -> Result<(), DownloadError> {
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
                Ok(()) => return Ok(()),
                Err(DownloadAttemptError::Final(error)) => return Err(error),
                Err(DownloadAttemptError::Differs) if state.changes < MAX_CHANGES => {
                    state.changes += 1;
                }
                Err(DownloadAttemptError::Differs) => {
                    return Err(DownloadError::Changing(state.changes));
                }
                Err(DownloadAttemptError::Passing(words)) => {
                    let waited = stall_timer.wait_before_retry(words, true).await;
                    waited.map_err(|StalledError { seconds, words }| DownloadError::Stalled {
                        seconds,
                        words,
                    })?;
                }
            }
        }
    }

    /// Receives what is missing, and compares the whole disk.
    async fn attempt(
        &self,
        disk: &Arc<Mutex<LocalDisk>>,
        state: &mut DownloadState,
    ) -> Result<(), DownloadAttemptError> {
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
                return Err(DownloadAttemptError::Differs);
            }
            // The empty prefix needs no checksum.
            if has > 0 {
                self.compare(&mut reader, disk, has, size).await?;
            }
            if has == size {
                return Ok(());
            }
            let body = reader.request_disk(has, size).await?;
            disk_body::receive_disk(body, disk, size, self.watch).await?;
        }
    }

    /// Compares the first `has` bytes of the disk with the volume. If they differ, keeps only what
    /// is equal, and fails.
    async fn compare(
        &self,
        reader: &mut ReaderConnection,
        disk: &Mutex<LocalDisk>,
        has: u64,
        size: u64,
    ) -> Result<(), DownloadAttemptError> {
        self.watch.set_wait_reason("comparing the disk with the volume");
        let known = |end| disk.lock().checkpoint_at(end);
        let equal = reader.query_equal_prefix(has, size, self.watch, known).await?;
        let kept = equal.map_or(0, |equal| equal.end_offset());
        if kept == has {
            return Ok(());
        }
        tracing::warn!(
            "the volume differs from the {has} bytes of an earlier attempt: only {kept} of them are kept"
        );
        let position = disk.lock().go_back_to(equal)?;
        self.watch.set_position(position);
        Err(DownloadAttemptError::Differs)
    }

    /// Reads the part of the disk that an earlier process has left.
    async fn read_left_behind(&self, disk: &Arc<Mutex<LocalDisk>>) -> Result<(), DownloadError> {
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
    async fn connect(
        &self,
        state: &mut DownloadState,
    ) -> Result<ReaderConnection, DownloadAttemptError> {
        let current = self.reader.0.lock().clone();
        if let Some(pod) = current {
            match self.cluster.reader_state(&pod).await? {
                ReaderState::Running => return self.forward(&pod).await,
                ReaderState::Failed(words) => {
                    return Err(DownloadError::Unreadable(words).into());
                }
                ReaderState::Ended(words) if !state.was_reached => {
                    return Err(DownloadError::PodEnded(words).into());
                }
                ReaderState::Ended(words) => tracing::info!("the reader pod has ended: {words}"),
                ReaderState::Gone => tracing::info!("the reader pod was deleted"),
                ReaderState::Waiting(_) => return self.start(&pod).await,
            }
            self.reader.remove_pod(self.cluster).await;
        }
        if state.pods == MAX_PODS {
            return Err(DownloadError::Removed(state.pods).into());
        }
        state.pods += 1;
        state.was_reached = false;
        self.watch.set_wait_reason("creating a pod that reads the volume");
        let claim = self.cluster.readable_claim(self.source, self.is_forced, self.download).await;
        let claim = claim.map_err(DownloadError::from)?;
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
    async fn start(&self, pod: &ReaderPod) -> Result<ReaderConnection, DownloadAttemptError> {
        let (started, limit) = (Instant::now(), START_LIMIT.min(self.stall_limit));
        loop {
            let waiting = match self.cluster.reader_state(pod).await {
                Ok(ReaderState::Running) => return self.forward(pod).await,
                Ok(ReaderState::Waiting(waiting)) => waiting.to_string(),
                Ok(ReaderState::Failed(words)) => {
                    return Err(DownloadError::Unreadable(words).into());
                }
                Ok(ReaderState::Ended(words)) => return Err(DownloadError::PodEnded(words).into()),
                Ok(ReaderState::Gone) => {
                    return Err(DownloadAttemptError::Passing(
                        "the reader pod was deleted".to_owned(),
                    ));
                }
                Err(error) if error.may_pass() => error.to_string(),
                Err(error) => return Err(error.into()),
            };
            if started.elapsed() >= limit {
                let seconds = limit.as_secs();
                return Err(DownloadError::NotRunning { seconds, waiting }.into());
            }
            self.watch.set_wait_reason(waiting);
            sleep(INTERVAL).await;
        }
    }

    async fn forward(&self, pod: &ReaderPod) -> Result<ReaderConnection, DownloadAttemptError> {
        match self.cluster.forward_port(pod).await {
            Ok(forwarder) => ReaderConnection::start(forwarder).await,
            // The pod was deleted in between.
            Err(error @ ClusterError::NotFound { .. }) => {
                Err(DownloadAttemptError::Passing(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Runs `work` on a thread of its own, where it may block.
async fn on_thread(
    work: impl FnOnce() -> Result<(), DownloadError> + Send + 'static,
) -> Result<(), DownloadError> {
    let ended = threads::run_blocking(work).await;
    ended.map_err(|error| DownloadError::Internal(error.to_string()))?
}
