//! The populators of Forklift: fill a claim from an OpenStack's image service or an oVirt engine.
//!
//! Flags say what comes and where to, the keys of a secret are variables of the environment. The controller looks at the exit code and
//! the progress, and starts what failed again.

mod config;
mod openstack;
mod origin;
mod ovirt;
mod populate;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use datapath::disk;
use https::metrics;
use program::env::Strings;
use program::exit::Exit;
use program::flags::{Flags, OwnFlag};
use program::job::{self, Ended, POD_GRACE};
use program::metrics::{OPENSTACK_PROGRESS, OVIRT_PROGRESS, Registry};
use program::signal::{Shutdown, Signal};
use program::start;
use volume::wording::Made;

use self::config::Config;
use self::populate::{NotPopulated, populate};
use crate::watch::Watch;

/// A populator: the program by this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populator {
    /// `openstack-populator`.
    OpenStack,
    /// `ovirt-populator`.
    Ovirt,
}

impl Populator {
    /// The populator that a program started as `name` is.
    pub fn named(name: &OsStr) -> Option<Self> {
        let file = Path::new(name).file_name();
        [Self::OpenStack, Self::Ovirt]
            .into_iter()
            .find(|populator| file == Some(OsStr::new(populator.program())))
    }

    /// Fills the volume that `arguments` name, with the secret in `env`.
    pub fn main(self, arguments: &[OsString], env: &dyn Strings) -> ExitCode {
        let flags = [config::FLAGS.as_slice(), self.flags()].concat();
        // The controller asks for no verbosity, and upstream's log says how far it is all the same.
        let arguments = [&[OsString::from("-v=1")], arguments].concat();
        start::start(self.program(), &flags, &arguments, env, |flags, shutdown| {
            self.run(flags, env, shutdown)
        })
    }

    fn program(self) -> &'static str {
        match self {
            Self::OpenStack => "openstack-populator",
            Self::Ovirt => "ovirt-populator",
        }
    }

    fn flags(self) -> &'static [OwnFlag] {
        match self {
            Self::OpenStack => &openstack::FLAGS,
            Self::Ovirt => &ovirt::FLAGS,
        }
    }

    fn progress(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenStack => OPENSTACK_PROGRESS,
            Self::Ovirt => OVIRT_PROGRESS,
        }
    }

    async fn run(self, flags: Flags, env: &dyn Strings, shutdown: Shutdown) -> Exit {
        let registry = Registry::default();
        metrics::serve(env, registry.clone(), shutdown.token()).await;
        tracing::info!(version = *program::VERSION, "Starting {}", self.program());
        volume::limits::of_pod();
        let config = match Config::read(self, &flags, env, shutdown.token()) {
            Ok(config) => config,
            Err(refusal) => return fail(&refusal),
        };
        let watch = Arc::new(Watch::new(
            &registry,
            self.progress(),
            &config.owner_uid,
            Made::Disk,
        ));
        let work = move || populate(config, &watch);
        match job::run(&shutdown, POD_GRACE, disk::abandon, work).await {
            Ended::Returned(Ok(())) => Exit::Done,
            Ended::Returned(Err(NotPopulated::Failed(sentence))) | Ended::Failed(sentence) => fail(&sentence),
            Ended::Returned(Err(NotPopulated::Stopped)) => {
                stopped(shutdown.signal().unwrap_or(Signal::Terminate))
            }
            Ended::Overdue(signal) => stopped(signal),
        }
    }
}

/// The end as upstream's programs end, with the `Fatal` of their log: the pod is started again.
fn fail(sentence: &str) -> Exit {
    tracing::error!("{sentence}");
    Exit::Fatal
}

fn stopped(signal: Signal) -> Exit {
    tracing::error!("stopped by {}", signal.name());
    Exit::Signalled(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_tells_a_populator() {
        for (name, populator) in [
            ("openstack-populator", Some(Populator::OpenStack)),
            ("/usr/bin/ovirt-populator", Some(Populator::Ovirt)),
            ("./ovirt-populator", Some(Populator::Ovirt)),
            ("cdi-importer", None),
            ("ovirt-populator/cdi-importer", None),
            ("", None),
        ] {
            assert_eq!(Populator::named(OsStr::new(name)), populator, "{name}");
        }
    }
}
