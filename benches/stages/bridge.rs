//! Passes chunks from a task to a thread. The cost is per chunk, whatever its size.

use bytes::Bytes;
use criterion::Criterion;
use stream::bridge::{self, BridgeClosedError};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::{Result, done, group, network_runtime};

const DATA_BYTES: usize = 256 << 20;
/// The default of the HTTP source.
const BUDGET_BYTES: usize = 4 << 20;

pub(crate) fn run(criterion: &mut Criterion) -> Result<()> {
    let runtime = network_runtime()?;
    let mut group = group(criterion, "bridge", DATA_BYTES);
    // The size of one read from a fast socket, and that of the packer's chunks.
    for kib in [64, 256] {
        let chunk = Bytes::from(vec![0; kib << 10]);
        group.bench_function(format!("{kib}-kib"), |bencher| {
            bencher.iter(|| done(cross(&runtime, &chunk)));
        });
    }
    group.finish();
    Ok(())
}

fn cross(runtime: &Runtime, chunk: &Bytes) -> Result<()> {
    let (sender, mut receiver) = bridge::channel(BUDGET_BYTES, &CancellationToken::new());
    let chunk = chunk.clone();
    let sending = runtime.spawn(async move {
        for _ in 0..DATA_BYTES / chunk.len() {
            sender.send(chunk.clone(), chunk.len()).await?;
        }
        Ok::<_, BridgeClosedError>(())
    });
    let mut bytes = 0;
    while let Some(chunk) = receiver.recv() {
        bytes += chunk.len();
    }
    runtime.block_on(sending)??;
    assert_eq!(bytes, DATA_BYTES);
    Ok(())
}
