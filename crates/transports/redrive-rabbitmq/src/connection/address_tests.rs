//! Tests of reading the URL of a broker.

use proptest::prelude::*;

use super::*;

fn parse(url: &str) -> Result<Address, TransportError> {
    Address::parse(url, |_| None)
}

#[test]
fn the_password_is_in_nothing_that_is_shown() {
    let address = parse("amqps://alice:s3cr%40t@broker.example:5671/prod?heartbeat=5").unwrap();
    assert_eq!(address.uri().authority.userinfo.password, "s3cr@t");
    assert_eq!(address.to_string(), "amqps://broker.example:5671/prod");
    assert_eq!(format!("{address:?}"), "amqps://broker.example:5671/prod as alice");
    assert!(address.is_encrypted());
}

#[test]
fn an_address_that_is_none_is_not_repeated() {
    for url in [
        "alice:s3cret@host",
        "http://alice:s3cret@host/",
        "amqp://alice:s3cret@host:99999/",
        "amqp:s3cret",
        "amqp://alice:s3cret@",
        "amqp://alice:s3cret@host/?heartbeat=s3cret",
        "",
    ] {
        let error = parse(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{url}: {error:?}");
    }
}

#[test]
fn several_addresses_have_commas_between_them() {
    let shown = |urls: &[&str]| {
        let addresses = Addresses::parse(urls.iter().copied(), |_| None).unwrap();
        addresses.as_slice().iter().map(Address::to_string).collect::<Vec<_>>()
    };
    assert_eq!(shown(&["amqp://a"]), ["amqp://a:5672"]);
    assert_eq!(
        shown(&["amqp://u:p,amqp@a/v, amqps://b,amqp://c:1", "amqp://d"]),
        ["amqp://a:5672/v", "amqps://b:5671", "amqp://c:1", "amqp://d:5672"]
    );
    assert!(Addresses::parse([], |_| None).is_err());
    assert!(Addresses::parse(["amqp://a,", "b"], |_| None).is_err());
}

#[test]
fn credentials_come_from_the_url_and_then_from_the_environment() {
    let environment = |name: &str| match name {
        USER_VARIABLE => Some("bob".to_owned()),
        PASSWORD_VARIABLE => Some("hidden".to_owned()),
        _ => None,
    };
    let userinfo = |url| Address::parse(url, environment).unwrap().uri().authority.userinfo.clone();
    assert_eq!(userinfo("amqp://host/").username, "bob");
    assert_eq!(userinfo("amqp://host/").password, "hidden");
    assert_eq!(userinfo("amqp://alice:mine@host/").username, "alice");
    assert_eq!(parse("amqp://host").unwrap().user(), "guest");
}

#[test]
fn hosts_and_virtual_hosts() {
    assert_eq!(parse("amqp://[::1]:5673/").unwrap().uri().authority.host, "::1");
    assert_eq!(parse("amqp://[::1]:5673/").unwrap().to_string(), "amqp://[::1]:5673");
    assert_eq!(parse("amqp://127.0.0.1/").unwrap().uri().authority.host, "127.0.0.1");
    for (url, vhost) in [("amqp://h", "/"), ("amqp://h/", "/"), ("amqp://h/%2f", "/"), ("amqp://h/a", "a")] {
        assert_eq!(parse(url).unwrap().uri().vhost, vhost, "{url}");
    }
}

/// Returns everything that anybody could print of an address, or of the error about it.
fn shown(url: &str) -> String {
    match Addresses::parse([url], |_| None) {
        Ok(addresses) => format!("{addresses:?} {}", addresses.as_slice()[0]),
        Err(error) => format!("{error} {error:?}"),
    }
}

#[test]
fn a_password_with_characters_that_end_a_host_is_named_and_not_shown() {
    for password in
        ["hunter2/x", "5672/hunter2", "hunter2?x", "1?hunter2", "hunter2#x", "1#hunter2", "p@ss/hunter2"]
    {
        let shown = shown(&format!("amqp://ops:{password}@host"));
        assert!(!shown.contains("hunter2") && !shown.contains("5672") && shown.contains("%2F"), "{shown}");
    }
    for url in [
        "amqp://ops%3Ahunter2@host",
        "amqp://hunter2\u{1}@host",
        "amqp://ops:hun\nter2@host",
        "\"amqp://ops:hunter2@host",
        "amqp://ops:hunter2@ho st/",
        "amqp://ops:hunter2@[::1",
        "amqp://ops:hunter2@[hunter2]/",
        "ops:hunter2@host",
        "mqtt://ops:hunter2@host",
        "amqp://a,AMQP://ops:hunter2/x@b",
    ] {
        let error = Addresses::parse([url], |_| None).map(drop).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{url:?}: {error:?}");
    }
}

#[test]
fn what_can_be_read_is_read_in_the_ways_in_which_it_is_written() {
    for url in [
        "AMQPS://ops:h:u@nter%252@mq.example/shop",
        "\"amqps://ops:h%3Au%40nter%252@mq.example:5671/shop\"",
        " 'amqps://ops:h:u@nter%252@mq.example:/shop?password=hunter2' ",
    ] {
        let address: Address = url.parse().unwrap();
        assert_eq!(address.uri().authority.userinfo.password, "h:u@nter%2", "{url}");
        assert_eq!(format!("{address:?}"), "amqps://mq.example:5671/shop as ops");
        assert!(address.has_password());
    }
    assert_eq!(shown("\"amqp://a,AMQP://u:hunter2@b\"").matches("amqp://").count(), 3);
    let odd: Address = "amqp://host/a%2Fb%40c%0A".parse().unwrap();
    assert_eq!(
        (odd.to_string(), odd.uri().vhost.as_str()),
        ("amqp://host:5672/a%2Fb%40c%0A".into(), "a/b@c\n")
    );
    assert!(!odd.has_password());
}

proptest! {
    /// The secret is in every place that a URL has for it, among the characters that mislead parsers.
    #[test]
    fn no_text_made_from_an_address_contains_its_secret(
        scheme in "amqps?|AMQP|http|sb|",
        mark in "://|:|//|",
        user in "[a-z]{0,3}|a%40b|a%3A",
        before in "[0-9/?#@%:, \"'\\\\\n;=&.\\[\\]]{0,4}",
        after in "[0-9/?#@%:, \"'\\\\\n;=&.\\[\\]]{0,4}",
        host in "@(mq.example|\\[::1\\]|10.0.0.1|)(:5672|)",
        rest in "(/[a-z]{0,3}|/%2f|)([?]password=s3cret|[?]heartbeat=s3cret|#s3cret|)",
    ) {
        let url = format!("{scheme}{mark}{user}:{before}s3cret{after}{host}{rest}");
        let shown = shown(&url);
        prop_assert!(!shown.contains("s3cret"), "{}: {}", url, shown);
    }
}
