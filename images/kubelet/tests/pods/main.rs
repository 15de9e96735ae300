//! The built images as the pods of CDI, one test for each kind of pod: with the controllers' environment, volumes, limits (600 MB,
//! 750m), user and capabilities; ended and judged as the controllers do.

mod clone;
mod images;
mod import;
mod restart;
mod scene;
mod siblings;
mod upload;
