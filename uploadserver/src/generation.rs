//! The turn to send, when several requests bring the parts of one upload.

use std::sync::Arc;
use std::time::Duration;

use datapath::error::{SourceError, SourceErrorKind};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::intake::UploadIntake;

/// Time after which an upload that was not continued makes room for a new one.
const ABANDONED: Duration = Duration::from_secs(10);

/// Time for the request before to let go of the upload. It may be waiting for the disk.
const HAND_OVER: Duration = Duration::from_secs(30);

/// Bytes after which an upload that was interrupted counts as going on: the time to continue it begins anew. Less could be sent
/// piece by piece, for ever.
const PROGRESS_BYTES: u64 = 1 << 20;

/// The state by which an upload can be continued.
#[derive(Default)]
pub(crate) struct ResumableState {
    /// The intake of its bytes; taken by the request that feeds it, and gone when all have come.
    intake: Arc<AsyncMutex<Option<UploadIntake>>>,
    turn: Mutex<StreamGeneration>,
    /// The turn is another one's, or free.
    changed: Notify,
    /// The end of what is kept of an earlier upload, once that is known; 0 if nothing is.
    pub(crate) kept: watch::Sender<Option<u64>>,
}

/// The turn to send.
#[derive(Default)]
struct StreamGeneration {
    /// Counts turns and rests between them, so that an old timer knows that it is old.
    number: u64,
    /// Ends the feeding by the last request.
    replaced: CancellationToken,
    /// Time since which the turn is free.
    waiting_since: Option<Instant>,
    /// Time for which that was so before, without [`PROGRESS_BYTES`] in between.
    waited: Duration,
    /// Bytes that had come when this began to be counted.
    counted_from: u64,
    /// Bytes that had come at the beginning of the last rest, and when that was.
    last_byte: Option<(u64, Instant)>,
}

/// A time without a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdlePeriod {
    number: u64,
    since: Instant,
    waited: Duration,
}

impl IdlePeriod {
    /// The time at which an upload that may wait for `limit` ends.
    pub(crate) fn deadline(self, limit: Duration) -> Instant {
        self.since + limit.saturating_sub(self.waited)
    }
}

impl ResumableState {
    /// Hands over the intake of the bytes.
    pub(crate) async fn set_intake(&self, intake: UploadIntake) {
        *self.intake.lock().await = Some(intake);
    }

    /// True if no request is sending.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_since().is_some()
    }

    /// Time since which no request is sending.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.turn.lock().waiting_since
    }

    /// Takes over from the request before, which may hang on a dead connection. A request that gives up while it waits
    /// here leaves an upload that waits for its client.
    pub(crate) async fn take_turn(
        &self,
    ) -> Option<(OwnedMutexGuard<Option<UploadIntake>>, CancellationToken)> {
        let replaced = {
            let mut turn = self.turn.lock();
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

    /// Frees the turn; `received` bytes have come.
    pub(crate) fn begin_rest(&self, received: u64) {
        let now = Instant::now();
        let mut turn = self.turn.lock();
        turn.number += 1;
        turn.waiting_since = Some(now);
        if received.saturating_sub(turn.counted_from) >= PROGRESS_BYTES {
            turn.counted_from = received;
            turn.waited = Duration::ZERO;
        }
        // A request that only asks, or sends nothing, does not keep others waiting.
        if turn.last_byte.is_none_or(|(before, _)| before != received) {
            turn.last_byte = Some((received, now));
        }
        drop(turn);
        self.changed.notify_one();
    }

    /// The time without a client that has not ended.
    pub(crate) fn current_rest(&self) -> Option<IdlePeriod> {
        let turn = self.turn.lock();
        turn.waiting_since.map(|since| IdlePeriod { number: turn.number, since, waited: turn.waited })
    }

    /// Waits until [`Self::current_rest`] has changed since this was called last. For one task.
    pub(crate) async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// Ends the upload, unless a request has sent since `rest` began. True if it did.
    pub(crate) async fn expire_rest(&self, rest: IdlePeriod, limit: Duration) -> bool {
        // The request that holds the intake has a turn of its own.
        let Ok(mut intake) = self.intake.try_lock() else {
            return false;
        };
        if self.turn.lock().number != rest.number {
            return false;
        }
        let Some(intake) = intake.take() else {
            return false;
        };
        let (received, seconds) = (intake.received_bytes(), limit.as_secs());
        let error = SourceError::new(
            SourceErrorKind::Stalled,
            format!("the upload was interrupted at byte {received} and not continued for {seconds} s"),
        );
        intake.break_off(error).await;
        true
    }

    /// Ends an upload that waits for its client in vain. True if it did.
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

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(test);
    }

    const LIMIT: Duration = Duration::from_secs(600);

    fn deadline(resumable: &ResumableState) -> Duration {
        resumable.current_rest().unwrap().deadline(LIMIT).duration_since(Instant::now())
    }

    #[test]
    fn only_the_last_rest_ends_the_upload() {
        run(async {
            let (resumable, _received) = upload().await;
            resumable.begin_rest(0);
            let first = resumable.current_rest().unwrap();
            resumable.begin_rest(0);
            let second = resumable.current_rest().unwrap();
            assert!(!resumable.expire_rest(first, LIMIT).await);
            assert!(resumable.is_waiting());
            assert!(resumable.expire_rest(second, LIMIT).await);
            assert!(!resumable.expire_rest(second, LIMIT).await, "only once");
        });
    }

    #[test]
    fn whoever_sends_is_not_ended() {
        run(async {
            let (resumable, _received) = upload().await;
            resumable.begin_rest(0);
            let rest = resumable.current_rest().unwrap();
            let (turn, _) = resumable.take_turn().await.unwrap();
            assert!(!resumable.is_waiting());
            assert!(!resumable.expire_rest(rest, LIMIT).await, "the intake is taken");
            drop(turn);
            assert!(!resumable.expire_rest(rest, LIMIT).await, "the rest is old");
            assert!(!resumable.try_abandon().await, "nobody has waited yet");
        });
    }

    #[test]
    fn requests_that_bring_little_do_not_make_time() {
        run(async {
            tokio::time::pause();
            let (resumable, _received) = upload().await;
            let second = Duration::from_secs(1);
            for (received, left) in [(0, 600), (0, 599), (1, 598), (2, 597), (PROGRESS_BYTES - 1, 596)] {
                drop(resumable.take_turn().await);
                resumable.begin_rest(received);
                assert_eq!(deadline(&resumable), left * second, "{received}");
                tokio::time::advance(second).await;
            }
            drop(resumable.take_turn().await);
            resumable.begin_rest(PROGRESS_BYTES);
            assert_eq!(deadline(&resumable), LIMIT, "it goes on");
            tokio::time::advance(second).await;
            drop(resumable.take_turn().await);
            resumable.begin_rest(PROGRESS_BYTES);
            assert_eq!(deadline(&resumable), LIMIT - second);
        });
    }

    #[test]
    fn whoever_only_asks_does_not_keep_others_waiting() {
        run(async {
            tokio::time::pause();
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
        });
    }

    #[test]
    fn a_turn_ends_the_one_before_and_waits_for_it() {
        run(async {
            let (resumable, _received) = upload().await;
            let (turn, replaced) = resumable.take_turn().await.unwrap();
            let mut next = std::pin::pin!(resumable.take_turn());
            let waits = tokio::time::timeout(Duration::from_millis(10), next.as_mut()).await;
            assert!(waits.is_err() && replaced.is_cancelled());
            drop(turn);
            let (intake, _) = next.await.unwrap();
            assert!(intake.is_some());
        });
    }
}
