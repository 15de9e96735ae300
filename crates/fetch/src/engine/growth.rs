//! Decides over how many connections a body is read, if nobody fixed their number.
//!
//! The number climbs a ladder: 1, 2, 4, 8, 16. Each step is a trial. It is kept if the rate grows
//! by 15 % (the last step: by half), and taken back if it does not, if a connection is refused, or
//! if the new ones bring nothing. Then the ladder rests: 5 s, and each further time twice as long.

use std::time::Duration;

use stream::error::SourceErrorKind;
use tokio::time::Instant;

/// Most connections. More than [`USUAL_COUNT`] are for servers and paths that limit each of them.
const MAX_COUNT: usize = 16;

/// Most connections to a server that does not limit each of them. Browsers open six.
const USUAL_COUNT: usize = 8;

/// Least rates, in percent of the rate before, at which more connections are kept: up to
/// [`USUAL_COUNT`], and beyond.
const WORTHWHILE_PERCENT: [u64; 2] = [115, 150];

/// Time between two looks at the totals, and half of the least time over which a rate is measured.
pub(super) const WINDOW: Duration = Duration::from_millis(100);

/// Time over which a rate is measured, as a multiple of the time until a request brings its first
/// byte. Over one round trip, the rate of a distant server says little.
const MEASURED_LATENCIES: u32 = 5;

/// Most time over which a rate is measured. Also the longest wait for the first bytes of new
/// connections: a server that serves one after the other does not send them at all.
const TRIAL_LIMIT: Duration = Duration::from_secs(3);

/// Time over which a trial is measured whose connections wait for memory, before it is judged
/// nevertheless.
const STARVED_LIMIT: Duration = Duration::from_secs(1);

/// Time until the first byte of a request from which on a server is distant.
pub(super) const DISTANT_LATENCY: Duration = Duration::from_millis(20);

/// With fewer bytes or less time left, no connection is added: the transfer ends soon.
const MIN_LEFT_BYTES: u64 = 16 << 20;
const MIN_LEFT: Duration = Duration::from_secs(1);

/// Bytes per second from which on no connection is added. On loopback, a second one brought
/// 584 MB/s instead of 786.
const FAST_RATE: u64 = 500_000_000;

/// First rest of the ladder after a trial that failed. Rates vary: with 0.1 % of the packets of a
/// distant server lost, a connection may send at twice or half its usual rate for seconds.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Time that the first bytes of new connections usually need at most, while the first connection
/// still reads. Doubled when they needed longer.
const USUAL_START: Duration = Duration::from_millis(500);

/// Refusals outside a trial that do not lead to fewer connections: a server may count a request
/// for a little longer than it takes.
const TOLERATED_REFUSALS: u32 = 8;

/// Totals of what a body has received up to a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReceivedTotals {
    pub(super) now: Instant,
    /// Bytes that arrived on all connections.
    pub(super) bytes: u64,
    /// Time that bytes had to wait for the data path.
    pub(super) blocked: Duration,
    /// Number of requests that have brought a byte.
    pub(super) started: usize,
    /// Time until the last request brought its first byte.
    pub(super) latency: Duration,
    /// Bytes that are still to be received.
    pub(super) left: u64,
    /// True if a connection is waiting until memory is free.
    pub(super) is_starved: bool,
}

impl ReceivedTotals {
    fn is_distant(&self) -> bool {
        self.latency >= DISTANT_LATENCY
    }

    /// Returns over which time a rate is measured.
    fn measured_time(&self) -> Duration {
        (self.latency * MEASURED_LATENCIES).clamp(WINDOW * 2, TRIAL_LIMIT)
    }

    /// True if the data path, or nothing but silence, was the limit since `earlier`.
    fn is_idle_since(&self, earlier: &Self) -> bool {
        let blocked = self.blocked.saturating_sub(earlier.blocked);
        self.bytes == earlier.bytes || blocked * 10 > self.now - earlier.now
    }

