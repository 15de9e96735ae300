//! The populators of Forklift, which fill a claim from the image service of an OpenStack cloud or
//! from an oVirt engine.
//!
//! Flags specify the source and the target; the keys of a secret are environment variables. The
//! controller reads the exit code and the progress, and restarts a populator that failed.

mod config;
mod openstack;
mod origin;
mod ovirt;
mod populate;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use datapath::disk;
use https::metrics;
use program::env::{EnvReader, NamedStrings};
use program::exit::ExitReason;
use program::flags::{KlogFlags, OwnFlag};
use program::job::{self, JobOutcome, POD_GRACE};
use program::metrics::MetricsRegistry;
use program::signal::{ShutdownRequest, StopSignal};
use program::{report, start};
use reporting::messages::ProductKind;
use reporting::watch::PhaseTracker;

use self::config::PopulatorConfig;
use self::origin::PopulatorSource;
use self::populate::populate_volume;
use crate::confine;
use crate::watch::count_import;

/// The part of a populator that differs from the other one.
#[derive(Debug)]
pub struct Populator {
    program_name: &'static str,
    own_flags: &'static [OwnFlag],
    progress_metric: (&'static str, &'static str),
    read_source: ReadSource,
}

/// Reads the source. Returns `None` if a key of the secret was rejected. The number is the size of
/// the claim, if it was given.
type ReadSource =
    fn(&KlogFlags, Option<u64>, &mut EnvReader<'_>) -> Result<Option<PopulatorSource>, String>;

const POPULATORS: [Populator; 2] = [openstack::POPULATOR, ovirt::POPULATOR];

impl Populator {
    /// Returns the populator whose program was started as `name`.
    pub fn from_program_name(name: &OsStr) -> Option<Self> {
        let file = Path::new(name).file_name();
        POPULATORS.into_iter().find(|populator| file == Some(OsStr::new(populator.program_name)))
    }

    /// Fills the volume given in `arguments`, with the secret in `env`.
    pub fn main(&self, arguments: &[OsString], env: &dyn NamedStrings) -> ExitCode {
        let flags = [config::FLAGS.as_slice(), self.own_flags].concat();
        // The controller sets no verbosity, but upstream's log always shows the progress, so the
        // default level is 1.
        let arguments = [&[OsString::from("-v=1")], arguments].concat();
        let confine = |flags: &KlogFlags| {
            let mut rules = confine::pod_rules(env);
            if let Some(path) = flags.own_value(config::VOLUME_PATH) {
                rules.write_disk(path);
            }
            confine::enter_pod(env, rules)
        };
        let run = |flags, (), shutdown| self.run(flags, env, shutdown);
        start::start_pod(self.program_name, &flags, &arguments, env, confine, run)
    }

    async fn run(
        &self,
        flags: KlogFlags,
        env: &dyn NamedStrings,
        shutdown: ShutdownRequest,
    ) -> ExitReason {
        let registry = MetricsRegistry::default();
        metrics::serve_metrics(env, registry.clone(), shutdown.cancel_token()).await;
        sandbox::close_listening();
        tracing::info!(version = *program::VERSION, "Starting {}", self.program_name);
        volume::limits::of_pod();
        let config = match PopulatorConfig::from_flags(
            self.read_source,
            &flags,
            env,
            shutdown.cancel_token(),
        ) {
            Ok(config) => config,
            Err(refusal) => return report_failure(env, &refusal),
        };
        let phases = PhaseTracker::new(ProductKind::Disk);
        let watch = count_import(&registry, self.progress_metric, &config.owner_uid, phases);
        let work = move || populate_volume(config, &watch);
        match job::run_job(&shutdown, POD_GRACE, disk::remove_unfinished, work).await {
            JobOutcome::Returned(Ok(())) => ExitReason::Done,
            JobOutcome::Returned(Err(Some(sentence))) | JobOutcome::Failed(sentence) => {
                report_failure(env, &sentence)
            }
            JobOutcome::Returned(Err(None)) => {
                report_stopped(shutdown.first_signal().unwrap_or(StopSignal::Terminate))
            }
            JobOutcome::Overdue(signal) => report_stopped(signal),
        }
    }
}

/// Reports the failure and returns the exit code that the `Fatal` function of upstream's log uses.
/// The pod is then restarted.
fn report_failure(env: &dyn NamedStrings, sentence: &str) -> ExitReason {
    report::log_failure(env, sentence);
    ExitReason::Fatal
}

fn report_stopped(signal: StopSignal) -> ExitReason {
    tracing::error!("stopped by {}", signal.name());
    ExitReason::Signalled(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_name_selects_the_populator() {
        for (name, populator) in [
            ("openstack-populator", Some("openstack-populator")),
            ("/usr/bin/ovirt-populator", Some("ovirt-populator")),
            ("./ovirt-populator", Some("ovirt-populator")),
            ("cdi-importer", None),
            ("ovirt-populator/cdi-importer", None),
            ("", None),
        ] {
            let found = Populator::from_program_name(OsStr::new(name));
            assert_eq!(found.map(|found| found.program_name), populator, "{name}");
        }
    }
}
