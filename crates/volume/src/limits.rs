//! Limits of a job: memory, and time for a sender that hardly sends.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::Duration;

use datapath::floor::SpeedLimit;
use datapath::memory::{Budget, PROCESS_BYTES};
use program::cgroup;
use program::env::EnvReader;

/// Ours: bytes a second that a source or client has to send on average; 0 for none.
const SPEED_LIMIT: &str = "CDI_WORKERS_SPEED_LIMIT";
/// Ours: seconds of waiting over which that is measured.
const SPEED_TIME: &str = "CDI_WORKERS_SPEED_TIME";

/// Takes what the cgroup of the pod allows: a limit that was set for the pod is meant for its work.
pub fn of_pod() {
    Budget::limit_process(cgroup::memory_bytes().unwrap_or(PROCESS_BYTES));
}

/// Takes `wanted` for a command, or the default as far as the cgroup allows that.
pub fn of_command(wanted: Option<u64>) {
    let allowed = cgroup::memory_bytes().unwrap_or(u64::MAX);
    Budget::limit_process(wanted.unwrap_or(PROCESS_BYTES.min(allowed)));
}

/// Memory that a process keeps after its first transfer, and that the reserve covers:
/// connections, and what the allocator has for each thread. An upload server keeps 4 MiB.
const KEPT_BYTES: u64 = 8 << 20;

/// Takes what the process still holds of its earlier transfers off what the image of the next one
/// may ask for. To be said before each transfer.
pub fn of_next_transfer() {
    Budget::default().take_off(left_bytes());
}

/// Bytes of memory that earlier transfers have left: those beyond what the process had when this
/// was asked for the first time, and beyond what it keeps anyway.
pub fn left_bytes() -> u64 {
    static FRESH: OnceLock<u64> = OnceLock::new();
    let Some(held) = program::memory::anonymous_bytes() else {
        return 0;
    };
    held.saturating_sub(FRESH.get_or_init(|| held) + KEPT_BYTES)
}

/// The help of `--memory`.
pub fn memory_help() -> String {
    format!(
        "Memory that the whole process may take; images that need more are refused [default: {}Mi, or less if a cgroup allows less]",
        PROCESS_BYTES >> 20
    )
}

/// The speed below which a pod gives up.
pub fn speed_of_pod(reader: &mut EnvReader<'_>) -> Option<SpeedLimit> {
    let number = |text: &str| {
        text.parse::<u64>()
            .map_err(|_| format!("{text:?} is not a whole number"))
    };
    let default = SpeedLimit::POD;
    let limit = reader.parsed(SPEED_LIMIT, number);
    let time = reader.parsed(SPEED_TIME, |text| match number(text)? {
        0 => Err("at least one second is needed".to_owned()),
        seconds => Ok(Duration::from_secs(seconds)),
    });
    Some(SpeedLimit {
        bytes_per_second: NonZeroU64::new(limit.unwrap_or(default.bytes_per_second.get()))?,
        time: time.unwrap_or(default.time),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<SpeedLimit>, String> {
        let env: HashMap<String, String> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut reader = EnvReader::new(&env);
        let limit = speed_of_pod(&mut reader);
        reader
            .finish()
            .map(|()| limit)
            .map_err(|errors| errors.to_string())
    }

    #[test]
    fn what_earlier_transfers_have_left_is_not_for_the_next_one() {
        const LEFT_BYTES: u64 = 64 << 20;
        let limit = || {
            of_next_transfer();
            Budget::default().limit()
        };
        let first = limit();
        let left = vec![1_u8; usize::try_from(LEFT_BYTES).unwrap()];
        let second = limit();
        assert!(
            (LEFT_BYTES / 2..=LEFT_BYTES).contains(&(first - second)),
            "{first} {second}"
        );
        drop(left);
        assert_eq!(limit(), first);
    }

    #[test]
    fn a_pod_gives_up_on_senders_that_hardly_send() {
        assert_eq!(read(&[]), Ok(Some(SpeedLimit::POD)));
        assert_eq!(read(&[(SPEED_LIMIT, "0")]), Ok(None));
        let other = SpeedLimit {
            bytes_per_second: NonZeroU64::MIN,
            time: Duration::from_secs(7),
        };
        assert_eq!(read(&[(SPEED_LIMIT, "1"), (SPEED_TIME, "7")]), Ok(Some(other)));
        for pairs in [[(SPEED_LIMIT, "fast")], [(SPEED_TIME, "0")]] {
            assert!(read(&pairs).is_err(), "{pairs:?}");
        }
    }
}
