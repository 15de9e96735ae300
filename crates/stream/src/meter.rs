//! The first stage after a source: counts bytes, passes them to the digest, limits the rate, and
//! notices a request to stop.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::chunks::ChunkStream;
use crate::digest::{Checksum, HashingThread};
use crate::error::{Error, SourceError, SourceErrorKind};
use crate::min_speed::MinSpeedCheck;
use crate::observe::{LimitingPart, Observer, SharedTime, Stage};
use crate::options::ReadOptions;
use crate::source::{Source, SourceBody};

/// Longest sleep of the rate limiter before it checks the stop token again.
const PACE_STEP: Duration = Duration::from_millis(50);

/// The readings of a meter. They outlive the meter, which disappears inside the decode stack.
pub struct MeterReadings {
    position: AtomicU64,
    /// The expected digest, and the running digest of the bytes so far.
    digest: Mutex<Option<(Checksum, HashingThread)>>,
    /// The media type of the source.
    content_type: Option<String>,
    /// True if every byte must be read, because a digest covers all of them. The digest is
    /// computed here or by the source.
    must_read_all: bool,
    /// True if the source must be read to its end, although bytes may be skipped.
    must_reach_end: bool,
    /// Total time of all stages that was passed to [`MeterReadings::time_stage`].
    timed: SharedTime,
    observer: Arc<dyn Observer>,
}

impl MeterReadings {
    /// Returns readings without a meter, which only report to `observer`.
    pub fn reporting_to(observer: Arc<dyn Observer>) -> Self {
        Self {
            content_type: None,
            position: AtomicU64::new(0),
            digest: Mutex::new(None),
            must_read_all: false,
            must_reach_end: false,
            timed: SharedTime::default(),
            observer,
        }
    }

    /// Runs `work` as part of `stage` and reports its time to the observer. The time of earlier
    /// stages, from which `work` pulls its bytes, is left out. Costs two clock reads per chunk.
    /// Must be called only on the thread that moves the bytes, whose time is divided among the
    /// parts that limit the transfer.
    pub fn time_stage<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), self.timed.total_time());
        let value = work();
        let others = self.timed.total_time().saturating_sub(before);
        let own = began.elapsed().saturating_sub(others);
        self.record_limit(stage.limiting_part(), own);
        self.observer.record_time(stage, own);
        value
    }

    /// Records that the running stage waited for `part` for `time`, which is not counted for that
    /// stage.
    pub fn record_limit(&self, part: LimitingPart, time: Duration) {
        self.pass_over(time);
        self.observer.record_limit(part, time);
    }

    /// The observer of the transfer.
    pub fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    /// Records a deliberate pause of the running stage, which is counted for no stage and no part.
    pub fn pass_over(&self, time: Duration) {
        self.timed.add_time(time);
    }

    /// Source bytes that were read or skipped.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// The media type that the server declared for the source.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// True if bytes that the image does not need must be read as well.
    pub fn must_reach_end(&self) -> bool {
        self.must_reach_end
    }

    /// Compares the digest of all bytes with the expected one, if there is one, and returns it as
    /// `algorithm:hex`. The second call returns `None`.
    pub fn verify_digest(&self) -> Result<Option<String>, Error> {
        let Some((expected, hashing)) = self.digest.lock().take() else {
            return Ok(None);
        };
        let calculated = hashing.finish_digest();
        expected.verify(&calculated)?;
        Ok(Some(calculated))
    }
}

/// Turns a [`SourceBody`] into a [`ChunkStream`].
pub struct Meter {
    body: Box<dyn SourceBody>,
    total: Option<u64>,
    readings: Arc<MeterReadings>,
    pace: Option<RateLimiter>,
    floor: Option<MinSpeedCheck>,
    stop: CancellationToken,
}

impl Meter {
    /// Begins to read `source`, computing the digest if `reading` expects one.
    pub fn new(source: &dyn Source, reading: &ReadOptions) -> Result<Self, Error> {
        let digest = match &reading.checksum {
            Some(checksum) => Some((checksum.clone(), HashingThread::start(checksum.algorithm())?)),
            None => None,
        };
        let must_read_all = digest.is_some() || source.has_own_digest();
        let readings = Arc::new(MeterReadings {
            digest: Mutex::new(digest),
            content_type: source.content_type().map(str::to_owned),
            must_read_all,
            must_reach_end: must_read_all || reading.read_all,
            ..MeterReadings::reporting_to(Arc::clone(&reading.observer))
        });
        Ok(Self {
            body: source.open_body().map_err(map_source_error)?,
            total: source.total_bytes(),
            readings,
            pace: reading.limit_rate.map(RateLimiter::new),
            floor: reading.speed_limit.map(MinSpeedCheck::new),
            stop: reading.stop.clone(),
        })
    }

    /// The readings, which may be used while the meter runs and afterwards.
    pub fn readings(&self) -> Arc<MeterReadings> {
        Arc::clone(&self.readings)
    }

