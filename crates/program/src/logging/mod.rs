//! Writes log lines to stderr: in klog's format for pods, as plain text for people, or as JSON on
//! request.
//!
//! Each event becomes one line, which is written unbuffered with a single call. If stderr is
//! closed, lines are lost, but the process continues. The fields of the enclosing spans follow the
//! fields of the event.

mod line;
mod throttle;

use std::io;

use line::FieldFormat;
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;

pub use self::throttle::LogThrottle;
#[cfg(feature = "progress")]
use crate::color;
use crate::env::NamedStrings;

/// Our crates, whose events are filtered by the verbosity. A test compares this list with the
/// workspace.
const OUR_CRATES: [&str; 30] = [
    "benches",
    "cdi_fuzz",
    "cloner",
    "codec",
    "containerimage_server",
    "datapath",
    "diskimage",
    "env_extractor",
    "fetch",
    "https",
    "hypervisors",
    "importer",
    "importer_tools",
    "inspect",
    "kubectl_cdi",
    "kubelet",
    "oci",
    "printable",
    "program",
    "publisher",
    "reporting",
    "sandbox",
    "sources",
    "stores",
    "stream",
    "tar",
    "testkit",
    "uploadproxy",
    "uploadserver",
    "volume",
];

/// The Kubernetes client crate. It returns all its failures as errors, which we report ourselves,
/// so its own events are hidden at verbosity 0.
const CLUSTER_CLIENT: &str = "kube_client";

/// Target of lines that CDI's own tests look for in the log of a pod, and that tell people nothing.
/// Elsewhere they are details.
pub const POD_LINES: &str = "pod";

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `I0929 02:13:54.319027       1 job.rs:12] message key=value`, in UTC.
    Klog,
    /// `cdi-importer: message key=value`.
    Plain,
    /// The same with colours.
    Colored,
    /// `{"caller":"job.rs:12","level":"info","msg":"message","ts":1759112034.319,"key":"value"}`.
    Json,
}

/// The variable that selects JSON for the log of a pod or a server.
const FORMAT_VARIABLE: &str = "CDI_LOG_FORMAT";

/// The user's choice between the forms of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "commands", derive(clap::ValueEnum))]
pub enum LogStyle {
    /// Lines that people read.
    Text,
    /// One JSON object per line, with the keys ts, level, caller and msg, and a key for each field
    /// of the event.
    Json,
}

impl LogStyle {
    /// Reads the choice from `CDI_LOG_FORMAT`: JSON if the value is `json`, otherwise text. An
    /// unknown value also means text, because it should not prevent a pod from starting.
    pub fn from_env(env: &dyn NamedStrings) -> Self {
        match env.get(FORMAT_VARIABLE).as_deref() {
            Some("json") => Self::Json,
            _ => Self::Text,
        }
    }

    /// Returns the format for this choice. `text` is the program's text format.
    pub fn log_format(self, text: LogFormat) -> LogFormat {
        match self {
            Self::Text => text,
            Self::Json => LogFormat::Json,
        }
    }
}

/// The settings of the log.
#[derive(Debug, Clone, Copy)]
pub struct LogOptions {
    /// The format of a log line.
    pub format: LogFormat,
    /// klog's `-v`: 0 for warnings and errors, 1 for information, 3 for debug messages, 5 for
    /// traces.
    pub verbosity: u8,
    /// The program name that begins each plain line.
    pub program: &'static str,
}

impl LogOptions {
    /// Returns the least severe level that is logged at this verbosity.
    fn level_filter(&self) -> LevelFilter {
        match self.verbosity {
            0 => LevelFilter::WARN,
            1 | 2 => LevelFilter::INFO,
            3 | 4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }

    /// Returns the least severe level of [`POD_LINES`] that is logged.
    fn pod_line_filter(&self) -> LevelFilter {
        match self.format {
            LogFormat::Klog | LogFormat::Json => self.level_filter(),
            LogFormat::Plain | LogFormat::Colored if self.verbosity >= 3 => self.level_filter(),
            LogFormat::Plain | LogFormat::Colored => LevelFilter::OFF,
        }
    }
}

/// Starts logging to stderr. Only the first call in a process has an effect.
pub fn init(options: LogOptions) {
    init_with(options, BoxMakeWriter::new(io::stderr));
}

/// Like [`init`], but with another writer, such as one that moves a progress bar out of the way.
pub(crate) fn init_with(options: LogOptions, writer: BoxMakeWriter) {
    if tracing::subscriber::set_global_default(build_subscriber(options, writer)).is_err() {
        tracing::debug!("logging was already set up");
    }
}

/// Builds a subscriber that writes lines to `writer`.
fn build_subscriber(options: LogOptions, writer: BoxMakeWriter) -> impl Subscriber + Send + Sync {
    let shows = move |metadata: &Metadata<'_>| {
        let limit = if metadata.target() == POD_LINES {
            options.pod_line_filter()
        } else if is_ours(metadata.module_path(), metadata.target()) {
            options.level_filter()
        } else if options.verbosity == 0 && crate_of(metadata.target()) == CLUSTER_CLIENT {
            LevelFilter::OFF
        } else {
            LevelFilter::WARN
        };
        *metadata.level() <= limit
    };
    let lines = fmt::layer()
        .with_writer(writer)
        .fmt_fields(FieldFormat)
        .event_format(options)
        // If the log cannot be written, the error cannot be logged anywhere either, and the work
        // must continue.
        .log_internal_errors(false);
    tracing_subscriber::registry()
        .with(filter_fn(shows).with_max_level_hint(options.level_filter()))
        .with(lines)
}

