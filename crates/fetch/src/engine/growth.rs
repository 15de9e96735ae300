//! Decides over how many connections a body is read, if nobody fixed their number.
//!
//! A body begins with one connection. Each trial doubles their number, while bytes arrive more
//! slowly than the data path takes them. The number stays if the rate has grown, and goes back if
//! it has not.

use std::time::Duration;

use stream::error::SourceErrorKind;
use tokio::time::Instant;

/// Most connections to a server that nobody asked for more. Browsers open six.
const MAX_GROWN: usize = 8;

/// Most connections where twice as many bring nearly twice the rate: the server or the path limits
/// each of them.
const MAX_SCALED: usize = 16;

/// Least part, in percent, of a rate in proportion to the connections that counts as such.
const SCALED_PERCENT: u64 = 75;

/// Time between two measurements.
pub(super) const WINDOW: Duration = Duration::from_millis(100);

/// Least and most windows over which a rate is measured.
const MEASURED_WINDOWS: [u128; 2] = [2, 30];

/// Time over which a rate is measured, as a multiple of the time until a request brings its first
/// byte. Over one round trip, the rate of a distant server says little.
const MEASURED_LATENCIES: u32 = 5;

/// Windows of a trial in which connections wait for memory before it is judged nevertheless.
const STARVED_WINDOWS: u32 = 10;

/// Least rate, in percent of the rate before, at which more connections are kept.
const WORTHWHILE_PERCENT: u64 = 115;

/// With fewer bytes left, no connection is added: the transfer ends soon.
const MIN_LEFT_BYTES: u64 = 16 << 20;

/// With less time left, no connection is added, for the same reason. At least two measurements.
const MIN_LEFT: Duration = Duration::from_secs(1);

/// Bytes per second from which on no connection is added. On loopback, a second one brought
/// 584 MB/s instead of 786.
const FAST_RATE: u64 = 500_000_000;

/// Longest wait for the first bytes of a new connection. A server that serves one connection after
/// the other does not send them at all.
const START_LIMIT: Duration = Duration::from_secs(3);

/// First pause after connections that brought nothing or were refused. Each further pause is
/// twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// The same for a distant server, whose rates vary: with 0.1 % of the packets lost, a connection
/// may send at twice or half its usual rate for seconds.
const FIRST_DISTANT_PAUSE: Duration = Duration::from_secs(5);

/// Time until the first byte of a request from which on a server is distant.
pub(super) const DISTANT_LATENCY: Duration = Duration::from_millis(20);

/// First pause after a connection that broke before its first byte, or was too slow to bring it.
/// Either may be chance.
const FIRST_BROKEN_PAUSE: Duration = Duration::from_secs(1);

/// Time that the first bytes of a new connection usually need at most.
const USUAL_START: Duration = Duration::from_millis(500);

/// Time that they get once they needed longer.
const LONG_START: Duration = Duration::from_secs(2);

/// Refusals of connections that had worked before that do not lead to fewer: a server may count a
/// request for a little longer than it takes.
const TOLERATED_REFUSALS: u32 = 8;

/// Windows in a row in which the data path is slower than half of the connections would be.
const IDLE_WINDOWS: u32 = 10;

/// Measurements since the last window.
#[derive(Debug, Clone)]
pub(super) struct RateWindow {
    /// The end of the window.
    pub(super) now: Instant,
    /// Length of the window.
    pub(super) elapsed: Duration,
    /// Bytes that arrived on all connections.
    pub(super) received: u64,
    /// Time that bytes had to wait for the data path.
    pub(super) blocked: Duration,
    /// True if a connection had to wait until memory was free.
    pub(super) is_starved: bool,
    /// Number of requests so far that have brought a byte.
    pub(super) started: usize,
    /// Time until the last request brought its first byte.
    pub(super) latency: Duration,
    /// Bytes that are still to be received.
    pub(super) left: u64,
}

impl RateWindow {
    fn is_distant(&self) -> bool {
        self.latency >= DISTANT_LATENCY
    }

    /// Returns over how many windows a rate is measured.
    fn needed(&self) -> u32 {
        let [least, most] = MEASURED_WINDOWS;
        let windows = (self.latency * MEASURED_LATENCIES).as_millis() / WINDOW.as_millis();
        u32::try_from(windows.clamp(least, most)).unwrap_or(u32::MAX)
    }
}