    /// Returns the bytes per second since `earlier`.
    fn rate_since(&self, earlier: &Self) -> u64 {
        let millis = (self.now - earlier.now).as_millis().max(1);
        let rate = u128::from(self.bytes.saturating_sub(earlier.bytes)) * 1000 / millis;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// A step of the ladder that has yet to show that it is worthwhile.
#[derive(Debug, Clone)]
struct GrowthTrial {
    /// The number of connections before.
    before: usize,
    began: ReceivedTotals,
    /// When the rate is measured from. Set when all new connections have brought a byte.
    settled_at: Option<Instant>,
    /// True if a connection had to wait until memory was free.
    is_starved: bool,
}

impl GrowthTrial {
    /// True until the `count` connections have settled: before, their rate says nothing.
    fn is_unsettled(&mut self, count: usize, totals: &ReceivedTotals) -> bool {
        self.is_starved |= totals.is_starved;
        let age = totals.now - self.began.now;
        let new = totals.started.saturating_sub(self.began.started);
        let have_begun = new >= count - self.before || age > TRIAL_LIMIT;
        if self.settled_at.is_none() && have_begun {
            // A distant server takes several round trips to send at its full rate.
            let is_prompt = age < WINDOW * 3 / 2 || age > TRIAL_LIMIT;
            self.settled_at = Some(totals.now + if is_prompt { Duration::ZERO } else { age * 2 });
        }
        self.settled_at.is_none_or(|settled_at| totals.now < settled_at)
    }
}

/// The number of connections of a body.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionGrowth {
    count: usize,
    /// Why the number has changed, until that was reported.
    news: Option<String>,
    /// Bytes per second of this number, or before the trial.
    rate: u64,
    /// The totals of the window before.
    last: Option<ReceivedTotals>,
    /// The beginning of the measurement.
    since: Option<ReceivedTotals>,
    trial: Option<GrowthTrial>,
    paused_until: Option<Instant>,
    next_pause: Duration,
    /// Time that new connections have to bring their first bytes.
    start: Duration,
    refusals: u32,
    is_given_up: bool,
}

impl Default for ConnectionGrowth {
    fn default() -> Self {
        Self {
            count: 1,
            news: None,
            rate: 0,
            last: None,
            since: None,
            trial: None,
            paused_until: None,
            next_pause: FIRST_PAUSE,
            start: USUAL_START,
            refusals: 0,
            is_given_up: false,
        }
    }
}

impl ConnectionGrowth {
    /// Returns a copy for a new beginning elsewhere in the object. A trial is over without a
    /// result. Connections that still read the part before do not change the copy.
    pub(super) fn begin_again(&self) -> Self {
        let mut copy = self.clone();
        (copy.last, copy.since) = (None, None);
        if let Some(trial) = copy.trial.take() {
            copy.change_count(trial.before, "the transfer continues elsewhere".to_owned());
        }
        copy
    }

    /// Returns how many connections are to be open.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns why the number has changed since the last call.
    pub(super) fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Returns how many bytes arrive in `time`.
    pub(super) fn bytes_in(&self, time: Duration) -> u64 {
        self.rate.saturating_mul(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)) / 1000
    }

    /// Returns how many bytes the first connection still reads while new ones begin.
    pub(super) fn start_bytes(&self) -> u64 {
        self.bytes_in(self.start)
    }

    /// Takes the totals of a window, and changes the number if they show a reason.
    pub(super) fn record_totals(&mut self, totals: &ReceivedTotals) {
        let last = self.last.replace(*totals).unwrap_or(*totals);
        let since = *self.since.get_or_insert(*totals);
        let is_disturbed = match &mut self.trial {
            // A server that sends in bursts shows its rate only while it sends.
            None => totals.is_idle_since(&last),
            Some(trial) => trial.is_unsettled(self.count, totals),
        };
        if is_disturbed {
            self.since = Some(*totals);
            return;
        }
        // A window may end a little early after one that ended late.
        if totals.now - since.now + WINDOW / 2 < totals.measured_time() {
            return;
        }
        self.since = Some(*totals);
        match self.trial.take() {
            None => {
                self.rate = totals.rate_since(&since);
                self.begin_trial(totals);
            }
            Some(trial) => self.judge_trial(trial, &since, &last, totals),
        }
    }

