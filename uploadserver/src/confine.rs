//! The files, ports and system calls that the server keeps.

use std::path::Path;

use program::command_line::CommandError;
use program::env::NamedStrings;
use sandbox::{SandboxMode, SandboxRules};

use crate::config::Config;
use crate::memory;

/// Restricts the process, which has no other thread yet, to what a server with `config` opens once
/// it has read its key. `termination_log` is the file with a pod's message.
pub(crate) fn enter_sandbox(
    mode: SandboxMode,
    config: &Config,
    termination_log: Option<&Path>,
    env: &dyn NamedStrings,
) -> Result<(), CommandError> {
    let mut rules = SandboxRules::new(env);
    let destination = &config.destination;
    rules.write_disk_or_tree(&destination.disk, &destination.dir);
    if let Some(scratch) = &destination.scratch {
        rules.create_in(scratch);
    }
    if let Some(file) = termination_log {
        rules.write_file(file);
    }
    rules.listen(config.port);
    memory::without_background_thread(|| sandbox::enter(mode, rules))?;
    sandbox::log_applied();
    Ok(())
}
