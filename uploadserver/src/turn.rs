//! Whose turn it is to send, when several requests bring the parts of one upload.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datapath::error::{SourceError, SourceErrorKind};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::intake::Intake;

/// An upload that nobody has continued for so long makes room for a new one.
const ABANDONED: Duration = Duration::from_secs(10);

/// How long the request before may take to let go of the upload. It may be waiting for the disk.
const HAND_OVER: Duration = Duration::from_secs(30);

/// What lets an upload be continued.
#[derive(Default)]
pub(crate) struct Resumable {
    /// Where its bytes go; taken by the request that feeds it, and gone when all have come.
    intake: Arc<AsyncMutex<Option<Intake>>>,
    turn: Mutex<Turn>,
}

/// Whose turn it is to send.
#[derive(Default)]
struct Turn {
    /// Counts turns and rests between them, so that an old timer knows that it is old.
    number: u64,
    /// Ends the feeding by the last request.
    replaced: CancellationToken,
    /// Since when nobody sends.
    waiting_since: Option<Instant>,
}

impl Resumable {
    /// Where the bytes go.
    pub(crate) async fn set_intake(&self, intake: Intake) {
        *self.intake.lock().await = Some(intake);
    }

    /// True if no request is sending.
    pub(crate) fn is_waiting(&self) -> bool {
        self.turn().waiting_since.is_some()
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over from the request before, which may hang on a dead connection. A request that gives up while it waits
    /// here leaves an upload that waits for its client.
    pub(crate) async fn take_turn(&self) -> Option<(OwnedMutexGuard<Option<Intake>>, CancellationToken)> {
        let replaced = {
            let mut turn = self.turn();
            std::mem::take(&mut turn.replaced).cancel();
            turn.replaced.clone()
        };
        let intake = tokio::time::timeout(HAND_OVER, Arc::clone(&self.intake).lock_owned()).await;
        let intake = intake.ok()?;
        let mut turn = self.turn();
        turn.number += 1;
        turn.waiting_since = None;
        Some((intake, replaced))
    }

    /// Nobody sends from now on. Returns the number of this rest.
    pub(crate) fn rest(&self) -> u64 {
        let mut turn = self.turn();
        turn.number += 1;
        turn.waiting_since = Some(Instant::now());
        turn.number
    }

    /// Ends the upload, unless somebody has sent since rest `number`. True if it did.
    pub(crate) async fn expire(&self, number: u64, waited: Duration) -> bool {
        // Whoever holds the intake has a turn of its own.
        let Ok(mut intake) = self.intake.try_lock() else {
            return false;
        };
        if self.turn().number != number {
            return false;
        }
        let Some(intake) = intake.take() else {
            return false;
        };
        let (received, seconds) = (intake.received(), waited.as_secs());
        let error = SourceError::new(
            SourceErrorKind::Stalled,
            format!("the upload was interrupted at byte {received} and not continued for {seconds} s"),
        );
        intake.break_off(error).await;
        true
    }

    /// Ends an upload that waits for its client in vain. True if it did.
    pub(crate) async fn abandon(&self) -> bool {
        let number = {
            let turn = self.turn();
            match turn.waiting_since {
                Some(since) if since.elapsed() >= ABANDONED => turn.number,
                _ => return false,
            }
        };
        self.expire(number, ABANDONED).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Promise;
    use crate::intake::{self, Received};

    async fn upload() -> (Resumable, Received) {
        let stop = CancellationToken::new();
        let (intake, received) = intake::channel(Some(10), &Promise::None, Arc::default(), stop);
        let resumable = Resumable::default();
        resumable.set_intake(intake).await;
        (resumable, received)
    }

    fn run(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn only_the_last_rest_ends_the_upload() {
        run(async {
            let (resumable, _received) = upload().await;
            let (first, second) = (resumable.rest(), resumable.rest());
            assert!(!resumable.expire(first, ABANDONED).await);
            assert!(resumable.is_waiting());
            assert!(resumable.expire(second, ABANDONED).await);
            assert!(!resumable.expire(second, ABANDONED).await, "only once");
        });
    }

    #[test]
    fn whoever_sends_is_not_ended() {
        run(async {
            let (resumable, _received) = upload().await;
            let number = resumable.rest();
            let (turn, _) = resumable.take_turn().await.unwrap();
            assert!(!resumable.is_waiting());
            assert!(!resumable.expire(number, ABANDONED).await, "the intake is taken");
            drop(turn);
            assert!(!resumable.expire(number, ABANDONED).await, "the timer is old");
            assert!(!resumable.abandon().await, "nobody has waited yet");
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
