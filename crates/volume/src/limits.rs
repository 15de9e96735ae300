//! Limits of a job: the memory of its process, and the rate of each transfer.

use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};

use clap::Args;
use program::cgroup;
use program::command_line::values::{DurationValue, byte_rate};
use program::env::EnvReader;
use program::quantity;
use stream::memory::{MemoryBudget, PROCESS_BYTES, RESERVE_BYTES};
use stream::min_speed::{self, SpeedLimit};
use stream::observe::Observer;
use stream::options::ReadOptions;
use tokio_util::sync::CancellationToken;

/// Ours, not CDI's: minimum average speed of a source or client in bytes per second; 0 disables
/// the limit.
const SPEED_LIMIT: &str = "CDI_WORKERS_SPEED_LIMIT";
/// Ours, not CDI's: time spent waiting for the sender over which the average speed is measured.
const SPEED_TIME: &str = "CDI_WORKERS_SPEED_TIME";

/// Sets the memory limit of a pod to its cgroup limit, because a limit set on the pod is meant for
/// this job.
pub fn of_pod() {
    MemoryBudget::limit_process(cgroup::memory_bytes().unwrap_or(PROCESS_BYTES));
}

/// Sets the memory limit of a command to `wanted`. If that is `None`, the limit is the default, or
/// the limit of the cgroup if that is lower.
pub fn of_command(wanted: Option<u64>) {
    let allowed = cgroup::memory_bytes().unwrap_or(u64::MAX);
    MemoryBudget::limit_process(wanted.unwrap_or(PROCESS_BYTES.min(allowed)));
}

/// Memory in bytes that a process keeps after its first transfer and that is part of the reserve:
/// connections, and memory that the allocator keeps for each thread. An upload server keeps 4 MiB.
const KEPT_BYTES: u64 = 8 << 20;

/// Reduces the memory budget of the next image by the memory that the process still holds from
/// earlier transfers. Call it before each transfer.
pub fn of_next_transfer() {
    MemoryBudget::default().take_off(left_bytes());
}

/// Returns the bytes of memory left over from earlier transfers. This is the memory beyond what
/// the process held at the first call of this function and beyond what it always keeps.
pub fn left_bytes() -> u64 {
    static FRESH: OnceLock<u64> = OnceLock::new();
    let Some(held) = program::memory::anonymous_bytes() else {
        return 0;
    };
    held.saturating_sub(FRESH.get_or_init(|| held) + KEPT_BYTES)
}

/// Parses a value of `--memory`. A value below the reserve is rejected, because the process itself
/// needs that much even for a small image.
pub fn memory_limit(text: &str) -> Result<u64, String> {
    let bytes = quantity::parse_size(text)?;
    if bytes < RESERVE_BYTES {
        return Err(format!(
            "the process itself needs {}Mi: give at least that",
            RESERVE_BYTES >> 20
        ));
    }
    Ok(bytes)
}

/// Returns the help text of `--memory`.
pub fn memory_help() -> String {
    format!(
        "Limit the memory of the whole process, at least {}Mi; images that need more are refused [default: {}Mi, or the limit of the cgroup if lower]",
        RESERVE_BYTES >> 20,
        PROCESS_BYTES >> 20
    )
}

/// Limits of one transfer. The programs that write volumes read them from flags on their command
/// lines, and from variables in their pods. To add a limit, add a field here, its variable in
/// `of_pod`, and its use in `read_options`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TransferLimits {
    /// Read at most this many bytes per second; the suffixes K, M and G are powers of 1024
    #[arg(long, value_name = "BYTES", value_parser = byte_rate)]
    pub limit_rate: Option<NonZeroU64>,

    /// Give up on a sender that is slower than this many bytes per second; the suffixes K, M and
    /// G are powers of 1024 [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = byte_rate)]
    pub speed_limit: Option<NonZeroU64>,

    /// Measure --speed-limit over this much waiting time (90s, 10m, 2h)
    #[arg(long, value_name = "TIME", default_value_t = DurationValue(min_speed::SPEED_TIME), requires = "speed_limit")]
    pub(crate) speed_time: DurationValue,
}

