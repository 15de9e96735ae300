//! Common parts of the object stores. Their bytes are read by [`fetch::http`]; each store is a
//! dialect of it, and has a variant of `sources::SourceLocation`.
//!
//! The library `object_store` signs requests and finds credentials, which may come from many
//! places, but it transfers no bytes. Its reader does not support our proxies, trust anchors and
//! limits, nor `x-amz-checksum-*`, and its retries would interfere with the engine's retries.

mod connector;
mod document;
mod key;
mod options;
mod stored;

pub(super) use self::connector::{
    AgentConnector, MACHINE_LIMIT, credential_failure, retry_config, take_no_proxy,
};
pub use self::document::StoreError;
pub(super) use self::document::describe_refusal;
pub(super) use self::key::{encode_path, survives_urls};
pub use self::options::{AddressingStyle, ObjectOptions};
pub(super) use self::stored::{open_object, stored_object};
