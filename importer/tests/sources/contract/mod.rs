//! One contract for every source, whatever its protocol: it delivers the same disks, resumes
//! after broken connections, knows the size of its object, and leaves nothing behind when it
//! fails. Each real server is tested against the whole contract.

mod images;
mod promises;
mod servers;

/// The tests of the contract for one server.
macro_rules! fulfills_the_contract {
    ($name:ident, $server:ty) => {
        mod $name {
            use crate::contract::promises;

            type Server = $server;

            #[test]
            fn every_image_on_every_target_is_what_qemu_img_makes_of_it() {
                promises::images::<Server>();
            }

            #[test]
            fn a_cut_costs_less_than_one_percent() {
                promises::cuts::<Server>();
            }

            #[test]
            fn a_missing_object_is_an_error_of_the_source() {
                promises::missing::<Server>();
            }

            #[test]
            fn progress_knows_the_total() {
                promises::progress::<Server>();
            }

            #[test]
            fn several_connections_bring_the_same_disk() {
                promises::connections::<Server>();
            }
        }
    };
}

/// Further tests for a server that speaks HTTP.
macro_rules! survives_what_http_servers_do {
    ($name:ident, $server:ty) => {
        mod $name {
            use crate::contract::promises;

            type Server = $server;

            #[test]
            fn an_overloaded_server_is_asked_again() {
                promises::overload::<Server>();
            }

            #[test]
            fn a_flipped_bit_is_found() {
                promises::corruption::<Server>();
            }
        }
    };
}

/// Further tests for a server that has passwords.
macro_rules! asks_for_a_password {
    ($name:ident, $server:ty) => {
        mod $name {
            #[test]
            fn a_wrong_password_is_reported() {
                crate::contract::promises::strangers::<$server>();
            }
        }
    };
}

fulfills_the_contract!(http, crate::contract::servers::http::Http);
fulfills_the_contract!(s3s, crate::contract::servers::objects::S3s);
fulfills_the_contract!(moto, crate::contract::servers::objects::Moto);
fulfills_the_contract!(gcs, crate::contract::servers::objects::Gcs);
fulfills_the_contract!(registry, crate::contract::servers::registry::Registry);
fulfills_the_contract!(imageio, crate::contract::servers::imageio::ImageIo);
fulfills_the_contract!(glance, crate::contract::servers::glance::Glance);
fulfills_the_contract!(nbd, crate::contract::servers::nbd::Nbd);
survives_what_http_servers_do!(http_faults, crate::contract::servers::http::Http);
survives_what_http_servers_do!(s3s_faults, crate::contract::servers::objects::S3s);
survives_what_http_servers_do!(gcs_faults, crate::contract::servers::objects::Gcs);
survives_what_http_servers_do!(glance_faults, crate::contract::servers::glance::Glance);
survives_what_http_servers_do!(registry_faults, crate::contract::servers::registry::Registry);
asks_for_a_password!(http_passwords, crate::contract::servers::http::Http);
asks_for_a_password!(glance_passwords, crate::contract::servers::glance::Glance);
asks_for_a_password!(registry_passwords, crate::contract::servers::registry::Registry);