/// A number of bytes, and the time in which they arrived.
#[derive(Debug, Clone, Copy, Default)]
struct MeasuredBytes {
    bytes: u64,
    time: Duration,
    windows: u32,
}

impl MeasuredBytes {
    fn add(&mut self, window: &RateWindow) {
        self.bytes += window.received;
        self.time += window.elapsed;
        self.windows += 1;
    }

    /// Bytes per second.
    fn rate(&self) -> u64 {
        let rate = u128::from(self.bytes) * 1000 / self.time.as_millis().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// More connections, which have to show that they bring something.
#[derive(Debug)]
struct GrowthTrial {
    /// The number of connections before.
    before: usize,
    rate_before: u64,
    /// Number of requests that had brought a byte before.
    started_before: usize,
    began: Instant,
    /// When the rate is measured from. Set when all new connections have brought a byte.
    settled_at: Option<Instant>,
    measured: MeasuredBytes,
    is_starved: bool,
}

/// The number of connections of a body.
#[derive(Debug)]
pub(crate) struct ConnectionGrowth {
    count: usize,
    /// The limit of the number.
    most: usize,
    /// Why there are so many.
    reason: String,
    /// The last windows without a trial in which the network was the limit.
    steady: MeasuredBytes,
    trial: Option<GrowthTrial>,
    paused_until: Option<Instant>,
    pauses: u32,
    idle_windows: u32,
    /// Number of connections that have worked together.
    proven: usize,
    tolerated: u32,
    /// Time that a new connection has to bring its first bytes.
    start: Duration,
    is_given_up: bool,
}

impl Default for ConnectionGrowth {
    fn default() -> Self {
        Self {
            count: 1,
            most: MAX_GROWN,
            reason: "one is enough so far".to_owned(),
            steady: MeasuredBytes::default(),
            trial: None,
            paused_until: None,
            pauses: 0,
            idle_windows: 0,
            proven: 1,
            tolerated: 0,
            start: USUAL_START,
            is_given_up: false,
        }
    }
}

impl ConnectionGrowth {
    /// Prepares for a new beginning elsewhere in the object. A trial is over without a result.
    pub(super) fn begin_again(&mut self) {
        let count = self.trial.as_ref().map_or(self.count, |trial| trial.before);
        let reason = std::mem::take(&mut self.reason);
        self.change_count(count, reason);
    }

    /// Returns how many connections are to be open.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Explains the number.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the rate in bytes per second that the current number of connections has shown.
    pub(super) fn known_rate(&self) -> u64 {
        self.trial.as_ref().map_or_else(|| self.steady.rate(), |trial| trial.rate_before)
    }

    /// Returns how many bytes the first connection still reads while new ones begin.
    pub(super) fn start_bytes(&self) -> u64 {
        let millis = u64::try_from(self.start.as_millis()).unwrap_or(u64::MAX);
        self.known_rate().saturating_mul(millis) / 1000
    }

    /// Takes the measurements of one window, and changes the number if they show a reason.
    pub(super) fn record_window(&mut self, window: &RateWindow) {
        self.idle_windows =
            if window.blocked * 2 > window.elapsed { self.idle_windows + 1 } else { 0 };
        if self.count > 1 && self.idle_windows >= IDLE_WINDOWS {
            self.idle_windows = 0;
            self.change_count(self.count / 2, "the data path is slower than they are".to_owned());
            return;
        }
        match self.trial.take() {
            Some(trial) => self.continue_trial(trial, window),
            None => self.consider_trial(window),
        }
    }

    /// Handles a connection that failed before it brought a byte, or the number that is left to
    /// the transfer if a range was answered wrongly. `working` others are in use.
    pub(super) fn record_failure(&mut self, kind: SourceErrorKind, working: usize, now: Instant) {
        use SourceErrorKind::{Connect, Io, Stalled, Status};
        let is_replacement = matches!(kind, Status(_)) && working < self.proven;
        if is_replacement && self.tolerated < TOLERATED_REFUSALS {
            self.tolerated += 1;
            return;
        }
        let before = self.trial.as_ref().map_or(working, |trial| trial.before);
        let (count, reason) = match kind {
            Status(code) => (working, format!("the server answered another one with {code}")),
            Connect | Io | Stalled => (working.min(before), "another one failed".to_owned()),
            _ => {
                self.is_given_up = true;
                (1, "the server does not serve ranges reliably".to_owned())
            }
        };
        self.pause(now, if let Status(_) = kind { FIRST_PAUSE } else { FIRST_BROKEN_PAUSE });
        if count < self.count {
            self.change_count(count.max(1), reason);
            self.proven = self.proven.min(self.count);
        }
    }

    /// Ends a trial whose connections have brought no byte although theirs are needed now.
    pub(super) fn abandon_trial(&mut self, now: Instant) {
        if let Some(trial) = &self.trial {
            let reason = "further ones bring nothing".to_owned();
            let before = trial.before;
            let is_first = std::mem::replace(&mut self.start, LONG_START) == USUAL_START;
            self.pause(now, if is_first { FIRST_BROKEN_PAUSE } else { FIRST_PAUSE });
            self.change_count(before, reason);
        }
    }

    fn pause(&mut self, now: Instant, first: Duration) {
        // Several connections may fail at the same moment.
        if self.paused_until.is_none_or(|until| until <= now) {
            self.paused_until = Some(now + first * (1 << self.pauses.min(10)));
            self.pauses += 1;
        }
    }

    fn change_count(&mut self, count: usize, reason: String) {
        self.trial = None;
        self.steady = MeasuredBytes::default();
        self.count = count;
        self.reason = reason;
    }

    fn consider_trial(&mut self, window: &RateWindow) {
        if window.received == 0 || window.blocked * 10 > window.elapsed {
            self.steady = MeasuredBytes::default();
            return;
        }
        if self.steady.windows >= window.needed() {
            self.steady = MeasuredBytes::default();
        }
        self.steady.add(window);
        if self.steady.windows >= window.needed() {
            self.begin_trial(window);
        }
    }

    /// Doubles the number of connections if that may be worthwhile.
    fn begin_trial(&mut self, window: &RateWindow) {
        let rate = self.steady.rate();
        let least = MIN_LEFT.max(WINDOW * window.needed() * 2);
        let is_soon_over = window.left < MIN_LEFT_BYTES.max(rate.saturating_mul(least.as_secs()));
        let is_paused = self.paused_until.is_some_and(|until| window.now < until);
        let is_fast = rate >= FAST_RATE;
        if self.count >= self.most || is_fast || self.is_given_up || is_paused || is_soon_over {
            return;
        }
        let before = self.count;
        let reason = format!("trying whether they bring more than {}/s", megabytes(rate));
        self.change_count((before * 2).min(self.most), reason);
        self.trial = Some(GrowthTrial {
            before,
            rate_before: rate,
            started_before: window.started,
            began: window.now,
            settled_at: None,
            measured: MeasuredBytes::default(),
            is_starved: false,
        });
    }

    fn continue_trial(&mut self, mut trial: GrowthTrial, window: &RateWindow) {
        let age = window.now.saturating_duration_since(trial.began);
        let is_started =
            window.started.saturating_sub(trial.started_before) >= self.count - trial.before;
        if trial.settled_at.is_none() && is_started {
            // A distant server takes several round trips to send at its full rate.
            let settling = if age <= window.elapsed { Duration::ZERO } else { age * 2 };
            trial.settled_at = Some(window.now + settling);
        }
        match trial.settled_at {
            Some(from) if window.now >= from => {
                trial.measured.add(window);
                trial.is_starved |= window.is_starved;
            }
            None if age > START_LIMIT => {
                self.trial = Some(trial);
                return self.abandon_trial(window.now);
            }
            _ => {}
        }
        let (measured, rate) = (trial.measured, trial.measured.rate());
        if measured.windows < window.needed() {
            self.trial = Some(trial);
        } else if rate.saturating_mul(100) >= trial.rate_before.saturating_mul(WORTHWHILE_PERCENT) {
            let (was, is) = (megabytes(trial.rate_before), megabytes(rate));
            (self.proven, self.tolerated) = (self.count, 0);
            let share = rate.saturating_mul(trial.before as u64).saturating_mul(100);
            let whole = trial.rate_before.saturating_mul(self.count as u64);
            let is_scaling = share >= whole.saturating_mul(SCALED_PERCENT);
            self.most = if is_scaling { MAX_SCALED } else { self.most };
            self.reason = format!("the rate grew from {was}/s to {is}/s");
            self.steady = MeasuredBytes::default();
            // New connections of a distant server are faster until they lose their first packet.
            // So their rate is measured again.
            if !window.is_distant() && window.blocked * 10 <= window.elapsed {
                self.steady = measured;
                self.begin_trial(window);
            }
        } else if trial.is_starved && measured.windows < STARVED_WINDOWS.max(window.needed() * 2) {
            self.trial = Some(trial);
        } else {
            let is_distant = window.is_distant();
            self.pause(window.now, if is_distant { FIRST_DISTANT_PAUSE } else { FIRST_PAUSE });
            let (was, is) = (megabytes(trial.rate_before), megabytes(rate));
            let reason = format!("{} brought {is}/s instead of {was}/s", self.count);
            self.change_count(trial.before, reason);
        }
    }
}

/// Formats a number of bytes in megabytes.
fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a window at 20 MB/s.
    const ONE: u64 = 2_000_000;

    /// Measurements of a transfer, one window after the other.
    struct Scene {
        growth: ConnectionGrowth,
        window: RateWindow,
    }

    impl Scene {
        fn new() -> Self {
            let window = RateWindow {
                now: Instant::now(),
                elapsed: WINDOW,
                received: 0,
                blocked: Duration::ZERO,
                is_starved: false,
                started: 1,
                latency: Duration::ZERO,
                left: 1 << 40,
            };
            Self { growth: ConnectionGrowth::default(), window }
        }

        /// Passes windows in which `received` bytes arrive, over all connections that are wanted.
        fn pass(&mut self, windows: usize, received: impl Fn(usize) -> u64) -> usize {
            for _ in 0..windows {
                self.window.now += WINDOW;
                self.window.received = received(self.growth.count());
                self.window.started = self.window.started.max(self.growth.count());
                self.growth.record_window(&self.window);
            }
            self.growth.count()
        }
    }

    #[test]
    fn connections_double_while_the_rate_grows() {
        let mut scene = Scene::new();
        let counts: Vec<_> = (0..10).map(|_| scene.pass(1, |count| ONE * count as u64)).collect();
        assert_eq!(counts, [1, 2, 2, 4, 4, 8, 8, 16, 16, 16]);
        assert_eq!(scene.growth.reason(), "the rate grew from 160.0 MB/s to 320.0 MB/s");
        // Sixteen only where each of them brings nearly as much as the first one.
        let mut scene = Scene::new();
        let worthwhile = |count: usize| ONE * 14_u64.pow(count.ilog2()) / 10_u64.pow(count.ilog2());
        assert_eq!(scene.pass(40, worthwhile), 8);
    }

    #[test]
    fn connections_that_bring_nothing_are_given_back_and_not_tried_again_soon() {
        let mut scene = Scene::new();
        assert_eq!(scene.pass(2, |_| ONE), 2);
        assert_eq!(scene.pass(2, |_| ONE + ONE / 10), 1);
        assert_eq!(scene.pass(590, |_| ONE), 1);
        assert_eq!(scene.pass(11, |_| ONE), 2, "after a minute, once more");
        // A link that three connections fill keeps four.
        let mut scene = Scene::new();
        assert_eq!(scene.pass(30, |count| ONE * count.min(3) as u64), 4);
    }

    #[test]
    fn a_slow_data_path_and_a_short_rest_need_no_connections() {
        let mut scene = Scene::new();
        scene.window.blocked = WINDOW / 5;
        assert_eq!(scene.pass(100, |_| ONE), 1);
        let mut scene = Scene::new();
        scene.window.left = 15 << 20;
        assert_eq!(scene.pass(100, |_| ONE), 1);
        scene.window.left = 100 << 20;
        assert_eq!(scene.pass(100, |_| 11 << 20), 1);
        scene.window.left = 1 << 40;
        assert_eq!(scene.pass(100, |_| 50_000_000), 1);
        // Connections are given back when the data path becomes slower.
        let mut scene = Scene::new();
        assert_eq!(scene.pass(10, |count| ONE * count as u64), 16);
        scene.window.blocked = WINDOW * 3 / 5;
        assert_eq!(scene.pass(10, |_| ONE), 8);
        assert_eq!(scene.pass(30, |_| ONE), 1);
    }

    #[test]
    fn a_trial_waits_for_the_first_bytes_and_not_forever() {
        let mut scene = Scene::new();
        scene.pass(2, |_| ONE);
        for _ in 0..25 {
            scene.window.now += WINDOW;
            scene.growth.record_window(&scene.window);
        }
        assert_eq!(scene.growth.count(), 2);
        for _ in 0..6 {
            scene.window.now += WINDOW;
            scene.growth.record_window(&scene.window);
        }
        assert_eq!(scene.growth.count(), 1);
    }

    #[test]
    fn a_trial_that_waits_for_memory_is_judged_later() {
        let mut scene = Scene::new();
        scene.pass(2, |_| ONE);
        scene.window.is_starved = true;
        assert_eq!(scene.pass(9, |_| ONE), 2);
        assert_eq!(scene.pass(1, |_| ONE), 1);
    }

    #[test]
    fn a_connection_that_has_worked_may_be_refused_for_a_moment() {
        let (mut scene, now) = (Scene::new(), Instant::now());
        assert_eq!(scene.pass(4, |count| ONE * count as u64), 4);
        let mut refuse = |working| {
            scene.growth.record_failure(SourceErrorKind::Status(503), working, now);
            scene.growth.count()
        };
        assert_eq!([refuse(3), refuse(2)], [3, 2]);
        assert_eq!([1; 8].map(&mut refuse), [2; 8]);
        assert_eq!(refuse(1), 1);
    }

    #[test]
    fn failures_leave_the_connections_that_work() {
        let now = Instant::now();
        for (kind, count) in [
            (SourceErrorKind::Status(429), 3),
            (SourceErrorKind::Connect, 2),
            (SourceErrorKind::NotResumable, 1),
            (SourceErrorKind::Changed, 1),
        ] {
            let mut scene = Scene::new();
            assert_eq!(scene.pass(4, |count| ONE * count as u64), 4);
            scene.growth.record_failure(kind, 3, now);
            assert_eq!(scene.growth.count(), count, "{kind:?}");
            assert_eq!(scene.pass(5, |_| ONE), count, "{kind:?}");
        }
    }

    /// Each server has: the bytes per second of a connection and of all together; the latency in
    /// milliseconds; by how many percent rates vary from window to window; the most connections
    /// that are not refused; the least and most connections after half a minute; the least share,
    /// in percent, of what the best number of connections brings.
    #[test]
    fn any_server_is_read_nearly_as_fast_as_it_can_be() {
        for (name, one, all, latency, jitter, allows, [least, most], least_share) in [
            ("near", 800_000_000, 800_000_000, 0, 0, 100, [1, 1], 99),
            ("capped", 50_000_000, 1 << 40, 0, 0, 100, [16, 16], 90),
            ("one link", 50_000_000, 50_000_000, 0, 0, 100, [1, 2], 99),
            ("distant", 10_000_000, 100_000_000, 100, 0, 100, [8, 16], 60),
            ("lossy", 10_000_000, 1 << 40, 100, 40, 100, [4, 16], 40),
            ("refusing", 50_000_000, 1 << 40, 0, 0, 4, [4, 4], 80),
        ] {
            // The bytes of one window over `count` connections.
            let send = |count: usize, random: &mut fastrand::Rng| {
                let rate = (one * count as u64).min(all);
                rate * (100 - random.u64(0..=jitter)) / 100 / 10
            };
            let (mut scene, mut random) = (Scene::new(), fastrand::Rng::with_seed(1));
            scene.window.latency = Duration::from_millis(latency);
            let (mut received, mut possible) = (0, 0);
            for _ in 0..300 {
                scene.window.now += WINDOW;
                let wanted = scene.growth.count();
                if wanted > allows {
                    let refused = SourceErrorKind::Status(503);
                    scene.growth.record_failure(refused, allows, scene.window.now);
                }
                let count = scene.growth.count();
                scene.window.started = scene.window.started.max(count);
                scene.window.received = send(count, &mut random);
                received += scene.window.received;
                possible += send(allows.min(MAX_SCALED), &mut random);
                scene.growth.record_window(&scene.window);
            }
            let count = scene.growth.count();
            assert!((least..=most).contains(&count), "{name}: {count} connections");
            let share = received * 100 / possible;
            assert!(share >= least_share, "{name}: {share} % of the rate");
        }
    }
}