    /// Doubles the number of connections if that may be worthwhile.
    fn begin_trial(&mut self, totals: &ReceivedTotals) {
        let least = MIN_LEFT.max(totals.measured_time() * 2);
        let is_paused = self.paused_until.is_some_and(|until| totals.now < until);
        if self.count >= MAX_COUNT
            || self.rate >= FAST_RATE
            || self.is_given_up
            || is_paused
            || totals.left < MIN_LEFT_BYTES.max(self.bytes_in(least))
        {
            return;
        }
        let before = self.count;
        let reason = format!("trying whether they bring more than {}/s", megabytes(self.rate));
        self.change_count(before * 2, reason);
        self.trial =
            Some(GrowthTrial { before, began: *totals, settled_at: None, is_starved: false });
        self.since = Some(*totals);
    }

    fn judge_trial(
        &mut self,
        trial: GrowthTrial,
        since: &ReceivedTotals,
        last: &ReceivedTotals,
        totals: &ReceivedTotals,
    ) {
        let rate = totals.rate_since(since);
        let [usual, beyond] = WORTHWHILE_PERCENT;
        let percent = if self.count > USUAL_COUNT { beyond } else { usual };
        let (was, is) = (megabytes(self.rate), megabytes(rate));
        if rate.saturating_mul(100) >= self.rate.saturating_mul(percent) {
            self.news = Some(format!("the rate grew from {was}/s to {is}/s"));
            self.rate = rate;
            self.refusals = 0;
            // New connections of a distant server are faster until they lose their first packet.
            // So their rate is measured again.
            if !totals.is_distant() && !totals.is_idle_since(last) {
                self.begin_trial(totals);
            }
        } else if trial.is_starved
            && totals.now - since.now < STARVED_LIMIT.max(totals.measured_time() * 2)
        {
            (self.trial, self.since) = (Some(trial), Some(*since));
        } else {
            self.pause(totals.now);
            let reason = format!("{} brought {is}/s instead of {was}/s", self.count);
            self.change_count(trial.before, reason);
        }
    }

