//! No secret that has a name or a form comes through.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use redrive_core::redact;

/// A secret, told apart from everything around it by its letters.
fn secret(letters: &'static str) -> impl Strategy<Value = String> {
    letters.prop_map(|secret| format!("Zq{secret}qZ"))
}

/// Blanks and quotes end an unquoted value, and what looks like the next name with its `=`; nothing else does.
const PLAIN: &str = "[A-Za-z0-9!#$%&()*+,./:;<>?@_~^|{}\\[\\]-]{4,30}";
/// Within quotes everything is allowed but the quote itself.
const QUOTED: &str = "[A-Za-z0-9 !#$%&()*+,./:;<=>?@_~^|{}ä€'-]{4,30}";
const BASE64: &str = "[A-Za-z0-9_-]{8,30}";

const NAMES: [&str; 22] = [
    "password",
    "Password",
    "pwd",
    "PWD",
    "passwd",
    "DB_PASSWORD",
    "spring.datasource.password",
    "secret",
    "client_secret",
    "clientSecret",
    "token",
    "access_token",
    "refresh_token",
    "id-token",
    "api_key",
    "apikey",
    "X-Api-Key",
    "AccountKey",
    "SharedAccessKey",
    "SharedAccessSignature",
    "private_key",
    "AWS_SECRET_ACCESS_KEY",
];

/// What stands around: nothing that makes the secret longer than it is.
fn around() -> impl Strategy<Value = (String, String)> {
    let before =
        prop_oneof![Just(String::new()), Just("error: ".into()), Just("ä (".into()), Just("a=b;".into())];
    let after = prop_oneof![Just(String::new()), Just(" and more".into()), Just("\nnext: line".into())];
    (before, after)
}

fn check(text: &str, secret: &str) -> Result<(), TestCaseError> {
    let redacted = redact(text);
    prop_assert!(!redacted.contains(secret), "{text:?} became {redacted:?}");
    // Nor the most of it: a cut at the wrong place would leave a part.
    let letters: Vec<char> = secret.chars().collect();
    for part in [letters.first_chunk::<4>(), letters.last_chunk::<4>()].into_iter().flatten() {
        let part: String = part.iter().collect();
        prop_assert!(!redacted.contains(&part), "{text:?} became {redacted:?}, with {part:?}");
    }
    prop_assert_eq!(&redact(&redacted), &redacted);
    Ok(())
}

