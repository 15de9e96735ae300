//! OpenStack: Keystone, which knows users, and Glance, which has images.

pub mod real;
pub mod script;
