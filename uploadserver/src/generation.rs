//! Coordinates the requests that send the parts of one upload, so that only one of them sends at a
//! time.
//!
//! To send, a request needs the turn, which it takes from the previous request. A generation
//! number identifies each turn and each idle period between two turns.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stream::error::{SourceError, SourceErrorKind};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::intake::UploadIntake;

/// Time after which an interrupted upload makes way for a new one.
const ABANDONED: Duration = Duration::from_secs(10);

/// Time that the previous request has to release the upload. That request may be waiting for the
/// disk.
const HAND_OVER: Duration = Duration::from_secs(30);

/// Number of bytes after which an interrupted upload counts as making progress, so that the time
/// limit for resuming it starts again. If it were smaller, a client could keep an upload alive
/// forever by sending tiny pieces.
const PROGRESS_BYTES: u64 = 1 << 20;

/// The state that allows an upload to be resumed.
#[derive(Default)]
pub(crate) struct ResumableState {
    /// The intake, which receives the bytes of the upload. The request that feeds it holds the
    /// lock. It is `None` once all bytes have arrived.
    intake: Arc<AsyncMutex<Option<UploadIntake>>>,
    turn: Mutex<StreamGeneration>,
    /// Notified when a request takes or releases the turn to send.
    changed: Notify,
    /// End offset of the data that is kept from an earlier upload; `None` until it is known, and 0
    /// if nothing is kept.
    pub(crate) kept: watch::Sender<Option<u64>>,
}

/// The turn to send, and the idle periods between turns.
#[derive(Default)]
struct StreamGeneration {
    /// Number of the current turn or idle period. A timer compares it to find out whether its
    /// period is over.
    number: u64,
    /// Cancelled to stop the latest request from feeding the intake.
    replaced: CancellationToken,
    /// Start of the current idle period; `None` while a request has the turn.
    waiting_since: Option<Instant>,
    /// Total duration of the idle periods since the upload last made progress
    /// ([`PROGRESS_BYTES`]).
    waited: Duration,
    /// Number of bytes received when `waited` was last reset.
    counted_from: u64,
    /// The number of bytes received, and the start of the first idle period with that number.
    /// Later idle periods without new bytes do not change it.
    last_byte: Option<(u64, Instant)>,
}

/// A period during which no request is sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdlePeriod {
    number: u64,
    since: Instant,
    waited: Duration,
}

impl IdlePeriod {
    /// Returns the time at which the upload ends if it may wait for at most `limit`.
    pub(crate) fn deadline(self, limit: Duration) -> Instant {
        self.since + limit.saturating_sub(self.waited)
    }
}

impl ResumableState {
    /// Sets the intake, which receives the bytes of the upload.
    pub(crate) async fn set_intake(&self, intake: UploadIntake) {
        *self.intake.lock().await = Some(intake);
    }

