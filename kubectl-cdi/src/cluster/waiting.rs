//! The reasons for waiting, and the sentences about them that users see.

use std::fmt;

use super::destination::VolumeTarget;
use super::error::unbound_claim;
use crate::error::PluginError;

/// The object or event that an upload or an import is waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// The API server, which responded earlier but does not respond now.
    Cluster(String),
    /// CDI, which has not created the claim yet.
    Claim,
    /// A volume for the claim. Contains the last warning about it.
    Unbound(Option<String>),
    /// The first VM that uses the claim.
    FirstConsumer(VolumeTarget),
    /// CDI, which has not created the pod yet.
    Pod,
    /// A node on which the pod can be scheduled. Contains the scheduler's message.
    Unscheduled(String),
    /// The container image of the pod. Contains the last message about it.
    Image(String),
    /// The start of the pod. Contains the last warning about it.
    Starting(Option<String>),
    /// The next attempt of a pod that has failed. Contains its last message.
    Crashing(String),
    /// The program in the pod, which is running but not ready.
    NotReady,
    /// The end of the pod, which has received everything that it needs.
    Finishing,
}

impl WaitReason {
    /// Returns the reason that applies after all bytes were sent. At this stage claims are bound
    /// again, and the pod and its claim disappear, so other reasons would be misleading.
    pub(crate) fn after_transfer(self) -> Self {
        match self {
            Self::Cluster(_) | Self::Crashing(_) => self,
            _ => Self::Finishing,
        }
    }

    /// Fails if the claim refers to a storage class that does not exist.
    pub(crate) fn check_class(&self, target: &VolumeTarget) -> Result<(), PluginError> {
        match self {
            // This is the message of Kubernetes' volume controller.
            Self::Unbound(Some(words))
                if words.starts_with("storageclass.storage.k8s.io ")
                    && words.ends_with(" not found") =>
            {
                Err(unbound_claim(target, words))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, words) = match self {
            Self::Cluster(words) => return f.write_str(words),
            Self::FirstConsumer(target) => {
                return write!(
                    f,
                    "{target} waits for its first consumer: start the VM, or give --force-bind"
                );
            }
            Self::Claim => ("waiting for CDI to create the claim", None),
            Self::Unbound(words) => ("waiting for a volume for the claim", words.as_ref()),
            Self::Pod => ("waiting for CDI to start the pod", None),
            Self::Unscheduled(words) => ("waiting for a node for the pod", Some(words)),
            Self::Image(words) => ("waiting for the pod's image", Some(words)),
            Self::Starting(words) => ("waiting for the pod to start", words.as_ref()),
            Self::Crashing(words) => ("the pod has failed and is being retried", Some(words)),
            Self::NotReady => ("waiting for the pod to be ready", None),
            Self::Finishing => ("waiting for the pod to finish", None),
        };
        match words {
            Some(words) => write!(f, "{what}: {words}"),
            None => f.write_str(what),
        }
    }
}
