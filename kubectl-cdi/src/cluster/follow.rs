//! Follows an import until it ends.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Cluster;
use super::destination::VolumeTarget;
use super::import_progress::ImportProgress;
use super::wait::{INTERVAL, WaitGoal, check_goal, timed_out};
use crate::error::PluginError;

impl Cluster {
    /// Follows an import until it has succeeded or failed, for at most `time_limit`. Calls `told`
    /// whenever the progress changes.
    pub async fn follow_import(
        &self,
        target: &VolumeTarget,
        time_limit: Duration,
        mut told: impl FnMut(&ImportProgress),
    ) -> Result<(), PluginError> {
        let started = Instant::now();
        let mut last = ImportProgress::default();
        loop {
            let progress = match self.find_target(target).await {
                Ok(found) => {
                    let mut progress = ImportProgress::from_objects(&found);
                    if check_goal(&found, target, WaitGoal::Filled)? {
                        told(&progress);
                        return Ok(());
                    }
                    if !progress.is_running() {
                        let waiting = self.wait_reason(target, &found).await;
                        waiting.check_class(target)?;
                        progress.sentence = Some(waiting.to_string());
                    }
                    progress
                }
                Err(error) if error.may_pass() => {
                    ImportProgress { sentence: Some(error.to_string()), ..last.clone() }
                }
                Err(error) => return Err(error),
            };
            if progress != last {
                told(&progress);
            }
            if started.elapsed() >= time_limit {
                return Err(timed_out(target, time_limit, &progress));
            }
            last = progress;
            sleep(INTERVAL.min(time_limit.saturating_sub(started.elapsed()))).await;
        }
    }
}
