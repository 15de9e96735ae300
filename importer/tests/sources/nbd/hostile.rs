//! Servers that do what the protocol forbids.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use testkit::nbd_script::{NbdRequest, NbdScript, ScriptedNbd, option_reply};

use super::*;

fn run(script: NbdScript) -> Result<Received, SourceError> {
    let server = ScriptedNbd::start(script).unwrap();
    let access = Network {
        retry_policy: RetryPolicy { retries: Some(0), ..access().retry_policy },
        ..access()
    };
    fetch_with(&server.uri(), &access)
}

fn answering(answer: fn(&NbdRequest) -> Vec<u8>) -> Result<Received, SourceError> {
    run(NbdScript { answer, ..NbdScript::default() })
}

/// Reads from a server whose block status is valid, and whose replies to reads are `answer`.
macro_rules! reading {
    ($request:ident => $answer:expr) => {
        answering(|$request| match $request.command {
            7 => $request.status(&[($request.length, 0)]),
            _ => $answer,
        })
    };
}

#[track_caller]
fn refused(result: Result<Received, SourceError>, reason: &str) {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains(reason), "{message}");
}

#[test]
fn honest_replies_are_accepted() {
    assert!(reading!(request => request.sevens()).unwrap().bytes == vec![7; 1 << 20]);
    let plain = run(NbdScript {
        structured: false,
        answer: |request| {
            let mut bytes = 0x6744_6698_u32.to_be_bytes().to_vec();
            bytes.extend([0; 4]);
            bytes.extend(request.cookie.to_be_bytes());
            bytes.resize(16 + request.length as usize, 7);
            bytes
        },
        ..NbdScript::default()
    });
    assert!(plain.unwrap().bytes == vec![7; 1 << 20]);
}

#[test]
fn parts_out_of_order_are_put_together() {
    let received = reading!(request => {
        let end = request.offset + u64::from(request.length);
        let (tail, hole) = (end - 1000, end - 301_000);
        let head = usize::try_from(hole - request.offset).unwrap();
        let mut payload = hole.to_be_bytes().to_vec();
        payload.extend(300_000u32.to_be_bytes());
        [
            request.data(false, tail, &[9; 1000]),
            request.data(false, request.offset + 5, &vec![7; head - 5]),
            request.chunk(false, 2, &payload),
            request.data(false, request.offset, &[8; 5]),
            request.chunk(true, 0, &[]),
        ]
        .concat()
    });
    let bytes = received.unwrap().bytes;
    assert_eq!(bytes.len(), 1 << 20);
    assert_eq!(bytes[..6], [8, 8, 8, 8, 8, 7]);
    assert!(bytes[5..(1 << 20) - 301_000].iter().all(|byte| *byte == 7));
    assert!(bytes[(1 << 20) - 301_000..(1 << 20) - 1000].iter().all(|byte| *byte == 0));
    assert!(bytes[(1 << 20) - 1000..].iter().all(|byte| *byte == 9));
}

#[test]
fn data_that_was_not_requested_is_refused() {
    refused(
        reading!(request => request.data(true, request.offset + 1, &vec![7; request.length as usize])),
        "1048576 bytes at offset 1 do not belong to a read of 1048576 bytes at offset 0",
    );
    refused(
        reading!(request => request.data(true, u64::MAX, &[7])),
        "1 bytes at offset 18446744073709551615",
    );
    refused(
        reading!(request => [request.data(false, 0, &[7; 10]), request.data(true, 9, &[7; 10])].concat()),
        "some of the 10 bytes at offset 9 arrive twice",
    );
    refused(
        reading!(request => request.data(true, 0, &[7; 10])),
        "bytes are missing in the read of 1048576 bytes at offset 0",
    );
    refused(reading!(request => request.data(true, 0, &[])), "0 bytes at offset 0");
    refused(reading!(request => request.chunk(true, 1, &[0; 7])), "a data chunk of 7 bytes");
    refused(reading!(request => request.chunk(true, 2, &[0; 11])), "11 bytes, expected 12");
    refused(
        reading!(request => request.chunk(true, 2, b"\0\0\0\0\0\0\0\0\xff\xff\xff\xff")),
        "4294967295 bytes at offset 0 do not belong to a read",
    );
    refused(
        reading!(request => (0..5000u64).flat_map(|n| request.data(false, n * 2, &[7])).collect()),
        "more than 1024 parts out of order",
    );
}

#[test]
fn replies_without_a_request_and_malformed_chunks_are_refused() {
    refused(
        reading!(request => NbdRequest { cookie: 99, ..*request }.sevens()),
        "cookie 99, which belongs to no open request",
    );
    let twice = run(NbdScript {
        size: 8 << 20,
        answer: |request| match request.command {
            7 => request.status(&[(request.length, 0)]),
            _ => [request.sevens(), request.sevens()].concat(),
        },
        ..NbdScript::default()
    });
    refused(twice, "which belongs to no open request");
    refused(reading!(_request => vec![1; 100]), "a reply begins with 0x01010101");
    refused(reading!(request => request.chunk(true, 77, &[])), "a chunk of type 77");
    refused(reading!(request => request.chunk(false, 0, &[])), "a chunk of type 0");
    refused(reading!(request => request.status(&[(5, 0)])), "block status in answer to a read");
    refused(
        reading!(request => request.chunk(true, 0x8001, &[0; 6])),
        "an error without an error number",
    );
    refused(
        reading!(request => request.chunk(true, 0x8001, b"\0\0\0\x05\xff\xff")),
        "cannot hold the error",
    );
    refused(reading!(request => request.chunk(true, 0x8001, &[1; 9000])), "an error of 9000 bytes");
}

