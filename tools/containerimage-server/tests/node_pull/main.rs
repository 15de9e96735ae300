//! The server as a pod runs it, asked by curl.

mod lifecycle;
mod requests;
mod scene;
