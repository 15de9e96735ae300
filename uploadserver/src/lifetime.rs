//! The life of a server process: it listens, waits for a reason to exit, and reports how it ended.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datapath::disk;
use https::listener::{self, BindError, ListenerSettings};
use program::job::OnDrop;
use program::logging::POD_LINES;
use program::signal::{ShutdownRequest, StopSignal};
use rustls::ServerConfig;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answer;
use crate::config::Config;
use crate::job::UploadSuccess;
use crate::server::UploadServer;
use crate::slot::ServerState;

/// Time that a client has to read its response when the server is about to exit.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// The reason why a server exited.
#[derive(Debug)]
pub(crate) enum ServerExit {
    /// An upload succeeded.
    Success(UploadSuccess),
    /// An upload failed after its client had received a success response.
    Broken(String),
    /// No upload succeeded before the deadline.
    DeadlinePassed,
    /// The process received a signal.
    Signalled(StopSignal),
}

/// Serves until there is a reason to exit. Calls `ready` with the address of the socket once the
/// server listens.
pub(crate) async fn run(
    config: Config,
    tls: ServerConfig,
    shutdown: &ShutdownRequest,
    ready: impl FnOnce(std::net::SocketAddr),
) -> Result<ServerExit, BindError> {
    if let Some(omissions) = config.profile.describe_omissions() {
        tracing::warn!("{omissions}");
    }
    let socket = listener::bind(&config.address, config.port).await?;
    // The server only accepts connections from now on.
    sandbox::close_network();
    if let Ok(address) = socket.local_addr() {
        tracing::info!(target: POD_LINES, "Running server on {address}");
        ready(address);
    }
    let deadline = config.deadline;
    // However this function ends, even by a panic, an unfinished upload must not look like a
    // complete disk.
    let _ending = OnDrop(Some(disk::remove_unfinished));
    // No child of the shutdown request: a transfer that is cancelled removes its disk, which may
    // have to stay.
    let server = Arc::new(UploadServer::new(config, CancellationToken::new()));
    let closing = CancellationToken::new();
    let listening = tokio::spawn(listener::serve(
        socket,
        ListenerSettings::with_fixed_tls(tls),
        closing.clone(),
        {
            let server = Arc::clone(&server);
            move |peer, request| answer::answer(Arc::clone(&server), peer, request)
        },
    ));
    let exit = tokio::select! {
        exit = server.slot.wait_for(exit_of) => exit,
        exit = until_deadline(&server, deadline) => exit,
        () = shutdown.cancel_token().cancelled() => ServerExit::Signalled(shutdown.first_signal().unwrap_or(StopSignal::Terminate)),
    };
    // This comes first, so that no request begins another upload while the server stops.
    closing.cancel();
    match exit {
        ServerExit::Success(_) => {
            tracing::info!(target: POD_LINES, "Shutting down http server after successful upload")
        }
        // A transfer that is still running removes the data that it has written.
        _ => {
            if matches!(exit, ServerExit::Signalled(_)) {
                server.leave_interrupted();
            }
            server.stop().await;
        }
    }
    timeout(LAST_ANSWER, listening).await.ok();
    Ok(exit)
}

/// Returns the reason to exit that lies in `state`, if the server has no more work to do.
fn exit_of(state: &ServerState) -> Option<ServerExit> {
    match state {
        ServerState::Done(success) => Some(ServerExit::Success(*success)),
        ServerState::Broken(reason) => Some(ServerExit::Broken(reason.clone())),
        ServerState::Idle | ServerState::Busy(_) => None,
    }
}

async fn until_deadline(server: &UploadServer, deadline: Option<SystemTime>) -> ServerExit {
    let Some(deadline) = deadline else {
        return std::future::pending().await;
    };
    let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
    tokio::time::sleep(left).await;
    tracing::info!("deadline exceeded, shutting down");
    if !server.slot.state().is_at_rest() {
        tracing::info!("waiting for upload to finish");
    }
    let at_rest = |state: &ServerState| state.is_at_rest().then(|| exit_of(state));
    server.slot.wait_for(at_rest).await.unwrap_or_else(|| {
        tracing::info!("upload not done, process exiting");
        ServerExit::DeadlinePassed
    })
}
