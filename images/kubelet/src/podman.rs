//! podman's command line.

/// Options before every command: control groups without systemd, and no daemon for events.
const GLOBAL: [&str; 3] = ["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file"];

/// The words of a command, without the name of the program.
pub(crate) fn words<'a>(command: &[&'a str]) -> Vec<&'a str> {
    GLOBAL.iter().chain(command).copied().collect()
}