proptest! {
    #[test]
    fn not_of_a_url(
        secret in secret("[A-Za-z0-9!$%&*+,;=@/:._~-]{4,30}"), scheme in "[a-z]{2,8}", user in "[a-z%.]{0,9}",
        (before, after) in around(),
    ) {
        // `pwd://…` reads as the value of a password, and more is masked than the password of the URL.
        prop_assume!(!["pwd", "passwd", "password", "secret", "token", "apikey", "sig"].iter().any(|name| scheme.ends_with(name)));
        let text = format!("{before}{scheme}://{user}:{secret}@host.example:5672/vhost{after}");
        check(&text, &secret)?;
        let redacted = format!("{before}{scheme}://{user}:***@host.example:5672/vhost{after}");
        prop_assert_eq!(redact(&text), redacted);
        let list = format!("amqp://a:{secret}@h1/v, amqp://b:{secret}@h2/w");
        prop_assert_eq!(redact(&list), "amqp://a:***@h1/v, amqp://b:***@h2/w");
    }

    #[test]
    fn not_of_a_named_value(
        name in proptest::sample::select(&NAMES[..]), sign in prop_oneof![Just("="), Just(" = "), Just(":"), Just(": ")],
        secret in secret(PLAIN), (before, after) in around(),
    ) {
        check(&format!("{before}{name}{sign}{secret}{after}"), &secret)?;
    }

    #[test]
    fn not_of_a_quoted_value(
        name in proptest::sample::select(&NAMES[..]), secret in secret(QUOTED), (before, after) in around(),
    ) {
        for text in [
            format!("{before}{{\"{name}\":\"{secret}\",\"port\":1}}{after}"),
            format!("{before}{{\"{name}\" : \"{secret}\"}}{after}"),
            format!("{before}{{\\\"{name}\\\":\\\"{secret}\\\",\\\"port\\\":1}}{after}"),
            format!("{before}{name}=\"{secret}\"{after}"),
            format!("{before}Config {{ {name}: Some(\"{secret}\"), port: 1 }}{after}"),
        ] {
            check(&text, &secret)?;
        }
    }

    #[test]
    fn not_of_a_header(secret in secret("[A-Za-z0-9+/._~-]{4,30}={0,2}"), (before, after) in around()) {
        let secret = secret.trim_end_matches("qZ").to_owned();
        for form in ["Authorization: Bearer ", "authorization: Basic ", "Authorization=", "Bearer ", "bearer  "] {
            check(&format!("{before}{form}{secret}{after}"), &secret)?;
        }
        check(&format!("{before}\"Authorization\": \"Bearer {secret}\"{after}"), &secret)?;
    }

    #[test]
    fn not_of_a_known_form(body in secret(BASE64), key in "[A-Z0-9]{16}", (before, after) in around()) {
        check(&format!("{before}eyJhbGciOiJIUzI1NiJ9.{body}.{body}{after}"), &body)?;
        check(&format!("{before}AKIA{key}{after}"), &format!("AKIA{key}"))?;
        let pem = format!("{before}-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----{after}");
        check(&pem, &body)?;
        check(&format!("{before}sv=1&sig={body}&se=2{after}"), &body)?;
    }

    #[test]
    fn nothing_makes_it_panic_grow_or_change_its_mind(text in any::<String>()) {
        let redacted = redact(&text);
        prop_assert!(redacted.len() <= 2 * text.len());
        prop_assert_eq!(redact(&redacted), redacted);
    }

    #[test]
    fn nor_do_pieces_of_the_forms(
        pieces in proptest::collection::vec(proptest::sample::select(&[
            "://", "amqp://u:", "@", "/", ":", "=", "password", "token", "\"", "'", "\\", "\\\"", " ", "***", "ab", "ä", ";",
            ",", "&", "Bearer ", "Authorization", "eyJa", ".", "AKIA", "-----BEGIN PRIVATE KEY-----", "-----END ", "(",
            "Some(", "null", "sig", "\n", "}", "?", "basic ", "expected ", "80",
        ][..]), 0..24),
    ) {
        let text = pieces.concat();
        let redacted = redact(&text);
        prop_assert!(redacted.len() <= 3 * text.len());
        prop_assert_eq!(&redact(&redacted), &redacted, "{:?}", text);
    }
}

/// A hundred times as long must not take ten thousand times as long. Each of these repeats what one of the
/// searches begins at, so that it could read on to the end of the text from each.
#[test]
fn long_texts_take_linear_time() {
    for piece in [
        "x://u:p",
        "a://u:***@",
        "token:***.",
        "password:",
        "token=\"",
        "\"token\":null,",
        "bearer ",
        "bearer-",
        "eyJ",
        "eyJa.",
        ".",
        "AKIA",
        "A-",
        "-----BEGIN ",
        "-----END ",
        ",a",
        ";",
        "\\",
        "=",
        ": ",
        "Authorization: ",
        "ä",
        "basic ",
        "x://u:***@ ",
        "x://u:80/@",
        "password=a,",
        "password=;",
        "password=,\"",
        "password:***,",
        "password=\\\"",
        "token: null ",
    ] {
        let text = piece.repeat(100_000 / piece.len());
        let is_quick = || {
            let start = Instant::now();
            let _ = redact(&text);
            start.elapsed() < Duration::from_secs(3)
        };
        // The machine may stand still in one of them; who reads on to the end from everywhere takes too long in each.
        assert!((0..5).any(|_| is_quick()), "{piece:?}");
    }
}
