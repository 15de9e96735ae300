//! `cdi-source-update-poller` between a real registry and a real API server of Kubernetes.

mod access;
mod digests;
mod flags;
mod scene;
