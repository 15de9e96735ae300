//! The populators of Forklift as its controller starts them: flags, and a secret in the
//! environment; disk, progress and exit code out. OpenStack and the image server of oVirt are
//! real.

mod endings;
mod openstack;
mod ovirt;
mod pod;
mod usage;
