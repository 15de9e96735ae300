//! One contract for every source, whatever its protocol: it delivers the same disks, resumes
//! after broken connections, knows the size of its object, and leaves nothing behind when it
//! fails. Each real server is tested against the whole contract.

mod images;
mod promises;
mod servers;

/// The tests of the contract for one server. The lane is the same for all, because some of them
/// need it.
macro_rules! fulfills_the_contract {
    ($name:ident, $server:ty, $lane:literal) => {
        mod $name {
            use crate::contract::promises;

            type Server = $server;

            #[test]
            #[ignore = $lane]
            fn every_image_on_every_target_is_what_qemu_img_makes_of_it() {
                promises::images::<Server>();
            }

            #[test]
            #[ignore = $lane]
            fn a_cut_costs_less_than_one_percent() {
                promises::cuts::<Server>();
            }

            #[test]
            #[ignore = $lane]
            fn a_missing_object_is_an_error_of_the_source() {
                promises::missing::<Server>();
            }

            #[test]
            #[ignore = $lane]
            fn progress_knows_the_total() {
                promises::progress::<Server>();
            }

            #[test]
            #[ignore = $lane]
            fn several_connections_bring_the_same_disk() {
                promises::connections::<Server>();
            }
        }
    };
}

/// Further tests for a server that speaks HTTP.
macro_rules! survives_what_http_servers_do {
    ($name:ident, $server:ty, $lane:literal) => {
        mod $name {
            use crate::contract::promises;

            type Server = $server;

            #[test]
            #[ignore = $lane]
            fn an_overloaded_server_is_asked_again() {
                promises::overload::<Server>();
            }

            #[test]
            #[ignore = $lane]
            fn a_flipped_bit_is_found() {
                promises::corruption::<Server>();
            }
        }
    };
}

/// Further tests for a server that has passwords.
macro_rules! asks_for_a_password {
    ($name:ident, $server:ty, $lane:literal) => {
        mod $name {
            #[test]
            #[ignore = $lane]
            fn a_wrong_password_is_reported() {
                crate::contract::promises::strangers::<$server>();
            }
        }
    };
}

fulfills_the_contract!(http, crate::contract::servers::http::Http, "server: nginx");
fulfills_the_contract!(s3s, crate::contract::servers::objects::S3s, "server: object stores");
fulfills_the_contract!(moto, crate::contract::servers::objects::Moto, "server: object stores");
fulfills_the_contract!(gcs, crate::contract::servers::objects::Gcs, "server: object stores");
fulfills_the_contract!(
    registry,
    crate::contract::servers::registry::Registry,
    "server: docker-registry"
);
fulfills_the_contract!(imageio, crate::contract::servers::imageio::ImageIo, "root: loop devices");
fulfills_the_contract!(glance, crate::contract::servers::glance::Glance, "root: loop devices");
fulfills_the_contract!(nbd, crate::contract::servers::nbd::Nbd, "server: nbdkit");
survives_what_http_servers_do!(http_faults, crate::contract::servers::http::Http, "server: nginx");
survives_what_http_servers_do!(
    s3s_faults,
    crate::contract::servers::objects::S3s,
    "server: object stores"
);
survives_what_http_servers_do!(
    gcs_faults,
    crate::contract::servers::objects::Gcs,
    "server: object stores"
);
survives_what_http_servers_do!(
    glance_faults,
    crate::contract::servers::glance::Glance,
    "slow: waits 6 s"
);
survives_what_http_servers_do!(
    registry_faults,
    crate::contract::servers::registry::Registry,
    "server: docker-registry"
);
asks_for_a_password!(http_passwords, crate::contract::servers::http::Http, "server: nginx");
asks_for_a_password!(
    glance_passwords,
    crate::contract::servers::glance::Glance,
    "root: loop devices"
);
asks_for_a_password!(
    registry_passwords,
    crate::contract::servers::registry::Registry,
    "server: docker-registry"
);
