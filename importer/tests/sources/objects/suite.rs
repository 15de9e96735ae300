//! Tests that hold for every object store, besides the contract of all sources.

use super::*;

#[test]
#[ignore = "server: object stores"]
fn an_object_that_was_replaced_is_never_joined_with_the_old_one() {
    for_every_store(|store| {
        let setup = Setup::new(store, "replaced", vec![Fault::Cut(10_000)]);
        let source = setup.open_and_replace(10_000, &noise(1));
        let error = read_all(&*source).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the object changed during the transfer: "), "{text}");
        assert!(text.ends_with("Start the import again"), "{text}");
    });
}

#[test]
#[ignore = "server: object stores"]
fn keys_with_odd_characters_are_requested_unchanged() {
    let content = noise(2);
    for_every_store(|store| {
        for key in
            ["with space/plus+plus", "ümläut/日本", "a=b&c;d,e@f:g!h'(i)*[j]~k", "per%cent%41"]
        {
            store.put(key, &content);
            // S3's endpoints decode what is percent-encoded; those of Google do not.
            let written = match store.kind() {
                Kind::Gcs => key.to_owned(),
                _ => key.replace('%', "%25"),
            };
            let url = format!("http://{}/{BUCKET}/{written}", store.address());
            let source = open(store.kind(), &url, &access(store.kind()));
            let source = source.unwrap_or_else(|error| panic!("{:?} {key}: {error}", store.kind()));
            assert!(read_all(&*source).unwrap() == content, "{:?} {key}", store.kind());
        }
    });
}
