//! The command line: what each command does.

mod args;
mod complete;
mod failure;
mod import;
mod upload;
mod view;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use program::command_line;
use program::signal::Shutdown;
use program::start;

use self::args::{Cli, Command, DryRun, StatusArgs, TokenArgs, VolumeArgs};
use self::failure::CommandFailed;
use crate::cluster::size::{FileSystem, request};
use crate::cluster::status::table;
use crate::cluster::volume::{manifest, yaml};
use crate::cluster::{CdiConfig, Cluster, Source, Target, Wanted};

/// The name in front of error lines.
const PROGRAM: &str = "kubectl-cdi";

/// Runs the command that `arguments` (without `name`, under which the program was called) ask for.
pub fn main(name: &OsStr, arguments: &[OsString]) -> ExitCode {
    // Images and the answers of an API server share what a cgroup allows.
    volume::limits::of_command(None);
    if Path::new(name).file_name() == Some(OsStr::new(complete::NAME_FOR_KUBECTL)) {
        return complete::run(arguments);
    }
    match arguments.split_first() {
        Some((first, words)) if first == complete::COMMAND => complete::run(words),
        _ => command_line::main_with_scripts(PROGRAM, arguments, complete::script, |cli: Cli| {
            match cli.command {
                Command::Upload(own) => upload::run(*own, arguments),
                Command::Import(own) => import::run(*own),
                Command::Status(own) => quietly(status(own)),
                Command::Token(own) => quietly(token(own)),
            }
        }),
    }
}

/// Runs `job` until it ends or a signal comes.
fn under_signals<T>(
    job: impl Future<Output = Result<T, CommandFailed>>,
    stopped: impl FnOnce(&Shutdown) -> CommandFailed,
) -> Result<T, CommandFailed> {
    start::on_runtime(async |shutdown| {
        tokio::select! {
            result = job => result,
            () = shutdown.token().cancelled() => Err(stopped(&shutdown)),
        }
    })
}

/// Runs a job that leaves nothing behind, and says nothing of its own.
fn quietly<T>(job: impl Future<Output = Result<T, CommandFailed>>) -> Result<T, CommandFailed> {
    program::install_provider();
    under_signals(job, CommandFailed::signalled)
}

async fn status(arguments: StatusArgs) -> Result<(), CommandFailed> {
    let cluster = Cluster::connect(&arguments.cluster.into()).await?;
    let rows = cluster.status(arguments.target.as_ref()).await?;
    print(&table(&rows))
}

async fn token(arguments: TokenArgs) -> Result<(), CommandFailed> {
    let cluster = Cluster::connect(&arguments.cluster.into()).await?;
    let target = &arguments.target;
    let token = cluster.token(target.name()).await?;
    // CDI gives tokens for claims that do not exist. Behind the request, and no failure of its
    // own: the right to look is another one.
    if cluster.look(target).await.is_ok_and(|found| found.is_empty()) {
        return Err(cluster.not_found(target).into());
    }
    let proxy = cluster.cdi_config().await?.proxy_url()?;
    let proxy = proxy.as_str().trim_end_matches('/');
    let token = token.as_str();
    print(&format!(
        "{token}\n\n# For five minutes:\ncurl -H 'Authorization: Bearer {token}' -X POST -T IMAGE {proxy}{}\n",
        program::cdi::UPLOAD
    ))
}

fn print(text: &str) -> Result<(), CommandFailed> {
    command_line::print(text.as_bytes()).map_err(|error: io::Error| CommandFailed::Output(error.to_string()))
}

/// The size of a volume for a disk of so many bytes, where no `--size` says it.
async fn size_for(
    cluster: &Cluster,
    config: &CdiConfig,
    target: &Target,
    arguments: &VolumeArgs,
    disk_bytes: u64,
) -> u64 {
    let class = arguments.storage_class.as_deref();
    let file_system = FileSystem {
        overhead: config.overhead(class),
        is_xfs: cluster.is_xfs(class).await,
    };
    let mode = arguments.volume_mode.unwrap_or_default();
    request(target.kind(), disk_bytes, mode, file_system)
}

/// The volume that the flags ask for, of so many bytes.
fn wanted(target: &Target, source: Source, arguments: &VolumeArgs, archive: bool, size_bytes: u64) -> Wanted {
    Wanted {
        target: target.clone(),
        source,
        size_bytes,
        storage_class: arguments.storage_class.clone(),
        access_mode: arguments.access_mode.clone(),
        volume_mode: arguments.volume_mode,
        preallocation: arguments.preallocation,
        archive,
        force_bind: arguments.force_bind,
        instancetype: arguments.instancetype.clone(),
        preference: arguments.preference.clone(),
    }
}

/// Prints what would be made, if that is all that is asked for.
fn printed(wanted: &Wanted, arguments: &VolumeArgs) -> Result<bool, CommandFailed> {
    if arguments.dry_run != Some(DryRun::Client) {
        return Ok(false);
    }
    let text = yaml(&manifest(wanted)).map_err(|error| CommandFailed::Output(error.to_string()))?;
    print(&text).map(|()| true)
}
