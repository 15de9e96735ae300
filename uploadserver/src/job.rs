//! One upload on its way to the disk. It outlives the request that began it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use datapath::facts::ImageFacts;
use datapath::marks::PrefixCrc;
use datapath::observe::{ByteCount, Observer, Stage, TransferPhase};
use diskimage::HEAD_BYTES;
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;
use tracing::Span;
use volume::figures::{CountedTransfer, TransferMetrics};
use volume::messages::ProductKind;
use volume::watch::{self, PhaseTracker};

use crate::checksum::AnnouncedChecksum;
use crate::failure::UploadError;
use crate::generation::ResumableState;

/// Time for the data path to recognise what it has the head of. It takes a millisecond on an idle machine; a VHDX or VMDK may need more
/// than the head.
const RECOGNITION_LIMIT: Duration = Duration::from_secs(2);

/// The wrapping of a clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloneWrapping {
    /// Framed snappy: CDI's cloner.
    Snappy,
    /// Frames of zstd, with a checksum behind them: ours.
    Zstd,
}

/// The content of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodyContent {
    /// A disk image in any format and compression.
    #[default]
    Image,
    /// A tar in any compression, for a directory.
    Archive,
    /// The bytes of another volume's device.
    DeviceClone(CloneWrapping),
    /// A tar of another volume's files.
    FilesClone(CloneWrapping),
}

impl BodyContent {
    /// True for a clone that comes in `wrapping`.
    pub(crate) fn is_clone_in(self, wrapping: CloneWrapping) -> bool {
        self == Self::DeviceClone(wrapping) || self == Self::FilesClone(wrapping)
    }

    /// True for a copy of another volume, made by CDI.
    pub(crate) fn is_clone(self) -> bool {
        matches!(self, Self::DeviceClone(_) | Self::FilesClone(_))
    }
}

/// The way in which an upload comes, and is answered.
#[derive(Debug, Clone, Default)]
pub(crate) enum UploadMode {
    /// In one request, which is answered at the end.
    #[default]
    Sync,
    /// In one request, which is answered when all is verified.
    Async,
    /// In several requests; with the client's marks of a raw disk that an earlier upload may have left in part.
    Resumable(Vec<PrefixCrc>),
}

/// The plan of an upload.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadPlan {
    pub(crate) content: BodyContent,
    /// Bytes of the upload, if the client said so at its beginning.
    pub(crate) total: Option<u64>,
    pub(crate) promise: AnnouncedChecksum,
    pub(crate) mode: UploadMode,
}

impl UploadPlan {
    /// True if the client does not wait for the end.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self.mode, UploadMode::Async)
    }

    /// True if it may be continued by another request.
    pub(crate) fn is_resumable(&self) -> bool {
        matches!(self.mode, UploadMode::Resumable(_))
    }

    /// The client's marks of what an earlier upload may have left.
    pub(crate) fn marks(&self) -> &[PrefixCrc] {
        match &self.mode {
            UploadMode::Resumable(marks) => marks,
            UploadMode::Sync | UploadMode::Async => &[],
        }
    }
}

/// The success of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UploadSuccess {
    pub(crate) content: BodyContent,
    pub(crate) preallocated: bool,
}

/// The knowledge of how an upload ends: what its client can be told, or was told.
#[derive(Debug, Clone)]
pub(crate) enum JobState {
    /// Bytes are coming, or are waited for.
    Running,
    /// All bytes are verified and on their way to the disk.
    Verified,
    /// The client was told so, and does not wait for the end.
    Acknowledged,
    /// The transfer has ended, and its result follows in a moment: too late for [`JobState::Acknowledged`].
    Sealed,
    /// The transfer has ended with this result.
    Ended(Result<UploadSuccess, UploadError>),
}

