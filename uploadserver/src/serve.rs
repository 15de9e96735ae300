//! The life of a server: listens, waits for its end, and says how it ended.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use daemon::listener;
use daemon::signal::{Shutdown, Signal};
use daemon::tls::TlsError;
use datapath::target;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::Failure;
use crate::intake::{self, Intake};
use crate::job::{Job, Plan, Success};
use crate::service;
use crate::slot::{Refusal, Slot, State};
use crate::status::Figures;
use crate::upload;

/// How long a client may take to read its answer when the server is about to end.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// How long the work may clean up after a signal. The kubelet kills after 30 s by default
/// (`terminationGracePeriodSeconds`), so the partial target is gone well before that.
const GRACE: Duration = Duration::from_secs(10);

/// A server.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) slot: Slot,
    pub(crate) figures: Figures,
    /// The last resumable upload that has ended, whose client may not know yet.
    ended: Mutex<Option<Arc<Job>>>,
    stop: CancellationToken,
}

/// How a server ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// There was an upload.
    Success(Success),
    /// An upload failed after its client was told that all is well.
    Broken(String),
    /// There was none in time.
    DeadlinePassed,
    /// A signal was obeyed.
    Signalled(Signal),
}

/// Why a server did not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("Error getting TLS config: {0}")]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address}:{port}: {source}")]
    Listen {
        address: String,
        port: u16,
        source: io::Error,
    },
}

/// Serves until there is a reason to end. `ready` is told the socket's address.
pub(crate) async fn run(
    config: Config,
    shutdown: &Shutdown,
    ready: impl FnOnce(std::net::SocketAddr),
) -> Result<Exit, StartError> {
    let tls = config.tls.config(&config.profile)?;
    let not_offered = config.profile.not_offered();
    if !not_offered.is_empty() {
        tracing::warn!(
            "not offered, since they are not safe or not known: {}",
            not_offered.join(", ")
        );
    }
    let socket = bind(&config).await?;
    if let Ok(address) = socket.local_addr() {
        tracing::info!("Running server on {address}");
        ready(address);
    }
    let deadline = config.deadline;
    let server = Arc::new(Server {
        slot: Slot::new(config.once),
        figures: Figures::default(),
        ended: Mutex::new(None),
        stop: shutdown.token().child_token(),
        config,
    });
    let closing = CancellationToken::new();
    let listening = tokio::spawn(listener::serve(socket, Arc::new(tls), closing.clone(), {
        let server = Arc::clone(&server);
        move |peer, request| service::answer(Arc::clone(&server), peer, request)
    }));
    let exit = tokio::select! {
        exit = server.until_end() => exit,
        exit = server.until_deadline(deadline) => exit,
        () = shutdown.token().cancelled() => Exit::Signalled(shutdown.signal().unwrap_or(Signal::Terminate)),
    };
    closing.cancel();
    match exit {
        Exit::Success(_) => tracing::info!("Shutting down http server after successful upload"),
        // Whoever is still writing removes what it wrote.
        _ => server.stop().await,
    }
    timeout(LAST_ANSWER, listening).await.ok();
    Ok(exit)
}

async fn bind(config: &Config) -> Result<TcpListener, StartError> {
    let (address, port) = (&config.address, config.port);
    listener::bind(address, port)
        .await
        .map_err(|source| StartError::Listen {
            address: address.clone(),
            port,
            source,
        })
}

impl Server {
    /// Begins an upload, if none is in progress: its bytes go into the intake.
    pub(crate) fn begin(self: &Arc<Self>, plan: Plan) -> Result<(Arc<Job>, Intake), Refusal> {
        let job = Arc::new(Job::new(plan, self.stop.child_token()));
        self.slot.claim(&job)?;
        let (intake, received) = intake::channel(
            job.plan.total,
            &job.plan.promise,
            Arc::clone(&job.progress.received),
            job.stop.clone(),
        );
        let (server, begun) = (Arc::clone(self), Arc::clone(&job));
        tokio::spawn(async move {
            let (config, writing) = (Arc::clone(&server), Arc::clone(&begun));
            let written =
                tokio::task::spawn_blocking(move || upload::write(&config.config, &writing, &received)).await;
            let result = written.unwrap_or_else(|_| {
                target::remove_partial(&server.config.destination.disk);
                Err(Failure::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    worker::work::first_panic(),
                ))
            });
            server.finish(&begun, result);
        });
        Ok((job, intake))
    }

    /// Notes what became of an upload. The place is free before the client is answered, who may come again at once.
    fn finish(&self, job: &Arc<Job>, result: Result<Success, Failure>) {
        self.figures.count(job, result.is_ok());
        if job.resumable.is_some() {
            *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(job));
        }
        let was_told = job.seal();
        match &result {
            Ok(success) => self.slot.succeed(*success),
            Err(failure) if was_told => {
                tracing::error!("Error during resumed processing: {}", failure.sentence);
                self.slot.break_down(failure.sentence.clone());
            }
            Err(failure) => {
                tracing::error!("{}", failure.sentence);
                self.slot.release();
            }
        }
        job.end(result);
    }

    /// The resumable upload of this name, in progress or just ended.
    pub(crate) fn resumable(&self, id: &str) -> Option<Arc<Job>> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let jobs = [self.slot.job(), ended];
        jobs.into_iter()
            .flatten()
            .find(|job| job.resumable.is_some() && job.id == id)
    }

    async fn until_end(&self) -> Exit {
        match self.slot.wait_for(State::is_final).await {
            State::Done(success) => Exit::Success(success),
            State::Broken(reason) => Exit::Broken(reason),
            // Not final: cannot be.
            State::Idle | State::Busy(_) => Exit::DeadlinePassed,
        }
    }

    async fn until_deadline(&self, deadline: Option<SystemTime>) -> Exit {
        let Some(deadline) = deadline else {
            return std::future::pending().await;
        };
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::time::sleep(left).await;
        tracing::info!("deadline exceeded, shutting down");
        if !self.slot.state().is_at_rest() {
            tracing::info!("waiting for upload to finish");
        }
        match self.slot.wait_for(State::is_at_rest).await {
            State::Done(success) => Exit::Success(success),
            State::Broken(reason) => Exit::Broken(reason),
            State::Idle | State::Busy(_) => {
                tracing::info!("upload not done, process exiting");
                Exit::DeadlinePassed
            }
        }
    }

    /// Ends what is in progress, and gives it time to clean up.
    async fn stop(&self) {
        self.stop.cancel();
        if timeout(GRACE, self.slot.wait_for(State::is_at_rest))
            .await
            .is_err()
        {
            target::remove_partial(&self.config.destination.disk);
        }
    }
}