/// Returns the message of a warning line, without the program name and the label before it.
#[cfg(feature = "progress")]
pub(crate) fn warning_sentence(line: &str) -> &str {
    let marks = [color::WARNING, color::PLAIN_WARNING];
    let behind_mark = marks.iter().find_map(|mark| line.split_once(mark));
    behind_mark.map_or(line, |(_, sentence)| sentence).trim_end()
}

/// True for an event of our own code, which is filtered by the verbosity. Events of all other code
/// are logged only as warnings or errors, because HTTP libraries print headers, and thus
/// credentials, at debug level.
///
/// An event from our code does not count as ours if its target is another crate. tracing calls
/// this function once for each callsite.
fn is_ours(module: Option<&str>, target: &str) -> bool {
    let krate = crate_of(target);
    module.map(crate_of) == Some(krate) && OUR_CRATES.contains(&krate)
}

/// Returns the crate name in a module path.
fn crate_of(path: &str) -> &str {
    path.split("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    /// A writer that collects everything written to it.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, verbosity: u8, emit: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let options = LogOptions { format, verbosity, program: "cdi-importer" };
        let writer = BoxMakeWriter::new(move || writer.clone());
        tracing::subscriber::with_default(build_subscriber(options, writer), emit);
        String::from_utf8(kept.0.lock().clone()).unwrap()
    }

    #[test]
    fn verbosity_decides_what_is_shown() {
        let emit = || {
            tracing::error!("e");
            tracing::warn!("w");
            tracing::info!("i");
            tracing::debug!("d");
            tracing::trace!("t");
            tracing::info!(target: "hyper::client", "Authorization: Basic secret");
            tracing::warn!(target: "hyper::client", "h");
            tracing::error!(target: "kube_client::client::tls", "k");
        };
        for (verbosity, shown) in
            [(0, "ewh"), (1, "ewihk"), (2, "ewihk"), (3, "ewidhk"), (4, "ewidhk"), (5, "ewidthk")]
        {
            let text = logged(LogFormat::Plain, verbosity, emit);
            let letters: String = text.lines().filter_map(|line| line.chars().last()).collect();
            assert_eq!(letters, shown, "-v={verbosity}");
        }
    }

    #[test]
    fn only_events_of_our_crates_under_their_own_target_are_ours() {
        for (module, target, is_ours) in [
            ("program", "program", true),
            ("containerimage_server", "containerimage_server", true),
            ("hyper::client", "hyper::client", false),
            ("https::listener", "hyper", false),
            ("hyper::client", "https::listener", false),
            ("programmed", "programmed", false),
        ] {
            assert_eq!(super::is_ours(Some(module), target), is_ours, "{target}");
        }
        assert!(!super::is_ours(None, "program"));
    }

    #[test]
    fn every_crate_of_the_workspace_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let (_, members) = manifest.split_once("members = [").unwrap();
        let (members, _) = members.split_once(']').unwrap();
        let mut named: Vec<_> = members
            .split('"')
            .skip(1)
            .step_by(2)
            .map(|folder| {
                let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap();
                let (_, name) = manifest.split_once("[package]\nname = \"").unwrap();
                name.split_once('"').unwrap().0.replace('-', "_")
            })
            .collect();
        named.sort();
        assert_eq!(named, OUR_CRATES);
    }

    #[test]
    fn the_fields_of_spans_follow_those_of_the_event() {
        let emit = || {
            let outer =
                tracing::error_span!("upload", pvc = "disk", id = tracing::field::Empty).entered();
            tracing::info!("begun");
            outer.record("id", 7);
            let _inner = tracing::error_span!("source", host = "a b", pvc = "other").entered();
            tracing::warn!(host = "mine", "slow");
        };
        assert_eq!(
            logged(LogFormat::Plain, 1, emit),
            "cdi-importer: begun pvc=disk\ncdi-importer: warning: slow host=mine pvc=other id=7\n"
        );
        assert_eq!(
            logged(LogFormat::Plain, 0, emit),
            "cdi-importer: warning: slow host=mine pvc=other id=7\n",
            "the fields of spans must be there at every verbosity"
        );
    }

    #[test]
    fn numbers_stay_numbers_in_json_also_those_of_spans() {
        let text = logged(LogFormat::Json, 1, || {
            let _span = tracing::error_span!("upload", pvc = "disk", attempt = 2).entered();
            tracing::info!(bytes = 12_u64, is_last = true, "done");
        });
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields = ["pvc", "attempt", "bytes", "is_last", "msg", "level"]
            .map(|name| object[name].to_string());
        assert_eq!(fields, ["\"disk\"", "2", "12", "true", "\"done\"", "\"info\""]);
    }

    #[test]
    fn klog_lines_carry_this_file_and_its_line() {
        let text =
            logged(LogFormat::Klog, 1, || tracing::info!(bytes = 12, "Starting {}", "importer"));
        let (prefix, message) = text.split_once("] ").unwrap();
        assert_eq!(message, "Starting importer bytes=12\n");
        let (head, place) = prefix.rsplit_once(' ').unwrap();
        assert!(place.starts_with("logging/mod.rs:"), "{place}");
        assert!(
            head.starts_with('I') && head.ends_with(&format!(" {:>7}", std::process::id())),
            "{head}"
        );
    }

    #[test]
    fn a_failing_writer_does_not_panic() {
        let options = LogOptions { format: LogFormat::Klog, verbosity: 5, program: "x" };
        let full = || fs::File::options().write(true).open("/dev/full").unwrap();
        let subscriber = build_subscriber(options, BoxMakeWriter::new(full));
        tracing::subscriber::with_default(subscriber, || tracing::error!("lost"));
    }
}
