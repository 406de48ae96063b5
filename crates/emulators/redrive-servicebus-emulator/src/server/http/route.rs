//! Finds the operation of a request by its method and path.

use std::time::Duration;

use hyper::{Method, Uri};
use percent_encoding::percent_decode_str;
use uuid::Uuid;

/// Default wait for a message, if the request has no timeout.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);
/// Maximum wait.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The requested operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    /// The next message, locked.
    PeekLock {
        wait: Duration,
    },
    /// The next message, gone.
    ReceiveAndDelete {
        wait: Duration,
    },
    Complete(Uuid),
    Unlock(Uuid),
    Renew(Uuid),
}

/// Why a request has no operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// The path is not part of this API.
    Path,
    /// The path does not support this method.
    Method,
}

/// Parses method and path. The entity is as the client wrote it; names may contain slashes.
pub(super) fn route(method: &Method, uri: &Uri) -> Result<(String, Verb), NoRoute> {
    let path = percent_decode_str(uri.path().trim_matches('/')).decode_utf8_lossy();
    let parts: Vec<&str> = path.split('/').collect();
    let is = |part: &str, word: &str| part.eq_ignore_ascii_case(word);
    let (entity, verb) = match parts.as_slice() {
        [entity @ .., messages] if is(messages, "messages") => match *method {
            Method::POST => (entity, Verb::Send),
            _ => return Err(NoRoute::Method),
        },
        [entity @ .., messages, head] if is(messages, "messages") && is(head, "head") => {
            let wait = wait(uri.query().unwrap_or_default());
            match *method {
                Method::POST => (entity, Verb::PeekLock { wait }),
                Method::DELETE => (entity, Verb::ReceiveAndDelete { wait }),
                _ => return Err(NoRoute::Method),
            }
        }
        // The lock alone identifies the message; its number or id in the path is for people.
        [entity @ .., messages, _, lock] if is(messages, "messages") => {
            let lock = Uuid::try_parse(lock).map_err(|_| NoRoute::Path)?;
            match *method {
                Method::DELETE => (entity, Verb::Complete(lock)),
                Method::PUT => (entity, Verb::Unlock(lock)),
                Method::POST => (entity, Verb::Renew(lock)),
                _ => return Err(NoRoute::Method),
            }
        }
        _ => return Err(NoRoute::Path),
    };
    match entity {
        [] => Err(NoRoute::Path),
        entity => Ok((entity.join("/"), verb)),
    }
}

/// Parses `timeout=SECONDS`.
fn wait(query: &str) -> Duration {
    let asked = query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.eq_ignore_ascii_case("timeout").then(|| value.parse().ok()).flatten()
    });
    asked.map_or(DEFAULT_WAIT, Duration::from_secs).min(MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &Method, path: &str) -> Result<(String, Verb), NoRoute> {
        route(method, &path.parse().expect("it is a path"))
    }

    #[test]
    fn every_call_of_the_api_is_found() {
        let lock = Uuid::from_u128(7);
        let locked = format!("/t/subscriptions/s/messages/5/{lock}");
        let seconds = Duration::from_secs;
        for (method, path, entity, verb) in [
            (Method::POST, "/orders/messages", "orders", Verb::Send),
            (
                Method::POST,
                "/shop/orders/Messages/Head?timeout=5",
                "shop/orders",
                Verb::PeekLock { wait: seconds(5) },
            ),
            (
                Method::POST,
                "/q/%24deadletterqueue/messages/head",
                "q/$deadletterqueue",
                Verb::PeekLock { wait: seconds(60) },
            ),
            (
                Method::DELETE,
                "/q/messages/head?api-version=1&timeout=x",
                "q",
                Verb::ReceiveAndDelete { wait: seconds(60) },
            ),
            (Method::DELETE, locked.as_str(), "t/subscriptions/s", Verb::Complete(lock)),
            (Method::PUT, locked.as_str(), "t/subscriptions/s", Verb::Unlock(lock)),
            (Method::POST, locked.as_str(), "t/subscriptions/s", Verb::Renew(lock)),
        ] {
            assert_eq!(of(&method, path), Ok((entity.to_owned(), verb)), "{method} {path}");
        }
    }

    #[test]
    fn what_is_no_call_is_told_apart() {
        assert_eq!(of(&Method::GET, "/q"), Err(NoRoute::Path));
        assert_eq!(of(&Method::POST, "/messages"), Err(NoRoute::Path));
        assert_eq!(of(&Method::POST, "/q/messages/5/no-lock"), Err(NoRoute::Path));
        assert_eq!(of(&Method::GET, "/q/messages/head"), Err(NoRoute::Method));
    }
}
