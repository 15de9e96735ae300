//! Object stores that others wrote, read through a gateway that injects faults.

mod credentials;
mod gcs;
mod identity;
mod s3;
mod suite;
mod whole;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use fetch::policy::{ExtraPermissions, ImportPolicy};
use fetch::{BasicCredentials, Network, RetryPolicy};
use stores::objects::ObjectOptions;
use stream::error::SourceError;
use stream::source::Source;
use testkit::gateway::{Fault, Gateway, Plan};
use testkit::objects::{ACCESS_KEY, BUCKET, Kind, PUBLIC, SECRET_KEY, Store};
use testkit::random::Random;
use testkit::wait;

use crate::{GCS, MOTO, S3S};

/// Length of the objects that most tests read: more than the sockets of a connection hold.
const LENGTH: usize = 3_000_000;

/// Runs the test with all stores at once, because most of a test is waiting.
fn for_every_store(test: impl Fn(&'static Store) + Sync) {
    std::thread::scope(|scope| {
        for store in [&MOTO, &S3S, &GCS] {
            let test = &test;
            scope.spawn(move || test(store));
        }
    });
}

/// Bytes without a pattern that a shifted or repeated piece could match.
fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    Random::new(seed).fill(&mut bytes);
    bytes
}

/// Settings with the keys that the store of `kind` requires.
fn access(kind: Kind) -> Network {
    let keys = BasicCredentials::new(ACCESS_KEY, SECRET_KEY);
    Network {
        credentials: keys.filter(|_| kind != Kind::Gcs),
        connections: Some(NonZeroUsize::MIN),
        policy: policy(&[]),
        ..crate::network()
    }
}

/// A policy that lends the identities in these variables to servers on loopback.
fn policy(variables: &[(&str, &str)]) -> ImportPolicy {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let granted = ExtraPermissions { ambient_identity: true, ..ExtraPermissions::default() };
    ImportPolicy::command_line(&variables.collect::<HashMap<_, _>>(), true, &granted)
}

/// Settings without keys, and with variables that may lead to some.
fn environment(variables: &[(&str, &str)]) -> Network {
    Network { credentials: None, policy: policy(variables), ..access(Kind::Moto) }
}

/// Opens the object at `url` as the store of `kind` requires.
fn open(kind: Kind, url: &str, access: &Network) -> Result<Box<dyn Source>, SourceError> {
    let (network, options) = (Arc::new(access.clone()), ObjectOptions::default());
    Ok(match kind {
        Kind::Gcs => Box::new(stores::gcs::open(url, &network, &options)?),
        Kind::Moto | Kind::S3s => Box::new(stores::s3::open(url, &network, &options)?),
    })
}

fn read_all(source: &dyn Source) -> Result<Vec<u8>, SourceError> {
    let mut body = source.open_body()?;
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next_chunk()? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// An object behind a gateway.
struct Setup {
    store: &'static Store,
    key: String,
    content: Vec<u8>,
    gateway: Gateway,
}

impl Setup {
    /// Stores an object that only `test` reads, behind a gateway with `faults`.
    fn new(store: &'static Store, test: &str, faults: Vec<Fault>) -> Self {
        Self::behind(store, test, |store| {
            Gateway::start(store.address(), Plan::of(faults)).unwrap()
        })
    }

    /// An object that everybody may read.
    fn public(test: &str) -> Self {
        let setup = Self::new(&MOTO, test, Vec::new());
        MOTO.put_with(BUCKET, &setup.key, &[PUBLIC], &setup.content);
        setup
    }

    fn behind(store: &'static Store, test: &str, gateway: impl FnOnce(&Store) -> Gateway) -> Self {
        let content = noise(test.len() as u64);
        let key = format!("tests/{test}.img");
        store.put(&key, &content);
        let gateway = gateway(store);
        Self { store, key, content, gateway }
    }

    fn url(&self) -> String {
        self.gateway.url(&format!("/{BUCKET}/{}", self.key))
    }

    fn open(&self) -> Result<Box<dyn Source>, SourceError> {
        self.open_with(&access(self.store.kind()))
    }

    fn open_with(&self, access: &Network) -> Result<Box<dyn Source>, SourceError> {
        open(self.store.kind(), &self.url(), access)
    }

    fn read_with(&self, access: &Network) -> Result<Vec<u8>, SourceError> {
        read_all(&*self.open_with(access)?)
    }

    fn read(&self) -> Result<Vec<u8>, SourceError> {
        self.read_with(&access(self.store.kind()))
    }

    /// Reads the object, and asserts that its bytes are right.
    #[track_caller]
    fn assert_read(&self) {
        let read = self.read().unwrap_or_else(|error| panic!("{:?}: {error}", self.store.kind()));
        assert!(read == self.content, "{:?}", self.store.kind());
    }

    /// Opens the object, waits until its first reply is cut after `bytes`, and replaces it.
    fn open_and_replace(&self, bytes: u64, other: &[u8]) -> Box<dyn Source> {
        let source = self.open().unwrap();
        let is_cut = || self.gateway.body_bytes() >= bytes;
        wait::until(|| "nothing was cut", is_cut);
        self.store.put(&self.key, other);
        source
    }

    /// The values of a header in all requests, in order.
    fn sent(&self, name: &str) -> Vec<Option<String>> {
        let requests = self.gateway.requests();
        requests.iter().map(|recorded| recorded.request.header(name).map(str::to_owned)).collect()
    }
}

/// An error reply of S3 or Google Cloud Storage.
fn refusal(status: u16, code: &str, more: &str) -> Fault {
    let document =
        format!("<Error><Code>{code}</Code><Message>In so many words.</Message>{more}</Error>");
    Fault::Answer(status, Vec::new(), document)
}
