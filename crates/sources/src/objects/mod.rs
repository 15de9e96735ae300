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

pub(super) use self::connector::{
    AgentConnector, MACHINE_LIMIT, credential_failure, retry_config, take_no_proxy,
};
pub(super) use self::document::{StoreError, append_advice};
pub(super) use self::key::{encode_path, survives_urls};
pub use self::options::{AddressingStyle, ObjectOptions, ObjectStoreKind};
pub use self::stored::StoredObject;
pub(super) use self::stored::open_object;
