//! One upload on its way to the disk. An upload job outlives the request that began it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use codec::decode::Codec;
use diskimage::{Format, HEAD_BYTES};
use reporting::figures::{CountedTransfer, TransferMetrics};
use reporting::messages::ProductKind;
use reporting::watch::PhaseTracker;
use stream::facts::ImageFacts;
use stream::marks::HELD_BYTES;
use stream::observe::{ByteCount, LimitingPart, Observer, Stage, TransferPhase};
use stream::options::ChosenFormat;
use stream::prefix_crc::PrefixCrc;
use tokio::sync::watch::Sender;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::checksum::AnnouncedChecksum;
use crate::failure::UploadError;
use crate::generation::ResumableState;

/// Time that the data path has to recognize the image after its head has arrived. It takes a
/// millisecond on an idle machine; a VHDX or VMDK may need more than the head.
const RECOGNITION_LIMIT: Duration = Duration::from_secs(2);

/// The content of a body. A clone has one layer of compression: framed snappy, as CDI's cloner
/// sends it, or zstd frames followed by a checksum, as our cloner sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodyContent {
    /// A disk image in any format and compression.
    #[default]
    Image,
    /// A tar archive in any compression, for a directory.
    Archive,
    /// The bytes of another volume's block device.
    DeviceClone(Codec),
    /// A tar archive of another volume's files.
    FilesClone(Codec),
}

impl BodyContent {
    /// Returns true for a clone of another volume.
    pub(crate) fn is_clone(self) -> bool {
        matches!(self, Self::DeviceClone(_) | Self::FilesClone(_))
    }
}

/// How an upload arrives and when it is answered.
#[derive(Debug, Clone, Default)]
pub(crate) enum UploadMode {
    /// In one request, which is answered at the end.
    #[default]
    Sync,
    /// In one request, which is answered once all bytes are verified.
    Async,
    /// In several requests. Carries the client's checksums of prefixes of a raw disk that an
    /// earlier upload may have left in part.
    Resumable(Vec<PrefixCrc>),
}

/// The plan of an upload, as described by its first request.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadPlan {
    pub(crate) content: BodyContent,
    /// Length of the upload in bytes, if the client stated it at the beginning.
    pub(crate) total: Option<u64>,
    pub(crate) promise: AnnouncedChecksum,
    pub(crate) mode: UploadMode,
    /// The format of an image, if the client chose one.
    pub(crate) format: Option<ChosenFormat>,
}

impl UploadPlan {
    /// Returns true if the client does not wait for the end of the upload.
    pub(crate) fn is_async(&self) -> bool {
        matches!(self.mode, UploadMode::Async)
    }

    /// Returns true if another request may resume the upload.
    pub(crate) fn is_resumable(&self) -> bool {
        matches!(self.mode, UploadMode::Resumable(_))
    }

    /// Returns the client's checksums of prefixes that an earlier upload may have left on the
    /// disk.
    pub(crate) fn marks(&self) -> &[PrefixCrc] {
        match &self.mode {
            UploadMode::Resumable(marks) => marks,
            UploadMode::Sync | UploadMode::Async => &[],
        }
    }
}

/// A successful upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UploadSuccess {
    pub(crate) content: BodyContent,
    pub(crate) preallocated: bool,
}

/// The state of a job, which determines what its client may be told or was told.
#[derive(Debug, Clone)]
pub(crate) enum JobState {
    /// Bytes are arriving, or the job is waiting for them.
    Running,
    /// All bytes are verified and are being written to the disk.
    Verified,
    /// The client was told that all bytes are verified, and no longer waits for the end.
    Acknowledged,
    /// The transfer has ended and its result follows in a moment. The state can no longer change
    /// to [`JobState::Acknowledged`].
    Sealed,
    /// The transfer has ended with this result.
    Ended(Result<UploadSuccess, UploadError>),
}

/// One upload, with its progress and its state.
pub(crate) struct UploadJob {
    /// The name of a resumable upload in its path.
    pub(crate) id: String,
    /// The tracing span for the upload's log lines.
    pub(crate) span: Span,
    pub(crate) plan: UploadPlan,
    pub(crate) progress: Arc<UploadProgress>,
    /// Ends the upload soon after it is cancelled.
    pub(crate) stop: CancellationToken,
    /// The state that allows the upload to be resumed, if it is resumable.
    pub(crate) resumable: ResumableState,
    outlook: Sender<JobState>,
}