    /// Handles a connection that failed before it brought a byte, or the number that is left to
    /// the transfer if a range was answered wrongly. `working` others are in use.
    pub(super) fn record_failure(&mut self, kind: SourceErrorKind, working: usize, now: Instant) {
        use SourceErrorKind::{Connect, Io, Stalled, Status};
        if matches!(kind, Status(_)) && self.trial.is_none() && self.refusals < TOLERATED_REFUSALS {
            self.refusals += 1;
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
        self.pause(now);
        if count < self.count {
            self.change_count(count.max(1), reason);
        }
    }

    /// Ends a trial whose connections have brought no byte although theirs are needed now.
    pub(super) fn abandon_trial(&mut self, now: Instant) {
        if let Some(trial) = &self.trial {
            let before = trial.before;
            self.start = (self.start * 2).min(TRIAL_LIMIT);
            self.pause(now);
            self.change_count(before, "further ones bring nothing".to_owned());
        }
    }

    fn pause(&mut self, now: Instant) {
        // Several connections may fail at the same moment.
        if self.paused_until.is_none_or(|until| until <= now) {
            self.paused_until = Some(now + self.next_pause);
            self.next_pause = (self.next_pause * 2).min(MAX_PAUSE);
        }
    }

    fn change_count(&mut self, count: usize, reason: String) {
        self.trial = None;
        self.since = None;
        self.count = count;
        self.news = Some(reason);
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

    /// A transfer, one window after the other.
    struct Scene {
        growth: ConnectionGrowth,
        totals: ReceivedTotals,
        /// Time of each window in which bytes wait for the data path.
        blocked: Duration,
    }

    impl Scene {
        fn new() -> Self {
            let totals = ReceivedTotals {
                now: Instant::now(),
                bytes: 0,
                blocked: Duration::ZERO,
                started: 1,
                latency: Duration::ZERO,
                left: 1 << 40,
                is_starved: false,
            };
            let mut growth = ConnectionGrowth::default();
            growth.record_totals(&totals);
            Self { growth, totals, blocked: Duration::ZERO }
        }

        /// Ends a window in which `received` bytes arrived.
        fn record(&mut self, received: u64) {
            self.totals.now += WINDOW;
            self.totals.bytes += received;
            self.totals.blocked += self.blocked;
            self.growth.record_totals(&self.totals);
        }

        /// Passes windows in which `received` bytes arrive, over all connections that are wanted.
        fn pass(&mut self, windows: usize, received: impl Fn(usize) -> u64) -> usize {
            for _ in 0..windows {
                self.totals.started += self.growth.count();
                self.record(received(self.growth.count()));
            }
            self.growth.count()
        }
    }

    #[test]
    fn connections_double_while_the_rate_grows() {
        let mut scene = Scene::new();
        let counts: Vec<_> = (0..10).map(|_| scene.pass(1, |count| ONE * count as u64)).collect();
        assert_eq!(counts, [1, 2, 2, 4, 4, 8, 8, 16, 16, 16]);
        assert_eq!(
            scene.growth.take_news().unwrap(),
            "the rate grew from 160.0 MB/s to 320.0 MB/s"
        );
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
        assert_eq!(scene.pass(49, |_| ONE), 1);
        assert_eq!(scene.pass(2, |_| ONE), 2, "after five seconds, once more");
        assert_eq!(scene.pass(2, |_| ONE), 1);
        assert_eq!(scene.pass(99, |_| ONE), 1, "the next pause is twice as long");
        // A link that three connections fill keeps four.
        let mut scene = Scene::new();
        assert_eq!(scene.pass(30, |count| ONE * count.min(3) as u64), 4);
    }

    #[test]
    fn a_slow_data_path_and_a_short_rest_need_no_connections() {
        let mut scene = Scene::new();
        scene.blocked = WINDOW / 5;
        assert_eq!(scene.pass(100, |_| ONE), 1);
        let mut scene = Scene::new();
        scene.totals.left = 15 << 20;
        assert_eq!(scene.pass(100, |_| ONE), 1);
        scene.totals.left = 100 << 20;
        assert_eq!(scene.pass(100, |_| 11 << 20), 1);
        scene.totals.left = 1 << 40;
        assert_eq!(scene.pass(100, |_| 50_000_000), 1);
    }

    #[test]
    fn a_trial_waits_for_the_first_bytes_and_not_forever() {
        let mut scene = Scene::new();
        scene.pass(2, |_| ONE);
        let elsewhere = scene.growth.begin_again();
        assert_eq!((elsewhere.count(), scene.growth.count()), (1, 2));
        for _ in 0..25 {
            scene.record(0);
        }
        assert_eq!(scene.growth.count(), 2);
        for _ in 0..9 {
            scene.record(0);
        }
        assert_eq!(scene.growth.count(), 1);
    }

    #[test]
    fn a_trial_that_waits_for_memory_is_judged_later() {
        let mut scene = Scene::new();
        scene.pass(2, |_| ONE);
        scene.totals.is_starved = true;
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
        assert_eq!(refuse(3), 3, "four were a trial");
        assert_eq!([1; 8].map(&mut refuse), [3; 8]);
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
            scene.totals.latency = Duration::from_millis(latency);
            let (mut received, mut possible) = (0, 0);
            for _ in 0..300 {
                let wanted = scene.growth.count();
                if wanted > allows {
                    let refused = SourceErrorKind::Status(503);
                    scene.growth.record_failure(refused, allows, scene.totals.now);
                }
                let count = scene.growth.count();
                scene.totals.started += count;
                let sent = send(count, &mut random);
                received += sent;
                possible += send(allows.min(MAX_COUNT), &mut random);
                scene.record(sent);
            }
            let count = scene.growth.count();
            assert!((least..=most).contains(&count), "{name}: {count} connections");
            let share = received * 100 / possible;
            assert!(share >= least_share, "{name}: {share} % of the rate");
        }
    }
}
