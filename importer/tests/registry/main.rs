//! Imports from container registries: `docker-registry` filled by skopeo, and layouts on a disk.

mod disks;

mod scene;