/// An upload.
pub(crate) struct UploadJob {
    /// Its name in the path of a resumable upload.
    pub(crate) id: String,
    /// The upload, for the lines of the log.
    pub(crate) span: Span,
    pub(crate) plan: UploadPlan,
    pub(crate) progress: Arc<UploadProgress>,
    /// Token that ends the upload soon.
    pub(crate) stop: CancellationToken,
    /// The state by which it can be continued, if it is resumable.
    pub(crate) resumable: ResumableState,
    outlook: Sender<JobState>,
}

impl UploadJob {
    /// A job that has not begun. Its stages are counted by `transfers`.
    pub(crate) fn new(plan: UploadPlan, stop: CancellationToken, transfers: Arc<TransferMetrics>) -> Self {
        let outlook = Sender::new(JobState::Running);
        // Names that cannot be guessed: 128 bits.
        let id = format!("{:032x}", fastrand::u128(..));
        Self {
            // Only what is continued by other requests has to be recognized.
            span: match plan.is_resumable() {
                true => tracing::error_span!("upload", id),
                false => Span::none(),
            },
            id,
            progress: Arc::new(UploadProgress::new(outlook.clone(), &plan, transfers)),
            resumable: ResumableState::default(),
            plan,
            stop,
            outlook,
        }
    }

    /// Waits until the client can be answered: the end, or for an asynchronous upload that all is verified.
    pub(crate) async fn wait_for_answer(&self) -> Result<(), UploadError> {
        let mut outlooks = self.outlook.subscribe();
        loop {
            if self.plan.is_async() && self.try_acknowledge() {
                return Ok(());
            }
            if let JobState::Ended(result) = &*outlooks.borrow_and_update() {
                return result.clone().map(|_| ());
            }
            // The sender lives in `self`.
            outlooks.changed().await.ok();
        }
    }

    /// The client gets its answer now, if all is verified and nothing has failed since.
    fn try_acknowledge(&self) -> bool {
        self.outlook.send_if_modified(|outlook| {
            let is_verified = matches!(outlook, JobState::Verified);
            if is_verified {
                *outlook = JobState::Acknowledged;
            }
            is_verified
        })
    }

    /// Ends the time in which the client can be told of a success before the result. True if it was told.
    pub(crate) fn close_acknowledgement(&self) -> bool {
        matches!(self.outlook.send_replace(JobState::Sealed), JobState::Acknowledged)
    }

    /// Ends the job with `result`.
    pub(crate) fn set_result(&self, result: Result<UploadSuccess, UploadError>) {
        self.outlook.send_replace(JobState::Ended(result));
    }

    /// The result, once it is known.
    pub(crate) fn result(&self) -> Option<Result<UploadSuccess, UploadError>> {
        match &*self.outlook.borrow() {
            JobState::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }

    /// Waits until the result of the upload is known.
    pub(crate) async fn wait_for_end(&self) {
        let mut outlooks = self.outlook.subscribe();
        // The sender lives in `self`.
        outlooks.wait_for(|outlook| matches!(outlook, JobState::Ended(_))).await.ok();
    }

    /// Waits for a moment until the bytes that came are recognised as an image, or refused: whoever sends an image in parts learns with
    /// the first large one that it is none. Only behind the part that makes them enough, of which `before` bytes had come before.
    pub(crate) async fn wait_recognised(&self, before: u64) {
        if !(before..self.progress.received_bytes()).contains(&(HEAD_BYTES as u64)) {
            return;
        }
        let mut outlooks = self.outlook.subscribe();
        let is_known = |outlook: &JobState| {
            self.progress.image_facts().is_some() || matches!(outlook, JobState::Ended(_))
        };
        tokio::time::timeout(RECOGNITION_LIMIT, outlooks.wait_for(is_known)).await.ok();
    }

    /// True once all bytes are verified.
    pub(crate) fn is_verified(&self) -> bool {
        !matches!(*self.outlook.borrow(), JobState::Running)
    }
}

/// The figures of an upload.
pub(crate) struct UploadProgress {
    pub(crate) began: Instant,
    /// Bytes of the upload, once the client has said how many.
    pub(crate) total: Arc<OnceLock<u64>>,
    /// Bytes that came over the network.
    pub(crate) received: Arc<AtomicU64>,
    phases: PhaseTracker,
    facts: OnceLock<ImageFacts>,
    pub(crate) counted: CountedTransfer,
    outlook: Sender<JobState>,
}

impl UploadProgress {
    fn new(outlook: Sender<JobState>, plan: &UploadPlan, transfers: Arc<TransferMetrics>) -> Self {
        Self {
            phases: PhaseTracker::new(match plan.content {
                BodyContent::Archive => ProductKind::Directory,
                BodyContent::Image | BodyContent::DeviceClone(_) | BodyContent::FilesClone(_) => {
                    ProductKind::Disk
                }
            }),
            began: Instant::now(),
            total: Arc::new(plan.total.map(OnceLock::from).unwrap_or_default()),
            received: Arc::default(),
            facts: OnceLock::new(),
            counted: CountedTransfer::new(transfers),
            outlook,
        }
    }

