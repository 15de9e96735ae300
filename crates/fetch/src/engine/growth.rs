//! Decides over how many connections a body is read, if nobody fixed their number.
//!
//! The number climbs a ladder: 1, after half a second 2, then 4, 8, 16. A step lasts half a second.
//! It is kept, and the next one begins, as soon as 15 % more bytes have arrived than the number
//! before brought in such a time. Otherwise, or if a connection is refused, the number goes back
//! and rests: 5 s, and each further time twice as long. The longer the rest, the longer the next
//! step: connections to a distant server need time to begin.

use std::sync::Arc;
use std::time::Duration;

use stream::error::SourceErrorKind::{self, Connect, Io, Stalled, Status};
use stream::observe::Observer;
use tokio::time::Instant;

/// Most connections. With at most eight, 128 MiB took 20 s instead of 15 from a server that is
/// 100 ms away, with 0.1 % of the packets lost.
const MAX_COUNT: usize = 16;

/// Least number of bytes of a step, in percent of what the number before brought.
const WORTHWHILE_PERCENT: u64 = 115;

/// First rest of the ladder. Rates vary: with 0.1 % of the packets of a distant server lost, a
/// connection may send at twice or half its usual rate for seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Part of the next pause that a step lasts. With a first step of 1 s instead of half a second,
/// 128 MiB took 2.7 s instead of 1.9 from a server that sends 20 MB/s over each connection.
const STEP_SHARE: u32 = 10;

/// With fewer bytes left, no connection is added: the transfer ends soon.
const MIN_LEFT_BYTES: u64 = 16 << 20;

/// Bytes per second from which on no connection is added. On loopback, a second one brought
/// 584 MB/s instead of 786.
const FAST_RATE: u64 = 500_000_000;

/// Totals of what a body has received up to a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedTotals {
    pub(super) now: Instant,
    /// Bytes that arrived on all connections.
    pub(super) bytes: u64,
    /// Time that bytes had to wait for the data path.
    pub(super) blocked: Duration,
    /// Bytes that are still to be received.
    pub(super) left: u64,
}

/// The number of connections of a body.
#[derive(Clone)]
pub(crate) struct ConnectionGrowth {
    observer: Arc<dyn Observer>,
    /// The number of connections that are to be open.
    pub(super) count: usize,
    /// The number before a step that has yet to show that it is worthwhile.
    before: Option<usize>,
    /// Bytes per second of this number, or of the one before the step.
    rate: u64,
    /// The beginning of the measurement, or of the step.
    since: Option<ReceivedTotals>,
    paused_until: Option<Instant>,
    next_pause: Duration,
}

impl ConnectionGrowth {
    /// Begins with one connection. `observer` learns of every change.
    pub(super) fn new(observer: &Arc<dyn Observer>) -> Self {
        observer.record_connections(1, "one is enough so far");
        Self {
            observer: Arc::clone(observer),
            count: 1,
            before: None,
            rate: 0,
            since: None,
            paused_until: None,
            next_pause: FIRST_PAUSE,
        }
    }

    /// Returns a copy for a new beginning elsewhere in the object. Connections that still read the
    /// part before do not change the copy.
    pub(super) fn begin_again(&self) -> Self {
        Self { since: None, ..self.clone() }
    }

    /// Returns how many bytes arrive in `time`.
    pub(super) fn bytes_in(&self, time: Duration) -> u64 {
        self.rate.saturating_mul(millis(time)) / 1000
    }

    /// Returns how long a step lasts.
    pub(super) fn step_time(&self) -> Duration {
        self.next_pause / STEP_SHARE
    }

