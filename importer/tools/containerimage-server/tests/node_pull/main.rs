//! The server as a pod runs it, asked by curl and by the importer.

mod importer;
mod lifecycle;
mod requests;
mod scene;
