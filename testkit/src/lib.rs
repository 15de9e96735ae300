//! Servers and certificates for tests: everything listens on loopback and stops when it is dropped.

pub mod browser;
pub mod cases;
pub mod certs;
pub mod cgroup;
pub mod cluster;
pub mod disk;
pub mod fail;
pub mod forward_proxy;
pub mod framing;
pub mod https;
pub mod images;
pub mod kube_api;
pub mod loopdev;
pub mod origin;
mod output;
pub mod ovirt;
pub mod process;
pub mod random;
pub mod secret_volume;
pub mod syscalls;
pub mod tmpfs;
pub mod tokens;
pub mod tools;
pub mod upload_pod;
pub mod upload_proxy;
pub mod upstream;
pub mod wire;
