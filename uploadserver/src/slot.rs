//! One upload at a time, and one success in all.
//!
//! It is free before the answer goes out, because the client may come again at once. The server ends after a success,
//! and when a failure can no longer be answered.

use std::sync::Arc;

use tokio::sync::watch;

use crate::job::{Job, Success};

/// The state of the server.
#[derive(Clone)]
pub(crate) enum State {
    /// Waiting for an upload.
    Idle,
    /// Receiving or writing one.
    Busy(Arc<Job>),
    /// There was one.
    Done(Success),
    /// An upload failed after its client was told that all is well.
    Broken(String),
}

/// A place that is not free, so that no upload may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occupied {
    /// Another upload is in progress.
    Busy,
    /// There was one.
    Done,
}

/// The place for an upload.
#[derive(Clone)]
pub(crate) struct Slot {
    state: Arc<watch::Sender<State>>,
    /// End after the first success.
    once: bool,
}

impl Slot {
    pub(crate) fn new(once: bool) -> Self {
        Self {
            state: Arc::new(watch::Sender::new(State::Idle)),
            once,
        }
    }

    /// The state of the server now.
    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// The upload that is in progress.
    pub(crate) fn job(&self) -> Option<Arc<Job>> {
        match self.state() {
            State::Busy(job) => Some(job),
            State::Idle | State::Done(_) | State::Broken(_) => None,
        }
    }

    /// The place for `job`, if it is free.
    pub(crate) fn claim(&self, job: &Arc<Job>) -> Result<(), Occupied> {
        let mut result = Ok(());
        self.state.send_if_modified(|state| {
            result = match state {
                State::Idle => Ok(()),
                State::Busy(_) => Err(Occupied::Busy),
                State::Done(_) | State::Broken(_) => Err(Occupied::Done),
            };
            if result.is_ok() {
                *state = State::Busy(Arc::clone(job));
            }
            result.is_ok()
        });
        result
    }

    /// The upload has become a disk.
    pub(crate) fn succeed(&self, success: Success) {
        self.state.send_replace(if self.once {
            State::Done(success)
        } else {
            State::Idle
        });
    }

    /// The upload has failed, and its client knows: the next one may begin.
    pub(crate) fn release(&self) {
        self.state.send_replace(State::Idle);
    }

    /// The upload has failed, and its client does not know.
    pub(crate) fn break_down(&self, reason: String) {
        self.state.send_replace(State::Broken(reason));
    }

    /// Waits for a state that is `wanted`, and returns it.
    pub(crate) async fn wait_for(&self, wanted: impl Fn(&State) -> bool) -> State {
        let mut states = self.state.subscribe();
        let state = states.wait_for(|state| wanted(state)).await;
        // The sender lives in `self`.
        state.map_or(State::Idle, |state| state.clone())
    }
}

impl State {
    /// True if no upload is in progress.
    pub(crate) fn is_at_rest(&self) -> bool {
        !matches!(self, Self::Busy(_))
    }

    /// True if the server has nothing left to do.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Broken(_))
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::checksum::Promise;
    use crate::figures::Figures;
    use crate::job::{Content, Plan};

    const SUCCESS: Success = Success {
        content: Content::Image,
        preallocated: true,
    };

    fn job() -> Arc<Job> {
        let plan = Plan {
            content: Content::Image,
            is_async: false,
            total: None,
            promise: Promise::None,
            is_resumable: false,
            marks: Vec::new(),
        };
        Arc::new(Job::new(
            plan,
            CancellationToken::new(),
            Figures::default().transfers,
        ))
    }

    #[test]
    fn one_at_a_time_and_one_in_all() {
        let slot = Slot::new(true);
        assert_eq!(slot.claim(&job()), Ok(()));
        assert_eq!(slot.claim(&job()), Err(Occupied::Busy));
        slot.release();
        assert_eq!(slot.claim(&job()), Ok(()));
        slot.succeed(SUCCESS);
        assert_eq!(slot.claim(&job()), Err(Occupied::Done));
        assert!(slot.state().is_final());
    }

    #[test]
    fn a_server_for_many_is_free_after_each() {
        let slot = Slot::new(false);
        for _ in 0..3 {
            assert_eq!(slot.claim(&job()), Ok(()));
            slot.succeed(SUCCESS);
        }
        slot.break_down("x".to_owned());
        assert_eq!(slot.claim(&job()), Err(Occupied::Done));
    }
}
