//! What an upload or an import waits for.

use std::fmt;

use super::destination::VolumeTarget;
use super::error::ClusterError;

/// What is being waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// The API server, which was there before.
    Cluster(String),
    /// CDI, which has not made the claim yet.
    Claim,
    /// A volume for the claim, and the last complaint about that.
    Unbound(Option<String>),
    /// A VM that uses the claim.
    FirstConsumer(VolumeTarget),
    /// CDI, which has not made the pod yet.
    Pod,
    /// A node on which the pod fits.
    Unscheduled(String),
    /// The pod's image.
    Image(String),
    /// The start of the pod, and the last complaint about that.
    Starting(Option<String>),
    /// The pod's next attempt.
    Crashing(String),
    /// The program in the pod.
    NotReady,
    /// The pod, which has all that it needs.
    Finishing,
}

impl WaitReason {
    /// What is left to wait for once all bytes were sent: claims are bound anew, and the pod and
    /// its claim disappear.
    pub(crate) fn after_transfer(self) -> Self {
        match self {
            Self::Cluster(_) | Self::Crashing(_) => self,
            _ => Self::Finishing,
        }
    }

    /// Fails if the claim names a storage class that does not exist.
    pub(crate) fn check_class(&self, target: &VolumeTarget) -> Result<(), ClusterError> {
        match self {
            // The words of Kubernetes' volume controller.
            Self::Unbound(Some(words))
                if words.starts_with("storageclass.storage.k8s.io ") && words.ends_with(" not found") =>
            {
                Err(ClusterError::NoClaim { target: target.clone(), words: words.clone() })
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
            Self::Claim => ("waiting for CDI to make the claim", None),
            Self::Unbound(words) => ("waiting for a volume for the claim", words.as_ref()),
            Self::Pod => ("waiting for CDI to start the pod", None),
            Self::Unscheduled(words) => ("waiting for a node for the pod", Some(words)),
            Self::Image(words) => ("waiting for the pod's image", Some(words)),
            Self::Starting(words) => ("waiting for the pod to start", words.as_ref()),
            Self::Crashing(words) => ("the pod has failed and is tried again", Some(words)),
            Self::NotReady => ("waiting for the pod to be ready", None),
            Self::Finishing => ("waiting for the pod to finish", None),
        };
        match words {
            Some(words) => write!(f, "{what}: {words}"),
            None => f.write_str(what),
        }
    }
}