#[test]
fn errors_contain_the_message_of_the_server() {
    let error = reading!(request => {
        // Data that comes before an error in the same reply is not valid.
        let good = request.data(false, request.offset, &[7; 4096]);
        [good, request.chunk(true, 0x8001, b"\0\0\0\x01\0\x09no\x1b entry")].concat()
    });
    refused(error, r"at offset 0 with EPERM (1): no\u{1b} entry");
}

#[test]
fn invalid_block_status_is_refused() {
    let status = |answer| answering(answer);
    refused(status(|request| request.status(&[(0, 0)])), "no bytes at offset 0");
    refused(
        status(|request| request.status(&[(request.length, 3), (512, 0)])),
        "extends beyond the 1048576 requested bytes",
    );
    refused(status(|request| request.status(&[])), "block status in 4 bytes");
    refused(status(|request| request.chunk(true, 5, &[0; 11])), "block status in 11 bytes");
    refused(status(|request| request.chunk(true, 5, &[0; 12])), "not requested");
    refused(status(|request| request.chunk(true, 0, &[])), "no block status");
    refused(status(NbdRequest::sevens), "data in answer to a block status request");
    // A status may cover less than was requested, and its last extent may be longer.
    let slow = answering(|request| match request.command {
        7 => request.status(&[(request.length.min(3000), 3)]),
        _ => request.sevens(),
    });
    assert_eq!(slow.unwrap().bytes.len(), 1 << 20);
    let long = answering(|request| request.status(&[(u32::MAX, 3)])).unwrap();
    assert_eq!((long.bytes.len(), long.zeros), (1 << 20, 1 << 20));
}

#[test]
fn endless_and_repeated_replies_are_refused() {
    let errors = reading!(request => request.chunk(false, 0x8001, b"\0\0\0\x05\0\0").repeat(5000));
    refused(errors, "more than 4096 errors in the reply to one request");
    refused(
        answering(|request| match request.command {
            7 => {
                let half = [1u32, 4096, 0].iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
                [request.chunk(false, 5, &half), request.chunk(true, 5, &half)].concat()
            }
            _ => request.sevens(),
        }),
        "block status twice in one reply",
    );
}

#[test]
fn block_status_of_single_bytes_is_given_up() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let received = answering(|request| match request.command {
        7 => {
            ASKED.fetch_add(1, Ordering::Relaxed);
            request.status(&[(1, 0)])
        }
        _ => request.sevens(),
    });
    assert!(received.unwrap().bytes == vec![7; 1 << 20]);
    assert!(ASKED.load(Ordering::Relaxed) < 20, "{ASKED:?}");
}

#[test]
fn a_reply_that_arrives_byte_by_byte_is_given_up() {
    let script = NbdScript {
        structured: false,
        answer: |request| {
            let mut head = 0x6744_6698_u32.to_be_bytes().to_vec();
            head.extend([0; 4]);
            head.extend(request.cookie.to_be_bytes());
            head
        },
        drip: Some(Duration::from_millis(50)),
        ..NbdScript::default()
    };
    let server = ScriptedNbd::start(script).unwrap();
    let access = Network {
        retry_policy: RetryPolicy {
            no_progress_limit: Duration::from_secs(3),
            ..access().retry_policy
        },
        ..access()
    };
    let started = std::time::Instant::now();
    let error = fetch_with(&server.uri(), &access).err().unwrap().to_string();
    assert!(error.starts_with("no new byte for 3 s at byte 0"), "{error}");
    // The bytes come over a real socket, so that the limit counts real time.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn invalid_handshakes_are_refused() {
    let greeted = |greeting: &[u8]| {
        run(NbdScript { greeting: Some(greeting.to_vec()), ..NbdScript::default() })
    };
    refused(greeted(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "which is not an NBD greeting");
    refused(greeted(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0\0\0"), "the oldstyle protocol only");
    refused(greeted(b"NBDMAGICIHAVEOPT\0\0"), "does not speak the fixed newstyle");
    let sized = |size| run(NbdScript { size, ..NbdScript::default() });
    refused(sized(u64::MAX), "announces 18446744073709551615 bytes");
    let option =
        |reply: Vec<u8>| run(NbdScript { option: Some((7, reply)), ..NbdScript::default() });
    refused(option(option_reply(7, 1, &[])), "without reporting its size");
    refused(option(option_reply(8, 1, &[])), "the reply to option 7");
    refused(option(option_reply(7, 3, &[0; 5])), "wrong length");
    refused(option(option_reply(7, 3, &[0; 40_000])), "40000 bytes");
    refused(option(option_reply(7, 2, &[]).repeat(70)), "more than 64 replies");
    refused(option(option_reply(7, (1 << 31) + 1, &[])), "NBD_OPT_GO");
    refused(
        option(option_reply(7, (1 << 31) + 2, b"go\naway")),
        "refuses access to the export \"disk\": go away",
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any bytes in place of the description of the export end in an error.
    #[test]
    fn any_bytes_in_reply_to_an_option_are_an_error(
        number in prop::sample::select(vec![7u32, 8, 10]),
        kind in prop::sample::select(vec![1u32, 3, 4, (1 << 31) + 1, 99]),
        data in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let reply = [option_reply(number, kind, &data), option_reply(number, 1, &[])].concat();
        let result = run(NbdScript {
            option: Some((number, reply)),
            ..NbdScript::default()
        });
        prop_assert!(result.is_err());
    }
}
