//! Tests of reading connection strings.

use proptest::prelude::*;

use super::*;

const PORTAL: &str =
    "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0+/=";

#[test]
fn what_the_portal_shows_is_read() {
    let parsed = Address::parse(PORTAL).expect("it is well-formed");
    assert_eq!(parsed.target(), ("shop.servicebus.windows.net", 5671));
    assert!(
        matches!(&parsed.credential, Credential::Key { name, key } if name == "Root" && key == "c2VjcmV0+/=")
    );
    assert_eq!((parsed.entity_path, parsed.development_emulator), (None, false));
}

#[test]
fn what_other_places_have_is_read() {
    for text in [
        "Endpoint=shop.servicebus.windows.net;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0+/=",
        "Endpoint=SB://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0+/=;",
        "\u{feff} \"Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0+/=;\"\n",
        "' SharedAccessKey = c2VjcmV0+/= ; sharedaccesskeyname=Root;; ENDPOINT = sb://shop.servicebus.windows.net '",
    ] {
        let parsed = Address::parse(text).expect(text);
        assert_eq!(parsed.target(), ("shop.servicebus.windows.net", 5671));
        assert!(
            matches!(&parsed.credential, Credential::Key { name, key } if name == "Root" && key == "c2VjcmV0+/=")
        );
    }
}

#[test]
fn the_emulators_is_read_with_its_port() {
    let text =
        "Endpoint=sb://localhost:50123;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;";
    let parsed = Address::parse(text).expect("it is well-formed");
    assert_eq!(parsed.target(), ("localhost", 50123));
    assert!(parsed.development_emulator);
}

#[test]
fn names_of_parts_may_be_written_in_any_case_and_order() {
    let text =
        " entitypath = orders ; SHAREDACCESSSIGNATURE=SharedAccessSignature sr=x&sig=y ;endpoint=sb://h/";
    let parsed = Address::parse(text).expect("it is well-formed");
    assert_eq!(parsed.entity_path.as_deref(), Some("orders"));
    assert!(
        matches!(&parsed.credential, Credential::Token(text) if text == "SharedAccessSignature sr=x&sig=y")
    );
}

#[test]
fn an_ipv6_address_keeps_its_colons() {
    let at = |endpoint: &str| {
        let text = format!("Endpoint={endpoint};SharedAccessKeyName=a;SharedAccessKey=b");
        Address::parse(&text).map(|parsed| (parsed.host, parsed.port)).ok()
    };
    assert_eq!(at("sb://[::1]:5673/"), Some(("::1".into(), Some(5673))));
    assert_eq!(at("sb://[::1]"), Some(("::1".into(), None)));
}

#[test]
fn the_way_to_reach_it_is_read_in_the_words_of_others() {
    let at = |transport: &str| {
        let text = format!(
            "Endpoint=sb://h/;SharedAccessKeyName=a;SharedAccessKey=hunter2;TransportType={transport}"
        );
        Address::parse(&text).map(|parsed| parsed.target().1).map_err(|error| error.to_string())
    };
    assert_eq!((at("Amqp"), at("AmqpTcp")), (Ok(5671), Ok(5671)));
    let websockets = at("AmqpWebSockets");
    if cfg!(feature = "websockets") {
        assert_eq!(websockets, Ok(443));
    } else {
        assert!(websockets.is_err_and(|error| error.contains("feature `websockets`")));
    }
    let error = at("NetMessaging").expect_err("nobody speaks that any more");
    assert!(error.contains("TransportType") && !error.contains("hunter2"), "{error}");
}

#[cfg(feature = "entra")]
#[test]
fn an_identity_needs_the_name_of_a_host() {
    use std::sync::Arc;

    #[derive(Debug)]
    struct Nobody;
    #[async_trait::async_trait]
    impl azure_core::credentials::TokenCredential for Nobody {
        async fn get_token(
            &self,
            _: &[&str],
            _: Option<azure_core::credentials::TokenRequestOptions<'_>>,
        ) -> azure_core::Result<azure_core::credentials::AccessToken> {
            unreachable!("nobody asks")
        }
    }
    let at = |host: &str| Address::of_identity(host, Arc::new(Nobody));
    for host in ["shop.servicebus.windows.net", "sb://shop.servicebus.windows.net/"] {
        let address = at(host).expect("it is a host");
        assert_eq!(address.target(), ("shop.servicebus.windows.net", 5671));
    }
    for wrong in ["", "https://shop.servicebus.windows.net", "two words", PORTAL] {
        let error = at(wrong).expect_err("it is none").to_string();
        assert!(error.contains("NAMESPACE.servicebus.windows.net"), "{error}");
        assert!(!error.contains("c2VjcmV0"), "{error}");
    }
}

#[test]
fn what_is_missing_is_named_and_no_secret_is_shown() {
    for (text, named) in [
        ("", "Endpoint"),
        ("hunter2", "`=`"),
        ("Endpoint=https://h/;SharedAccessKeyName=a;SharedAccessKey=hunter2", "sb://"),
        ("Endpoint=sb://hunter2@h/;SharedAccessKeyName=a;SharedAccessKey=b", "host"),
        ("Endpoint=sb://a:hunter2@h/;SharedAccessKeyName=a;SharedAccessKey=b", "port"),
        ("Endpoint=sb://h:5300;SharedAccessKeyName=a;SharedAccessKey=hunter2", "administered"),
        ("SB=Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=hunter2", "name stands before"),
        ("SB=\"Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=hunter2\"", "quote"),
        ("\"Endpoint=sb://h;SharedAccessKeyName=a;SharedAccessKey=hunter2", "quote"),
        ("Endpoint=sb:///;SharedAccessKeyName=a;SharedAccessKey=hunter2", "host"),
        ("Endpoint=sb://h:99999/;SharedAccessKeyName=a;SharedAccessKey=hunter2", "port is beyond 65535"),
        ("Endpoint=sb://h:many/;SharedAccessKeyName=a;SharedAccessKey=hunter2", "port"),
        ("Endpoint=sb://h;SharedAccessKey=hunter2", "SharedAccessKeyName"),
        ("Endpoint=sb://h;SharedAccessKeyName=hunter2", "no `SharedAccessKey`"),
        ("Endpoint=sb://h;SharedAccessKey=hunter2;SharedAccessSignature=hunter2", "both"),
    ] {
        let error = Address::parse(text).expect_err("it is malformed").to_string();
        assert!(error.contains(named), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn debug_shows_no_secret() {
    for text in [PORTAL, "Endpoint=sb://h;SharedAccessSignature=c2VjcmV0+/="] {
        let parsed = Address::parse(text).expect("it is well-formed");
        assert!(!format!("{parsed:?} {:?}", parsed.credential).contains("c2VjcmV0"));
    }
}

proptest! {
    #[test]
    fn no_text_made_from_a_connection_string_contains_its_secret(
        endpoint in "(Endpoint=|)(sb|SB|https|)(://|)(a:s3cret@|s3cret@|)(h|\\[::1\\]|)(:s3cret|:1|)/?",
        name in ";|; SharedAccessKeyName=a;",
        key in "(sharedaccesskey|SharedAccessKey|SharedAccessSignature|Key|) ?=? ?[\"'/?#@%:=]{0,2}s3cret[\"'/?#@%:=; ]{0,2}",
    ) {
        let shown = match Address::parse(&format!("{endpoint}{name}{key}")) {
            Ok(address) => format!("{address:?} {:?}", address.target()),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains("s3cret"), "{endpoint}{name}{key}: {shown}");
    }

    #[test]
    fn anything_is_read_or_refused(text in ".{0,200}") {
        let _ = Address::parse(&text);
    }
}