    /// Takes the totals up to now, and changes the number if they show a reason.
    pub(super) fn record_totals(&mut self, totals: &ReceivedTotals) {
        let since = *self.since.get_or_insert(*totals);
        let (received, time) = (totals.bytes.saturating_sub(since.bytes), totals.now - since.now);
        let usual = self.bytes_in(self.step_time());
        let is_worthwhile =
            received.saturating_mul(100) >= usual.saturating_mul(WORTHWHILE_PERCENT);
        if time < self.step_time() && !(self.before.is_some() && is_worthwhile) {
            return;
        }
        let rate = received.saturating_mul(1000) / millis(time).max(1);
        if let Some(before) = self.before.take().filter(|_| !is_worthwhile) {
            let [was, is] = [self.rate, rate].map(megabytes);
            let reason = format!("{} brought {is}/s instead of {was}/s", self.count);
            return self.step_back(before, &reason, totals.now);
        }
        (self.rate, self.since) = (rate, Some(*totals));
        let is_paused = self.paused_until.is_some_and(|until| totals.now < until);
        // Neither a slow data path nor silence calls for more connections.
        let is_blocked = totals.blocked.saturating_sub(since.blocked) * 10 > time;
        if self.count < MAX_COUNT
            && (1..FAST_RATE).contains(&rate)
            && !is_paused
            && !is_blocked
            && totals.left >= MIN_LEFT_BYTES.max(self.bytes_in(self.step_time()))
        {
            self.before = Some(self.count);
            let reason = format!("trying whether they bring more than {}/s", megabytes(rate));
            self.change_count((self.count * 2).min(MAX_COUNT), &reason);
        }
    }

    /// Handles a connection that failed before it brought a byte. `working` others are in use.
    pub(super) fn record_failure(&mut self, kind: SourceErrorKind, working: usize, now: Instant) {
        let (count, reason) = match kind {
            Status(code) => (working, format!("the server answered another one with {code}")),
            Connect | Io | Stalled => (working, "another one failed".to_owned()),
            _ => {
                self.next_pause = MAX_PAUSE;
                (1, "the server does not serve ranges reliably".to_owned())
            }
        };
        self.step_back(count.clamp(1, self.count), &reason, now);
    }

    /// Ends a step whose connections have brought no byte although theirs are needed now.
    pub(super) fn abandon_step(&mut self, now: Instant) {
        if let Some(before) = self.before {
            self.step_back(before, "further ones bring nothing", now);
        }
    }

    fn step_back(&mut self, count: usize, reason: &str, now: Instant) {
        // Several connections may fail at the same moment.
        if self.paused_until.is_none_or(|until| until <= now) {
            self.paused_until = Some(now + self.next_pause);
            self.next_pause = (self.next_pause * 2).min(MAX_PAUSE);
        }
        (self.before, self.since) = (None, None);
        if count < self.count {
            self.change_count(count, reason);
        }
    }

