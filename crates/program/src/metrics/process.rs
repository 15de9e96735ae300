//! Metrics of the process itself, under Prometheus's standard names (Prometheus, "Writing client
//! libraries": process metrics).

use std::fmt::Display;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::version;

/// Indices of fields in `/proc/self/stat` (proc(5)). Index 0 is the state, which is the first
/// field after the process name.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;
const RESIDENT_PAGES: usize = 21;

/// Returns the series of this process as text. Series for which the kernel provides no value are
/// omitted.
pub(super) fn encode_text() -> String {
    let (version, commit) = version::parts();
    let build = format!("cdi_workers_build_info{{version=\"{version}\",commit=\"{commit}\"}}");
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let fields: Vec<u64> = stat.as_deref().map(stat_fields).unwrap_or_default();
    let (ticks_per_second, page_bytes, max_files) = system_parameters();
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second as f64;
    let cpu = fields.get(USER_TICKS).zip(fields.get(SYSTEM_TICKS));
    let cpu = cpu.map(|(user, system)| seconds(user + system));
    let memory = fields.get(RESIDENT_PAGES).map(|pages| pages * page_bytes);
    let start = fields.get(START_TICKS).zip(boot_time());
    let start = start.map(|(ticks, boot)| format!("{:.2}", boot + seconds(*ticks)));
    let since = "Start time of the process, in seconds since 1970.";
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    [
        sample(&build, "gauge", "The running version.", Some(1)),
        sample("process_cpu_seconds_total", "counter", "CPU time that the process has used.", cpu),
        sample("process_resident_memory_bytes", "gauge", "Resident memory of the process.", memory),
        sample("process_start_time_seconds", "gauge", since, start),
        sample("process_open_fds", "gauge", "Open file descriptors.", open),
        sample("process_max_fds", "gauge", "Maximum number of open file descriptors.", max_files),
    ]
    .concat()
}

/// Returns the text of `series`, a name with or without labels. It is empty without a value.
fn sample(series: &str, kind: &str, help: &str, value: Option<impl Display>) -> String {
    let name = series.split('{').next().unwrap_or(series);
    value.map_or_else(String::new, |value| {
        format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{series} {value}\n")
    })
}

/// Returns the clock ticks per second, the bytes of a page, and the maximum number of open files.
#[cfg(unix)]
fn system_parameters() -> (u64, u64, Option<u64>) {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64, files.current)
}

/// Nothing needs the numbers without `/proc`.
#[cfg(not(unix))]
fn system_parameters() -> (u64, u64, Option<u64>) {
    (0, 0, None)
}

/// Returns the numbers after the process name, which may itself contain spaces and parentheses.
/// The state (a letter) and negative numbers are returned as 0.
fn stat_fields(stat: &str) -> Vec<u64> {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
}

/// Returns the time at which the machine booted, in seconds since 1970.
fn boot_time() -> Option<f64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs_f64() - uptime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_metrics_have_plausible_values() {
        let text = encode_text();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        for (name, range) in [
            ("process_start_time_seconds ", now - 3600.0..now + 1.0),
            ("process_resident_memory_bytes ", 1e6..1e11),
            ("process_cpu_seconds_total ", 0.0..3600.0),
            ("process_open_fds ", 3.0..1000.0),
            ("cdi_workers_build_info{version=\"", 1.0..2.0),
        ] {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            assert!(range.contains(&value), "{line}");
        }
    }

    #[test]
    fn a_process_name_may_have_parentheses_and_spaces() {
        let fields = stat_fields("7 (a) (b c) S 1 2 -3 4");
        assert_eq!(fields, [0, 1, 2, 0, 4]);
        assert_eq!(stat_fields("nonsense"), [0; 0]);
    }
}
