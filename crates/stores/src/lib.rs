//! Object stores and image services: S3, Google Cloud Storage, and OpenStack's Glance.
//!
//! Each finds credentials and signs requests; [`fetch::http`] reads the bytes.

#![forbid(unsafe_code)]

pub mod gcs;
pub mod glance;
pub mod objects;
pub mod s3;
