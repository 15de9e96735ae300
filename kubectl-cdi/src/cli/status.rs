//! The command `kubectl cdi status`: prints the state of volumes, either once or until it is
//! stopped.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use program::command_line;
use serde_json::Value;
use tokio::time::sleep;

use super::args::{StatusArgs, StatusFormat};
use super::{PROGRAM, print_text};
use crate::cluster::status::format_table;
use crate::cluster::{Cluster, StatusRow};
use crate::error::PluginError;

/// Interval at which `--watch` queries the cluster.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

/// Moves the cursor to the first column of the first line and clears everything below (ECMA-48,
/// CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) async fn print_status(arguments: StatusArgs) -> Result<(), PluginError> {
    let mut cluster = Cluster::connect(&arguments.cluster).await?;
    if arguments.all_namespaces {
        cluster = cluster.in_all_namespaces();
    }
    if arguments.watch {
        return watch_status(&cluster, &arguments).await;
    }
    let rows = cluster.list_status(arguments.target.as_ref()).await?;
    print_text(&match arguments.output {
        Some(StatusFormat::Json) => format!("{:#}\n", to_json(&rows, &cluster)),
        None => format_table(&rows),
    })
}

/// Prints the status repeatedly. On a terminal, the table is printed each time; otherwise only
/// when the state has changed. Ends without an error when stdout is closed.
async fn watch_status(cluster: &Cluster, arguments: &StatusArgs) -> Result<(), PluginError> {
    let is_screen = arguments.output.is_none() && io::stdout().is_terminal();
    let mut shown: Option<Vec<StatusRow>> = None;
    loop {
        match cluster.list_status(arguments.target.as_ref()).await {
            Ok(rows) => {
                let is_same = shown.as_ref().is_some_and(|shown| has_same_state(shown, &rows));
                let text = match arguments.output {
                    _ if is_same && !is_screen => String::new(),
                    Some(StatusFormat::Json) => format!("{}\n", to_json(&rows, cluster)),
                    None if is_screen => format!("{CLEAR}{}", format_table(&rows)),
                    None => format_table(&rows),
                };
                let mut stdout = io::stdout();
                match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                    written => written.map_err(PluginError::stdout)?,
                }
                shown = Some(rows);
            }
            // The first request must succeed, because it shows whether there is a cluster at all.
            // Later failures may be temporary.
            Err(error) if error.may_pass() && shown.is_some() => {
                command_line::print_error(PROGRAM, format_args!("warning: {error}"));
            }
            Err(error) => return Err(error),
        }
        sleep(WATCH_PERIOD).await;
    }
}

fn has_same_state(earlier: &[StatusRow], rows: &[StatusRow]) -> bool {
    earlier.len() == rows.len()
        && rows.iter().zip(earlier).all(|(row, earlier)| row.has_state_of(earlier))
}

fn to_json(rows: &[StatusRow], cluster: &Cluster) -> Value {
    rows.iter().map(|row| row.to_json(cluster.namespace())).collect()
}