    /// Size of the whole object in bytes, if the source knows it.
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    /// True if every byte must be read, because a digest covers all of them. The digest is
    /// computed here or by the source.
    pub fn must_read_all(&self) -> bool {
        self.readings.must_read_all
    }

    /// Skips ahead to `offset`. Only for sources that support ranges and have no digest to verify.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), Error> {
        let skipped = self.readings.time_stage(Stage::Source, || self.body.skip_to(offset));
        skipped.map_err(map_source_error)?;
        self.advance_to(offset);
        Ok(())
    }

    fn advance_to(&self, position: u64) {
        self.readings.position.store(position, Ordering::Relaxed);
        self.readings.observer.source_position(position, self.total);
    }
}

/// Converts an error of the source. A source that was stopped on request has not failed.
pub fn map_source_error(error: SourceError) -> Error {
    if error.kind() == SourceErrorKind::Stopped { Error::Stopped } else { error.into() }
}

impl ChunkStream for Meter {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let asked = Instant::now();
        let next = self.readings.time_stage(Stage::Source, || self.body.next_chunk());
        let Some(chunk) = next.map_err(map_source_error)? else {
            return Ok(None);
        };
        if let Some(floor) = &mut self.floor {
            floor.record_received(chunk.len() as u64, asked.elapsed())?;
        }
        // Hash before pacing, so that the hashing thread works while this one sleeps.
        if let Some((_, hashing)) = &*self.readings.digest.lock() {
            hashing.update(&chunk);
        }
        if let Some(pace) = &mut self.pace {
            let (position, total) = (self.readings.position(), self.total);
            // A chunk may take seconds, so report progress during the wait.
            let let_through =
                |bytes| self.readings.observer.source_position(position + bytes, total);
            let began = Instant::now();
            pace.wait_for_bytes(chunk.len() as u64, &self.stop, let_through)?;
            self.readings.pass_over(began.elapsed());
        }
        self.advance_to(self.readings.position() + chunk.len() as u64);
        Ok(Some(chunk))
    }
}

/// Keeps the average rate at or below a limit. A source that was slow for a while may catch up by
/// at most one second's worth of bytes.
pub struct RateLimiter {
    bytes_per_second: NonZeroU64,
    due: Instant,
}

impl RateLimiter {
    /// Creates a limiter that lets this many bytes pass per second.
    pub fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, due: Instant::now() }
    }

    /// Waits until `bytes` may pass. Calls `let_through` from time to time with the number of
    /// bytes that the limit has allowed so far.
    pub fn wait_for_bytes(
        &mut self,
        bytes: u64,
        stop: &CancellationToken,
        let_through: impl Fn(u64),
    ) -> Result<(), Error> {
        let earliest = Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or(self.due);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        self.due =
            self.due.max(earliest) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        while let Some(left) = self.due.checked_duration_since(Instant::now()) {
            if stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            let held_back =
                left.as_nanos() * u128::from(self.bytes_per_second.get()) / 1_000_000_000;
            let_through(bytes.saturating_sub(u64::try_from(held_back).unwrap_or(bytes)));
            std::thread::sleep(left.min(PACE_STEP));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An observer that collects the reported times.
    #[derive(Default)]
    struct Told {
        stages: Mutex<Vec<(Stage, Duration)>>,
        limits: Mutex<Vec<(LimitingPart, Duration)>>,
    }

    impl Observer for Told {
        fn record_time(&self, stage: Stage, time: Duration) {
            self.stages.lock().push((stage, time));
        }

        fn record_limit(&self, part: LimitingPart, time: Duration) {
            self.limits.lock().push((part, time));
        }
    }

    #[test]
    fn the_time_of_a_stage_excludes_the_stages_that_it_reads_from() {
        let told = Arc::new(Told::default());
        let readings = MeterReadings::reporting_to(Arc::clone(&told) as _);
        let hour = Duration::from_secs(3600);
        readings.time_stage(Stage::Format, || {
            readings.time_stage(Stage::Decode, || readings.pass_over(hour));
        });
        let told = told.stages.lock();
        assert_eq!(*told, [(Stage::Decode, Duration::ZERO), (Stage::Format, Duration::ZERO)]);
    }

    #[test]
    fn each_moment_is_limited_by_one_part() {
        let (told, hour) = (Arc::new(Told::default()), Duration::from_secs(3600));
        let readings = MeterReadings::reporting_to(Arc::clone(&told) as _);
        readings.time_stage(Stage::Format, || {
            readings.time_stage(Stage::Source, || ());
            readings.record_limit(LimitingPart::Target, hour);
            readings.pass_over(hour);
        });
        let limits = told.limits.lock();
        let sum_of = |part| -> Duration {
            limits.iter().filter(|(limited_by, _)| *limited_by == part).map(|(_, time)| *time).sum()
        };
        assert_eq!(sum_of(LimitingPart::Target), hour);
        assert!(sum_of(LimitingPart::Source) + sum_of(LimitingPart::Decoder) < hour);
    }
}
