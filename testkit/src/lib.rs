//! Servers and certificates for tests: everything listens on loopback and stops when it is dropped.

pub mod cases;
pub mod certs;
pub mod cgroup;
pub mod disk;
pub mod fail;
pub mod forward_proxy;
pub mod images;
pub mod loopdev;
pub mod origin;
pub mod process;
pub mod random;
pub mod tools;
pub mod wire;