    /// Bytes that came over the network.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes of the upload, if they are known.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.total.get().copied()
    }

    /// Bytes that were written to the target.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.counted.total_bytes(ByteCount::Target)
    }

    /// Counts in the metrics what came since this was last called.
    pub(crate) fn count_received(&self) {
        self.counted.record_bytes(ByteCount::Source, self.received_bytes());
    }

    /// The facts of the image, once it is recognised.
    pub(crate) fn image_facts(&self) -> Option<&ImageFacts> {
        self.facts.get()
    }

    /// The phase that began last.
    pub(crate) fn current_phase(&self) -> TransferPhase {
        self.phases.current_phase()
    }
}

impl Observer for UploadProgress {
    fn begin_phase(&self, phase: TransferPhase) {
        self.phases.begin_phase(phase);
        // Everything that can be wrong with what was sent has been found by now.
        if phase == TransferPhase::Resize {
            self.outlook.send_replace(JobState::Verified);
        }
    }

    fn record_image(&self, facts: &ImageFacts) {
        watch::log_image(facts);
        self.facts.set(facts.clone()).ok();
        // For those who wait for it.
        self.outlook.send_modify(|_| {});
    }

    fn record_bytes(&self, count: ByteCount, total: u64) {
        self.counted.record_bytes(count, total);
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.counted.record_time(stage, time);
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::figures::ServerMetrics;

    const SUCCESS: UploadSuccess = UploadSuccess { content: BodyContent::Image, preallocated: false };

    fn job(is_async: bool) -> UploadJob {
        let mode = if is_async { UploadMode::Async } else { UploadMode::Sync };
        let plan = UploadPlan { mode, ..UploadPlan::default() };
        UploadJob::new(plan, CancellationToken::new(), ServerMetrics::default().transfers)
    }

    fn answer(job: &UploadJob) -> Option<Result<(), UploadError>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let answer =
            async { tokio::time::timeout(std::time::Duration::from_millis(10), job.wait_for_answer()).await };
        runtime.block_on(answer).ok()
    }

    #[test]
    fn only_an_asynchronous_upload_is_answered_before_its_end() {
        for is_async in [false, true] {
            let job = job(is_async);
            assert_eq!(answer(&job), None);
            job.progress.begin_phase(TransferPhase::Resize);
            assert_eq!(answer(&job), is_async.then_some(Ok(())));
            assert_eq!(job.close_acknowledgement(), is_async, "told before");
            job.set_result(Ok(SUCCESS));
            assert_eq!(answer(&job), Some(Ok(())));
        }
    }

    #[test]
    fn a_failure_before_the_answer_is_the_answer() {
        let failure = UploadError::new(StatusCode::BAD_REQUEST, "no");
        let job = job(true);
        job.progress.begin_phase(TransferPhase::Resize);
        assert!(!job.close_acknowledgement(), "nobody was told");
        job.set_result(Err(failure.clone()));
        assert_eq!(answer(&job), Some(Err(failure)));
        assert!(job.is_verified());
    }
}
