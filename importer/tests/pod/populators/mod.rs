//! The populators of Forklift as its controller starts them, by flags and a secret in the
//! environment. OpenStack and the image server of oVirt are real.

mod endings;
mod openstack;
mod ovirt;
mod pod;
mod usage;
