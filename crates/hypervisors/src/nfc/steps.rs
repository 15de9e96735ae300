//! The steps on the way to a disk, each with its result.

use std::sync::Arc;

use fetch::retry::AttemptError;
use serde::Serialize;
use stream::error::{SourceError, SourceErrorKind};

use super::{NfcServer, TicketDesk, UsedAreas};
use crate::blocks::BlockConnection;

/// The steps, in order.
const STEPS: [&str; 8] =
    ["ticket", "port", "greeting", "capabilities", "certificate", "service", "open", "used areas"];

/// A step and its result.
#[derive(Debug, Clone, Serialize)]
pub struct SurveyStep {
    /// The name of the step.
    pub step: &'static str,
    /// False if it failed, so that no other could follow.
    pub works: bool,
    /// The result, or the reason of the failure.
    pub result: String,
}

/// Takes the name and the result of a step that works.
pub(super) type StepReport<'a> = &'a mut (dyn FnMut(&'static str, &str) + Send);

/// A [`StepReport`] for a transfer.
pub(super) fn log_step(step: &'static str, result: &str) {
    tracing::debug!("{step}: {result}");
}

/// Takes all steps on the way to the disk in the file `path`, of `told` bytes, of the machine for
/// which `desk` gives tickets. None is repeated. `listing` asks vSphere for the used areas. Blocks.
pub(crate) fn try_steps(
    desk: Arc<TicketDesk>,
    path: &str,
    told: Option<u64>,
    listing: impl Future<Output = Option<UsedAreas>>,
) -> Result<Vec<SurveyStep>, SourceError> {
    let network = Arc::clone(&desk.network);
    let limit = network.retry_policy.idle_limit();
    let server = NfcServer::new(desk, path, told);
    let mut steps = Vec::new();
    let mut report = |step: &'static str, result: &str| {
        steps.push(SurveyStep { step, works: true, result: result.to_owned() })
    };
    let trying = async {
        let mut connection = server.connect(told, limit, &mut report).await?;
        let agreed = if told.is_some() { ", as vSphere says" } else { "" };
        report("open", &format!("{path} has {} bytes{agreed}", connection.file.capacity));
        let used = match connection.list_used(limit).await? {
            Ok(_) => "the host lists them".to_owned(),
            Err(error) => {
                let other = if listing.await.is_some() { "vSphere does" } else { "all is read" };
                format!("the host does not list them, {other}: {error}")
            }
        };
        report("used areas", &used);
        connection.close(limit).await;
        Ok(())
    };
    match network.block_on(async { Ok(trying.await) })? {
        Ok(()) => {}
        Err(failure) => {
            let error = AttemptError::into_error(failure);
            if error.kind() == SourceErrorKind::Stopped {
                return Err(error);
            }
            let step = STEPS.get(steps.len()).copied().unwrap_or_default();
            steps.push(SurveyStep { step, works: false, result: error.to_string() });
        }
    }
    Ok(steps)
}
