//! Both routes over images that are built byte by byte.

mod damage;
mod orders;
mod testing;
