//! The command line of podman.

/// Options for every command: control groups without systemd, and events in a file instead of the
/// journal.
const GLOBAL: [&str; 3] = ["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file"];

/// Returns the arguments of a command, without the program's name.
pub(crate) fn words<'a>(command: &[&'a str]) -> Vec<&'a str> {
    GLOBAL.iter().chain(command).copied().collect()
}
