//! Common parts of the object stores. Their bytes move through [`super::http`]; a store is a dialect of it,
//! and stands in [`STORES`](crate::place::STORES).
//!
//! The library `object_store` signs and finds credentials, of which there are many chains, but moves no bytes: its
//! reader knows neither our proxies, roots and patience nor `x-amz-checksum-*`, and its retries would be a second
//! answer to every question of the engine.

mod connector;
mod document;
mod key;
mod options;
mod stored;

pub(super) use self::connector::{Connector, MACHINE_LIMIT, credential_failure, patience, take_no_proxy};
pub(super) use self::document::{StoreError, advised};
pub(super) use self::key::{encoded, survives_urls};
pub use self::options::{Addressing, ObjectOptions, Store};
pub use self::stored::StoredObject;
pub(super) use self::stored::open_object;
