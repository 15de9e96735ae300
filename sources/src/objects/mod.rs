//! What the object stores have in common. Their bytes move through [`super::http`]; a store is a dialect of it.

mod connector;
mod document;
mod key;
mod stored;

pub(super) use self::connector::{Connector, credential_failure, patience, take_no_proxy};
pub(super) use self::document::{StoreError, advised};
pub(super) use self::key::{encoded, survives_urls};
pub use self::stored::StoredObject;
pub(super) use self::stored::open_object;
