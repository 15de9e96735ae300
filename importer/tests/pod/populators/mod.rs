//! The populators of Forklift as its controller starts them: flags, and a secret in the environment; disk, progress and exit code out.
//! OpenStack is the real one, and so is the image server of oVirt.

mod endings;
mod openstack;
mod ovirt;
mod pod;
mod usage;
