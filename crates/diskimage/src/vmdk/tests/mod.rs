//! Both routes, with images that are built byte by byte.

mod damage;
mod orders;
