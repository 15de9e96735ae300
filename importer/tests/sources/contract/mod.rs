//! One contract for every source, whatever its protocol: it delivers the same disks, resumes
//! after broken connections, knows the size of its object, and leaves nothing behind when it
//! fails. Each real server is tested against the whole contract, and a scripted server of each kind
//! against the part that needs no other program.

mod images;
mod promises;
mod servers;

use self::servers::glance::Glance;
use self::servers::http::Nginx;
use self::servers::imageio::ImageIo;
use self::servers::nbd::Nbd;
use self::servers::objects::{Gcs, Moto, S3s};
use self::servers::registry::Registry;
use self::servers::scripted;

/// Defines a module with a test for each promise of a server.
macro_rules! keeps {
    ($name:ident, $server:ty, $($lane:literal,)? { $($test:ident => $promise:ident,)+ }) => {
        mod $name {
            use super::*;

            keeps!(@ $server, $($lane,)? $($test => $promise,)+);
        }
    };
    (@ $server:ty, $lane:literal, $($test:ident => $promise:ident,)+) => {
        $(
            #[test]
            #[ignore = $lane]
            fn $test() {
                promises::$promise::<$server>();
            }
        )+
    };
    (@ $server:ty, $($test:ident => $promise:ident,)+) => {
        $(
            #[test]
            fn $test() {
                promises::$promise::<$server>();
            }
        )+
    };
}

/// The tests of the contract for one server. The lane is the same for all, because some of them
/// need it.
macro_rules! fulfills_the_contract {
    ($name:ident, $server:ty, $lane:literal) => {
        keeps!($name, $server, $lane, {
            every_image_on_every_target_is_what_qemu_img_makes_of_it => images,
            a_cut_costs_less_than_one_percent => cuts,
            a_missing_object_is_an_error_of_the_source => missing,
            progress_knows_the_total => progress,
            several_connections_bring_the_same_disk => connections,
        });
    };
}

/// Further tests for a server that speaks HTTP.
macro_rules! survives_what_http_servers_do {
    ($name:ident, $server:ty, $lane:literal) => {
        keeps!($name, $server, $lane, {
            an_overloaded_server_is_asked_again => overload,
            a_flipped_bit_is_found => corruption,
        });
    };
}

/// Further tests for a server that has passwords.
macro_rules! asks_for_a_password {
    ($name:ident, $server:ty, $lane:literal) => {
        keeps!($name, $server, $lane, { a_wrong_password_is_reported => strangers, });
    };
}

fulfills_the_contract!(http, Nginx, "server: nginx");
fulfills_the_contract!(s3s, S3s, "server: object stores");
fulfills_the_contract!(moto, Moto, "server: object stores");
fulfills_the_contract!(gcs, Gcs, "server: object stores");
fulfills_the_contract!(registry, Registry, "server: docker-registry");
fulfills_the_contract!(imageio, ImageIo, "root: loop devices");
fulfills_the_contract!(glance, Glance, "root: loop devices");
fulfills_the_contract!(nbd, Nbd, "server: nbdkit");
survives_what_http_servers_do!(http_faults, Nginx, "server: nginx");
survives_what_http_servers_do!(s3s_faults, S3s, "server: object stores");
survives_what_http_servers_do!(gcs_faults, Gcs, "server: object stores");
survives_what_http_servers_do!(glance_faults, Glance, "slow: waits 6 s");
survives_what_http_servers_do!(registry_faults, Registry, "server: docker-registry");
asks_for_a_password!(http_passwords, Nginx, "server: nginx");
asks_for_a_password!(glance_passwords, Glance, "root: loop devices");
asks_for_a_password!(registry_passwords, Registry, "server: docker-registry");

// VMware's disks are in `crate::vmware`, files and pipes in `tests/images`.
keeps!(scripted_http, scripted::Http, { a_disk_arrives_in_spite_of_a_cut => one_cut, });
keeps!(scripted_s3, scripted::S3, { a_disk_arrives_in_spite_of_a_cut => one_cut, });
keeps!(scripted_gcs, scripted::Gcs, { a_disk_arrives_in_spite_of_a_cut => one_cut, });
keeps!(scripted_registry, scripted::Registry, { a_disk_arrives_in_spite_of_a_cut => one_cut, });
keeps!(scripted_imageio, ImageIo, { a_disk_arrives_in_spite_of_a_cut => one_cut, });
keeps!(scripted_glance, Glance, { a_disk_arrives_in_spite_of_a_cut => one_cut, });
keeps!(scripted_nbd, Nbd, "tools: qemu-nbd", { a_disk_arrives_in_spite_of_a_cut => one_cut, });