    /// Returns the start of the current idle period, if no request is sending.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.turn.lock().waiting_since
    }

    /// Takes the turn from the previous request, which may hang on a dead connection. If the new
    /// request gives up while it waits here, the upload keeps waiting for its client.
    pub(crate) async fn take_turn(
        &self,
    ) -> Option<(OwnedMutexGuard<Option<UploadIntake>>, CancellationToken)> {
        let replaced = {
            let mut turn = self.turn.lock();
            // The token is cancelled before the lock is requested, because the previous request
            // holds the lock while it feeds the intake.
            std::mem::take(&mut turn.replaced).cancel();
            turn.replaced.clone()
        };
        let intake = tokio::time::timeout(HAND_OVER, Arc::clone(&self.intake).lock_owned()).await;
        let intake = intake.ok()?;
        let mut turn = self.turn.lock();
        turn.number += 1;
        if let Some(since) = turn.waiting_since.take() {
            turn.waited += since.elapsed();
        }
        drop(turn);
        self.changed.notify_one();
        Some((intake, replaced))
    }

    /// Releases the turn and begins an idle period. `received` is the number of bytes received so
    /// far.
    pub(crate) fn begin_rest(&self, received: u64) {
        let now = Instant::now();
        let mut turn = self.turn.lock();
        turn.number += 1;
        turn.waiting_since = Some(now);
        if received.saturating_sub(turn.counted_from) >= PROGRESS_BYTES {
            turn.counted_from = received;
            turn.waited = Duration::ZERO;
        }
        // A request that only asks for the state, or sends nothing, does not restart the time
        // after which other uploads may begin.
        if turn.last_byte.is_none_or(|(before, _)| before != received) {
            turn.last_byte = Some((received, now));
        }
        drop(turn);
        self.changed.notify_one();
    }

    /// Returns the current idle period, if no request is sending.
    pub(crate) fn current_rest(&self) -> Option<IdlePeriod> {
        let turn = self.turn.lock();
        turn.waiting_since.map(|since| IdlePeriod {
            number: turn.number,
            since,
            waited: turn.waited,
        })
    }

    /// Waits until [`Self::current_rest`] has changed since the previous call. Only one task may
    /// wait.
    pub(crate) async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// Ends the upload, unless a request has taken the turn since `rest` began. Returns true if it
    /// ended the upload.
    pub(crate) async fn expire_rest(&self, rest: IdlePeriod, limit: Duration) -> bool {
        // If the lock is taken, a request holds the intake and therefore has the turn.
        let Ok(mut intake) = self.intake.try_lock() else {
            return false;
        };
        // A request has taken and released the turn since the timer was set.
        if self.turn.lock().number != rest.number {
            return false;
        }
        let Some(intake) = intake.take() else {
            return false;
        };
        let (received, seconds) = (intake.received_bytes(), limit.as_secs());
        let error = SourceError::new(
            SourceErrorKind::Stalled,
            format!(
                "the upload was interrupted at byte {received} and not resumed for {seconds} s"
            ),
        );
        intake.break_off(error).await;
        true
    }

    /// Ends an upload whose client has not resumed it for too long. Returns true if it ended the
    /// upload.
    pub(crate) async fn try_abandon(&self) -> bool {
        let is_abandoned = |(_, since): (u64, Instant)| since.elapsed() >= ABANDONED;
        match self.current_rest() {
            Some(rest) if self.turn.lock().last_byte.is_some_and(is_abandoned) => {
                self.expire_rest(rest, ABANDONED).await
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::AnnouncedChecksum;
    use crate::intake::{self, ReceivedSource};

    async fn upload() -> (ResumableState, ReceivedSource) {
        let stop = CancellationToken::new();
        let (intake, received) =
            intake::channel(&Arc::default(), &AnnouncedChecksum::None, Arc::default(), stop);
        let resumable = ResumableState::default();
        resumable.set_intake(intake).await;
        (resumable, received)
    }

    const LIMIT: Duration = Duration::from_secs(600);

    fn deadline(resumable: &ResumableState) -> Duration {
        resumable.current_rest().unwrap().deadline(LIMIT).duration_since(Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_last_idle_period_ends_the_upload() {
        let (resumable, _received) = upload().await;
        resumable.begin_rest(0);
        let first = resumable.current_rest().unwrap();
        resumable.begin_rest(0);
        let second = resumable.current_rest().unwrap();
        assert!(!resumable.expire_rest(first, LIMIT).await);
        assert!(resumable.waiting_since().is_some());
        assert!(resumable.expire_rest(second, LIMIT).await);
        assert!(!resumable.expire_rest(second, LIMIT).await, "only once");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_in_progress_does_not_expire() {
        let (resumable, _received) = upload().await;
        resumable.begin_rest(0);
        let rest = resumable.current_rest().unwrap();
        let (turn, _) = resumable.take_turn().await.unwrap();
        assert!(resumable.waiting_since().is_none());
        assert!(!resumable.expire_rest(rest, LIMIT).await, "a request holds the intake");
        drop(turn);
        assert!(!resumable.expire_rest(rest, LIMIT).await, "that idle period is over");
        assert!(!resumable.try_abandon().await, "it has not waited long enough");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_with_little_data_do_not_extend_the_deadline() {
        let (resumable, _received) = upload().await;
        let second = Duration::from_secs(1);
        for (received, left) in [(0, 600), (0, 599), (1, 598), (2, 597), (PROGRESS_BYTES - 1, 596)]
        {
            drop(resumable.take_turn().await);
            resumable.begin_rest(received);
            assert_eq!(deadline(&resumable), left * second, "{received}");
            tokio::time::advance(second).await;
        }
        drop(resumable.take_turn().await);
        resumable.begin_rest(PROGRESS_BYTES);
        assert_eq!(deadline(&resumable), LIMIT, "there is progress");
        tokio::time::advance(second).await;
        drop(resumable.take_turn().await);
        resumable.begin_rest(PROGRESS_BYTES);
        assert_eq!(deadline(&resumable), LIMIT - second);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_without_data_do_not_keep_other_uploads_waiting() {
        let (resumable, _received) = upload().await;
        resumable.begin_rest(5);
        for _ in 0..9 {
            tokio::time::advance(ABANDONED / 9).await;
            assert!(!resumable.try_abandon().await);
            drop(resumable.take_turn().await);
            resumable.begin_rest(5);
        }
        tokio::time::advance(ABANDONED / 9).await;
        assert!(resumable.try_abandon().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_ends_the_previous_one_and_waits_for_it() {
        let (resumable, _received) = upload().await;
        let (turn, replaced) = resumable.take_turn().await.unwrap();
        let mut next = std::pin::pin!(resumable.take_turn());
        let waits = tokio::time::timeout(Duration::from_millis(10), next.as_mut()).await;
        assert!(waits.is_err() && replaced.is_cancelled());
        drop(turn);
        let (intake, _) = next.await.unwrap();
        assert!(intake.is_some());
    }
}