impl UploadJob {
    /// Creates a job that has not begun yet. `transfers` counts the work of its stages.
    pub(crate) fn new(
        plan: UploadPlan,
        stop: CancellationToken,
        transfers: Arc<TransferMetrics>,
    ) -> Self {
        let outlook = Sender::new(JobState::Running);
        // The id consists of 128 random bits, so that it cannot be guessed.
        let id = format!("{:032x}", fastrand::u128(..));
        // Only an upload with several requests needs a span, which shows which log lines belong
        // together.
        let span =
            if plan.is_resumable() { tracing::error_span!("upload", id) } else { Span::none() };
        Self {
            span,
            id,
            progress: Arc::new(UploadProgress::new(outlook.clone(), &plan, transfers)),
            resumable: ResumableState::default(),
            plan,
            stop,
            outlook,
        }
    }

    /// Returns true if a later process can continue this upload: its client then sends checksums
    /// of what may be on the disk ([`UploadMode::Resumable`]). The first MiB is never there.
    pub(crate) fn can_continue_elsewhere(&self) -> bool {
        let is_raw = self.progress.image_facts().is_some_and(|facts| facts.format == Format::Raw);
        let is_started = self.progress.received_bytes() > HELD_BYTES;
        self.plan.is_resumable() && self.plan.content == BodyContent::Image && is_raw && is_started
    }

    /// Waits until the client can be answered: at the end of the upload or, for an asynchronous
    /// upload, once all bytes are verified.
    pub(crate) async fn wait_for_answer(&self) -> Result<(), UploadError> {
        let mut outlooks = self.outlook.subscribe();
        loop {
            if self.plan.is_async() && self.try_acknowledge() {
                return Ok(());
            }
            if let JobState::Ended(result) = &*outlooks.borrow_and_update() {
                return result.clone().map(|_| ());
            }
            // This cannot fail: the sender lives in `self`.
            outlooks.changed().await.ok();
        }
    }

    /// Marks the upload as acknowledged if all bytes are verified and nothing has failed since.
    /// Returns true if it did.
    fn try_acknowledge(&self) -> bool {
        self.outlook.send_if_modified(|outlook| {
            let is_verified = matches!(outlook, JobState::Verified);
            if is_verified {
                *outlook = JobState::Acknowledged;
            }
            is_verified
        })
    }

    /// Ends the time in which the client can be told of a success before the final result is
    /// known. Returns true if the client was told.
    pub(crate) fn close_acknowledgement(&self) -> bool {
        matches!(self.outlook.send_replace(JobState::Sealed), JobState::Acknowledged)
    }

    /// Ends the job with `result`.
    pub(crate) fn set_result(&self, result: Result<UploadSuccess, UploadError>) {
        self.outlook.send_replace(JobState::Ended(result));
    }

    /// Returns the result, once it is known.
    pub(crate) fn result(&self) -> Option<Result<UploadSuccess, UploadError>> {
        match &*self.outlook.borrow() {
            JobState::Ended(result) => Some(result.clone()),
            _ => None,
        }
    }

    /// Waits until the result of the upload is known.
    pub(crate) async fn wait_for_end(&self) {
        let mut outlooks = self.outlook.subscribe();
        // This cannot fail: the sender lives in `self`.
        outlooks.wait_for(|outlook| matches!(outlook, JobState::Ended(_))).await.ok();
    }

    /// Waits up to [`RECOGNITION_LIMIT`] until the received bytes are recognized as an image, or
    /// rejected. A client that sends something other than an image in parts therefore gets the
    /// error with its first large part. It waits only after the part that completes the head;
    /// `before` is the number of bytes received before that part.
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

    /// Returns true once all bytes are verified.
    pub(crate) fn is_verified(&self) -> bool {
        !matches!(*self.outlook.borrow(), JobState::Running)
    }
}

