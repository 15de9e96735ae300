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

/// The steps that have worked, which are also logged.
#[derive(Default)]
pub(super) struct StepList(Vec<SurveyStep>);

impl StepList {
    /// Adds a step with its result.
    pub(super) fn add(&mut self, step: &'static str, result: String) {
        tracing::debug!("{step}: {result}");
        self.0.push(SurveyStep { step, works: true, result });
    }
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
    let mut steps = StepList::default();
    let trying = async {
        let mut connection = server.connect(limit, &mut steps).await?;
        let agreed = if told.is_some() { ", as vSphere says" } else { "" };
        steps.add("open", format!("{path} has {} bytes{agreed}", connection.file.capacity));
        let used = match connection.list_used(limit).await? {
            Ok(_) => "the host lists them".to_owned(),
            Err(error) => {
                let other = if listing.await.is_some() { "vSphere does" } else { "all is read" };
                format!("the host does not list them, {other}: {error}")
            }
        };
        steps.add("used areas", used);
        connection.close(limit).await;
        Ok(())
    };
    let tried = network.block_on(async { Ok(trying.await) })?;
    let StepList(mut steps) = steps;
    if let Err(error) = tried.map_err(AttemptError::into_error) {
        if error.kind() == SourceErrorKind::Stopped {
            return Err(error);
        }
        let step = STEPS.get(steps.len()).copied().unwrap_or_default();
        steps.push(SurveyStep { step, works: false, result: error.to_string() });
    }
    Ok(steps)
}
