//! OpenStack services: Keystone, which authenticates users, and Glance, which stores images.

pub mod real;
pub mod script;