    fn change_count(&mut self, count: usize, reason: &str) {
        tracing::info!("reading over {count} connections: {reason}");
        self.observer.record_connections(count, reason);
        self.count = count;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Formats a number of bytes in megabytes.
fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use stream::observe::NoObserver;

    use super::*;

    /// Time between two looks, and the bytes that arrive in it at 20 MB/s.
    const TICK: Duration = Duration::from_millis(100);
    const ONE: u64 = 2_000_000;

    /// A transfer, one tick after the other.
    struct Scene {
        growth: ConnectionGrowth,
        totals: ReceivedTotals,
        /// Time of each tick in which bytes wait for the data path.
        blocked: Duration,
    }

    impl Scene {
        fn new() -> Self {
            let (now, blocked) = (Instant::now(), Duration::ZERO);
            let totals = ReceivedTotals { now, bytes: 0, blocked, left: 1 << 40 };
            let mut growth = ConnectionGrowth::new(&NoObserver::new_shared());
            growth.record_totals(&totals);
            Self { growth, totals, blocked }
        }

        /// Passes ticks in which `received` bytes arrive over a number of connections. Returns the
        /// number that is wanted then.
        fn pass(&mut self, ticks: usize, received: impl Fn(usize) -> u64) -> usize {
            for _ in 0..ticks {
                self.totals.now += TICK;
                self.totals.bytes += received(self.growth.count);
                self.totals.blocked += self.blocked;
                self.growth.record_totals(&self.totals);
            }
            self.growth.count
        }

        fn refuse(&mut self, working: usize) -> usize {
            let refused = Status(503);
            self.growth.record_failure(refused, working, self.totals.now);
            self.growth.count
        }
    }

    #[test]
    fn connections_double_while_the_rate_grows() {
        let mut scene = Scene::new();
        let each = |count: usize| ONE * count as u64;
        let counts = [4, 1, 2, 1, 2, 1, 2, 1, 99].map(|ticks| scene.pass(ticks, each));
        assert_eq!(counts, [1, 2, 2, 4, 4, 8, 8, 16, 16]);
        // A link that three connections fill keeps four.
        let mut scene = Scene::new();
        assert_eq!(scene.pass(50, |count| ONE * count.min(3) as u64), 4);
    }

    #[test]
    fn connections_that_bring_nothing_are_given_back_and_not_tried_again_soon() {
        let mut scene = Scene::new();
        assert_eq!(scene.pass(5, |_| ONE), 2);
        let mut elsewhere = scene.growth.begin_again();
        let counts = [4, 1, 50, 1, 9, 1].map(|ticks| scene.pass(ticks, |_| ONE + ONE / 10));
        assert_eq!(counts, [2, 1, 1, 2, 2, 1], "after a rest, once more, and longer");
        assert_eq!(scene.pass(100, |_| ONE), 1, "the next rest is twice as long");
        assert_eq!(elsewhere.count, 2);
        elsewhere.abandon_step(scene.totals.now);
        assert_eq!(elsewhere.count, 1);
    }

    #[test]
    fn a_slow_data_path_a_short_rest_and_silence_need_no_connections() {
        for (blocked, left, received) in [
            (TICK / 5, 1 << 40, ONE),
            (Duration::ZERO, 15 << 20, ONE),
            (Duration::ZERO, 100 << 20, 11 << 20),
            (Duration::ZERO, 1 << 40, 50_000_000),
            (Duration::ZERO, 1 << 40, 0),
        ] {
            let mut scene = Scene::new();
            (scene.blocked, scene.totals.left) = (blocked, left);
            assert_eq!(scene.pass(100, |_| received), 1, "{left} {received}");
        }
    }

    #[test]
    fn failures_leave_the_connections_that_work() {
        for (kind, count) in [
            (Status(429), 3),
            (Connect, 3),
            (SourceErrorKind::NotResumable, 1),
            (SourceErrorKind::Changed, 1),
        ] {
            let mut scene = Scene::new();
            assert_eq!(scene.pass(8, |count| ONE * count as u64), 4);
            scene.growth.record_failure(kind, 3, scene.totals.now);
            assert_eq!(scene.growth.count, count, "{kind:?}");
            assert_eq!(scene.pass(49, |_| ONE), count, "{kind:?}");
        }
        let mut scene = Scene::new();
        assert_eq!(([3, 5, 0].map(|working| scene.refuse(working))), [1; 3]);
    }

    /// Each server has: the bytes per second of a connection and of all together; the time until
    /// new connections bring bytes in ticks; by how many percent rates vary from tick to tick; the
    /// most connections that are not refused; the least and most connections after half a minute;
    /// the least share, in percent, of what the best number of connections brings.
    #[test]
    fn any_server_is_read_nearly_as_fast_as_it_can_be() {
        for (name, one, all, delay, jitter, allows, [least, most], least_share) in [
            ("near", 800_000_000, 800_000_000, 0, 0, 100, [1, 1], 99),
            ("capped", 50_000_000, 1 << 40, 0, 0, 100, [16, 16], 90),
            ("one link", 50_000_000, 50_000_000, 0, 0, 100, [1, 2], 99),
            ("distant", 10_000_000, 100_000_000, 3, 0, 100, [8, 16], 85),
            ("far", 10_000_000, 1 << 40, 9, 0, 100, [4, 16], 30),
            ("lossy", 10_000_000, 1 << 40, 3, 40, 100, [8, 16], 40),
            ("refusing", 50_000_000, 1 << 40, 0, 0, 4, [4, 4], 80),
        ] {
            // The bytes of one tick over `count` connections.
            let send = |count: usize, random: &mut fastrand::Rng| {
                let rate = (one * count as u64).min(all);
                rate * (100 - random.u64(0..=jitter)) / 100 / 10
            };
            let (mut scene, mut random) = (Scene::new(), fastrand::Rng::with_seed(1));
            // The numbers of connections in the last ticks.
            let mut counts = vec![1; delay + 1];
            let (mut received, mut possible) = (0, 0);
            for _ in 0..300 {
                if scene.growth.count > allows {
                    scene.refuse(allows);
                }
                counts.rotate_left(1);
                counts[delay] = scene.growth.count;
                let sent = send(counts.iter().copied().min().unwrap_or(1), &mut random);
                received += sent;
                possible += send(allows.min(MAX_COUNT), &mut random);
                scene.pass(1, |_| sent);
            }
            let count = scene.growth.count;
            assert!((least..=most).contains(&count), "{name}: {count} connections");
            let share = received * 100 / possible;
            assert!(share >= least_share, "{name}: {share} % of the rate");
        }
    }
}