impl TransferLimits {
    /// Reads the limits from a pod's variables. Unlike a command, a pod gives up on slow senders
    /// by default.
    pub fn of_pod(reader: &mut EnvReader<'_>) -> Self {
        let speed_limit = reader.read_parsed(SPEED_LIMIT, |text| match text.parse::<u64>() {
            Ok(0) => Ok(None),
            _ => byte_rate(text).map(Some),
        });
        Self {
            limit_rate: None,
            speed_limit: speed_limit.unwrap_or(Some(min_speed::POD_BYTES_PER_SECOND)),
            speed_time: reader
                .read_parsed(SPEED_TIME, str::parse)
                .unwrap_or(DurationValue(min_speed::SPEED_TIME)),
        }
    }

    /// Returns options for a reader that applies these limits, ends soon after `stop` is
    /// cancelled, and reports to `observer`.
    pub fn read_options(
        &self,
        stop: CancellationToken,
        observer: Arc<dyn Observer>,
    ) -> ReadOptions {
        ReadOptions {
            limit_rate: self.limit_rate,
            speed_limit: self
                .speed_limit
                .map(|bytes_per_second| SpeedLimit { bytes_per_second, time: self.speed_time.0 }),
            stop,
            observer,
            ..ReadOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use stream::observe::NoObserver;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<SpeedLimit>, String> {
        let env: HashMap<String, String> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut reader = EnvReader::new(&env);
        let limits = TransferLimits::of_pod(&mut reader);
        let reading = limits.read_options(CancellationToken::new(), NoObserver::new_shared());
        reader.into_result().map(|()| reading.speed_limit).map_err(|errors| errors.to_string())
    }

    #[test]
    #[ignore = "alone: measures memory"]
    fn memory_held_by_earlier_transfers_is_not_available_to_the_next_one() {
        const LEFT_BYTES: u64 = 64 << 20;
        let limit = || {
            of_next_transfer();
            MemoryBudget::default().limit_bytes()
        };
        let first = limit();
        let left = vec![1_u8; usize::try_from(LEFT_BYTES).unwrap()];
        let second = limit();
        assert!((LEFT_BYTES / 2..=LEFT_BYTES).contains(&(first - second)), "{first} {second}");
        drop(left);
        assert_eq!(limit(), first);
    }

    #[test]
    fn a_memory_limit_below_the_needs_of_the_process_is_refused() {
        assert_eq!(memory_limit("64Mi"), Ok(RESERVE_BYTES));
        assert_eq!(
            memory_limit("63Mi"),
            Err("the process itself needs 64Mi: give at least that".to_owned())
        );
        memory_limit("much").unwrap_err();
    }

    #[test]
    fn a_pod_has_a_minimum_speed_by_default() {
        let bytes_per_second = min_speed::POD_BYTES_PER_SECOND;
        let default = SpeedLimit { bytes_per_second, time: min_speed::SPEED_TIME };
        assert_eq!(read(&[]), Ok(Some(default)));
        assert_eq!(read(&[(SPEED_LIMIT, "0")]), Ok(None));
        let other = SpeedLimit { bytes_per_second: NonZeroU64::MIN, time: Duration::from_secs(7) };
        for (limit, time) in [("1", "7"), ("1", "7s")] {
            assert_eq!(read(&[(SPEED_LIMIT, limit), (SPEED_TIME, time)]), Ok(Some(other)));
        }
        let kibibytes = read(&[(SPEED_LIMIT, "4K"), (SPEED_TIME, "10m")]);
        assert_eq!(kibibytes, Ok(Some(default)));
        for pairs in [[(SPEED_LIMIT, "fast")], [(SPEED_TIME, "0")]] {
            assert!(read(&pairs).is_err(), "{pairs:?}");
        }
    }
}
