//! Metrics of the process itself, under Prometheus's standard names (Prometheus, "Writing client
//! libraries": process metrics).

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
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, labels: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!(
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}\n"
            ));
        }
    };
    let (version, commit) = version::parts();
    let labels = format!("{{version=\"{version}\",commit=\"{commit}\"}}");
    add("cdi_workers_build_info", "gauge", "The running version.", &labels, Some("1".to_owned()));
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let fields: Vec<u64> = stat.as_deref().map(stat_fields).unwrap_or_default();
    let SystemParameters { ticks_per_second, page_bytes, max_files } = system_parameters();
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second as f64;
    let cpu = fields
        .get(USER_TICKS)
        .zip(fields.get(SYSTEM_TICKS))
        .map(|(user, system)| seconds(user + system));
    let help = "CPU time that the process has used.";
    add("process_cpu_seconds_total", "counter", help, "", cpu.map(|cpu| cpu.to_string()));
    let resident = fields.get(RESIDENT_PAGES).map(|pages| pages * page_bytes);
    let help = "Resident memory of the process.";
    add(
        "process_resident_memory_bytes",
        "gauge",
        help,
        "",
        resident.map(|bytes| bytes.to_string()),
    );
    let start =
        fields.get(START_TICKS).zip(boot_time()).map(|(ticks, boot)| boot + seconds(*ticks));
    let help = "Start time of the process, in seconds since 1970.";
    add("process_start_time_seconds", "gauge", help, "", start.map(|start| format!("{start:.2}")));
    let open = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    add(
        "process_open_fds",
        "gauge",
        "Open file descriptors.",
        "",
        open.map(|count| count.to_string()),
    );
    let help = "Maximum number of open file descriptors.";
    add("process_max_fds", "gauge", help, "", max_files.map(|limit| limit.to_string()));
    text
}

/// Numbers that the system states once.
#[derive(Default)]
struct SystemParameters {
    ticks_per_second: u64,
    page_bytes: u64,
    max_files: Option<u64>,
}

#[cfg(unix)]
fn system_parameters() -> SystemParameters {
    SystemParameters {
        ticks_per_second: rustix::param::clock_ticks_per_second(),
        page_bytes: rustix::param::page_size() as u64,
        max_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
    }
}

/// Nothing needs the numbers without `/proc`.
#[cfg(not(unix))]
fn system_parameters() -> SystemParameters {
    SystemParameters::default()
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
