//! The built images as the pods of CDI, one test for each kind of pod: with the controllers' environment, volumes, limits (600 MB,
//! 750m), user and capabilities; ended and judged as the controllers do.

mod blank;
mod clone;
mod imageio;
mod images;
mod import;
mod populators;
mod proxy;
mod refused;
mod restart;
mod scene;
mod servers;
mod siblings;
mod sources;
mod trust;
mod upload;
mod vmware;
