//! Servers, browsers, disk images and other equipment for tests. All servers listen on loopback
//! and stop when they are dropped.

pub mod adversary;
#[cfg(target_arch = "x86_64")]
pub mod attack;
pub mod bombs;
pub mod browser;
pub mod cases;
pub mod certs;
pub mod cgroup;
pub mod clone_pod;
pub mod cluster;
pub mod disk;
pub mod docker_registry;
pub mod fail;
#[cfg(target_arch = "x86_64")]
pub mod failing;
pub mod forward_proxy;
pub mod framing;
pub mod gateway;
pub mod golang;
pub mod hello;
pub mod https;
pub mod images;
mod jobs;
pub mod kube_api;
pub mod loopdev;
pub mod mistake;
pub mod nbd;
pub mod nbd_proxy;
pub mod nbd_script;
pub mod nginx;
pub mod objects;
pub mod oci;
pub mod openstack;
pub mod origin;
mod output;
pub mod ovirt;
pub mod ports;
pub mod process;
pub mod random;
pub mod relay;
pub mod secret_volume;
mod serving;
pub mod shells;
pub mod storm;
pub mod syscalls;
pub mod terminal;
pub mod tmpfs;
pub mod tokens;
pub mod tools;
pub mod trees;
pub mod upload_pod;
pub mod upload_proxy;
pub mod upstream;
pub mod vsphere;
pub mod wait;
pub mod wire;