/// The progress of an upload.
pub(crate) struct UploadProgress {
    pub(crate) began: Instant,
    /// Length of the upload in bytes, once the client has stated it.
    pub(crate) total: Arc<OnceLock<u64>>,
    /// Bytes received over the network.
    pub(crate) received: Arc<AtomicU64>,
    facts: OnceLock<ImageFacts>,
    /// Size of the disk, which a compressed raw image only shows at its end.
    pub(crate) disk_bytes: OnceLock<u64>,
    pub(crate) counted: CountedTransfer,
    outlook: Sender<JobState>,
}

impl UploadProgress {
    fn new(outlook: Sender<JobState>, plan: &UploadPlan, transfers: Arc<TransferMetrics>) -> Self {
        let phases = PhaseTracker::new(match plan.content {
            BodyContent::Archive => ProductKind::Directory,
            BodyContent::Image | BodyContent::DeviceClone(_) | BodyContent::FilesClone(_) => {
                ProductKind::Disk
            }
        });
        Self {
            began: Instant::now(),
            total: Arc::new(plan.total.map(OnceLock::from).unwrap_or_default()),
            received: Arc::default(),
            facts: OnceLock::new(),
            disk_bytes: OnceLock::new(),
            counted: CountedTransfer::new(transfers).with_phases(phases),
            outlook,
        }
    }

    /// Returns the bytes received over the network.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the length of the upload in bytes, if it is known.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.total.get().copied()
    }

    /// Returns the bytes written to the target.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.counted.total_bytes(ByteCount::Target)
    }

    /// Adds the bytes received since the previous call to the metrics.
    pub(crate) fn count_received(&self) {
        self.counted.record_bytes(ByteCount::Source, self.received_bytes());
    }

    /// Returns the facts about the image, once it is recognized.
    pub(crate) fn image_facts(&self) -> Option<&ImageFacts> {
        self.facts.get()
    }
}

impl Observer for UploadProgress {
    fn begin_phase(&self, phase: TransferPhase) {
        self.counted.begin_phase(phase);
        // Any defect of the sent data has been found by this time.
        if phase == TransferPhase::Resize {
            self.outlook.send_replace(JobState::Verified);
        }
        if phase == TransferPhase::Complete {
            self.count_received();
            self.counted.finish();
        }
    }

    fn record_image(&self, facts: &ImageFacts) {
        self.counted.record_image(facts);
        self.facts.set(facts.clone()).ok();
        // This wakes the tasks that wait until the image is recognized.
        self.outlook.send_modify(|_| {});
    }

    fn record_bytes(&self, count: ByteCount, total: u64) {
        self.counted.record_bytes(count, total);
    }

    fn record_time(&self, stage: Stage, time: Duration) {
        self.counted.record_time(stage, time);
    }

    fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.counted.record_limit(part, time);
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::figures::ServerMetrics;

    const SUCCESS: UploadSuccess =
        UploadSuccess { content: BodyContent::Image, preallocated: false };

    fn job(is_async: bool) -> UploadJob {
        let mode = if is_async { UploadMode::Async } else { UploadMode::Sync };
        let plan = UploadPlan { mode, ..UploadPlan::default() };
        UploadJob::new(plan, CancellationToken::new(), ServerMetrics::default().transfers)
    }

    fn answer(job: &UploadJob) -> Option<Result<(), UploadError>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let answer = async {
            tokio::time::timeout(std::time::Duration::from_millis(10), job.wait_for_answer()).await
        };
        runtime.block_on(answer).ok()
    }

    #[test]
    fn only_an_asynchronous_upload_is_answered_before_its_end() {
        for is_async in [false, true] {
            let job = job(is_async);
            assert_eq!(answer(&job), None);
            job.progress.begin_phase(TransferPhase::Resize);
            assert_eq!(answer(&job), is_async.then_some(Ok(())));
            assert_eq!(job.close_acknowledgement(), is_async, "answered early");
            job.set_result(Ok(SUCCESS));
            assert_eq!(answer(&job), Some(Ok(())));
        }
    }

    #[test]
    fn a_failure_before_the_answer_is_the_answer() {
        let failure = UploadError::new(StatusCode::BAD_REQUEST, "no");
        let job = job(true);
        job.progress.begin_phase(TransferPhase::Resize);
        assert!(!job.close_acknowledgement(), "no answer was sent");
        job.set_result(Err(failure.clone()));
        assert_eq!(answer(&job), Some(Err(failure)));
        assert!(job.is_verified());
    }
}
