//! Runs the built images as CDI's pods, with at least one test for each kind of pod. The pods get
//! the controllers' environment, volumes, limits (600 MB, 750m), user and capabilities, and their
//! ends are judged as the controllers do it.

mod blank;
mod clone;
mod imageio;
mod images;
mod pod_identity;
mod populators;
mod proxy;
mod refused;
mod scene;
mod servers;
mod siblings;
mod sources;
mod trust;
mod upload;
mod versions;
mod vmware;
