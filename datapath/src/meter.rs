//! The first stage behind a source: counts, has digested, paces, and notices a request to stop.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::chunks::Chunks;
use crate::digest::Hashing;
use crate::error::{Error, SourceError, SourceErrorKind};
use crate::floor::Floor;
use crate::observe::Observer;
use crate::source::{Body, Source};
use crate::transfer::Options;

/// Longest sleep of the rate limiter without a look at the stop token.
const PACE_STEP: Duration = Duration::from_millis(50);

/// What outlives the meter, which disappears inside the decode stack.
pub struct Readings {
    position: AtomicU64,
    digest: Mutex<Option<Hashing>>,
}

impl Readings {
    /// Bytes of the source that were consumed or skipped.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// The digest of all bytes, as `algorithm:hex`; once.
    pub fn digest(&self) -> Option<String> {
        self.digest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .map(Hashing::finish)
    }
}

/// A [`Body`] as [`Chunks`].
pub struct Meter {
    body: Box<dyn Body>,
    total: Option<u64>,
    readings: Arc<Readings>,
    digesting: bool,
    verifying: bool,
    pace: Option<Pace>,
    floor: Option<Floor>,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
}

impl Meter {
    /// Measures the body of `source`.
    pub fn new(source: &dyn Source, digest: Option<Hashing>, options: &Options) -> Result<Self, Error> {
        let digesting = digest.is_some();
        let readings = Arc::new(Readings {
            position: AtomicU64::new(0),
            digest: Mutex::new(digest),
        });
        Ok(Self {
            body: source.body().map_err(stopped)?,
            total: source.length(),
            readings,
            digesting,
            verifying: source.verifies(),
            pace: options.limit_rate.map(Pace::new),
            floor: options.speed_limit.map(Floor::new),
            observer: Arc::clone(&options.observer),
            stop: options.stop.clone(),
        })
    }

    /// The figures, to be read while and after the meter runs.
    pub fn readings(&self) -> Arc<Readings> {
        Arc::clone(&self.readings)
    }

    /// True if every byte has to pass, since a digest is taken of all of them, here or by the source.
    pub fn must_read_all(&self) -> bool {
        self.digesting || self.verifying
    }

    /// Continues at `offset`. Only for bodies of ranged sources, without a digest.
    pub fn skip_to(&mut self, offset: u64) -> Result<(), Error> {
        self.body.skip_to(offset).map_err(stopped)?;
        self.advance_to(offset);
        Ok(())
    }

    fn advance_to(&self, position: u64) {
        self.readings.position.store(position, Ordering::Relaxed);
        self.observer.source_position(position, self.total);
    }
}

/// A source that was told to stop has not failed.
fn stopped(error: SourceError) -> Error {
    if error.kind() == SourceErrorKind::Stopped {
        Error::Stopped
    } else {
        error.into()
    }
}

impl Chunks for Meter {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let asked = Instant::now();
        let Some(chunk) = self.body.next_chunk().map_err(stopped)? else {
            return Ok(None);
        };
        if let Some(floor) = &mut self.floor {
            let came = floor.came(chunk.len() as u64, asked.elapsed());
            came.map_err(|slow| {
                SourceError::new(
                    SourceErrorKind::Stalled,
                    format!("the source is too slow: {slow}"),
                )
            })?;
        }
        if self.digesting
            && let Some(digest) = &*self
                .readings
                .digest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        {
            digest.update(&chunk);
        }
        if let Some(pace) = &mut self.pace {
            pace.wait(chunk.len() as u64, &self.stop)?;
        }
        self.advance_to(self.readings.position() + chunk.len() as u64);
        Ok(Some(chunk))
    }
}

/// Keeps the average rate at or below a limit; a source that was slow for a while may not catch up by more than
/// a second's worth.
struct Pace {
    bytes_per_second: NonZeroU64,
    due: Instant,
}

impl Pace {
    fn new(bytes_per_second: NonZeroU64) -> Self {
        Self {
            bytes_per_second,
            due: Instant::now(),
        }
    }

    fn wait(&mut self, bytes: u64, stop: &CancellationToken) -> Result<(), Error> {
        let earliest = Instant::now()
            .checked_sub(Duration::from_secs(1))
            .unwrap_or(self.due);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        self.due = self.due.max(earliest) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        while let Some(left) = self.due.checked_duration_since(Instant::now()) {
            if stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            std::thread::sleep(left.min(PACE_STEP));
        }
        Ok(())
    }
}
