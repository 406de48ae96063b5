//! Errors of `reqwest`.

use std::time::{Duration, SystemTime};

use redrive::{BoxError, ErrorClass, Throttled, chain};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Error, Response};

/// The rule for an [`Error`]: by its status, if it has one. Without a status nobody answered, or not to the end.
pub fn of_reqwest(error: &Error) -> Option<ErrorClass> {
    if let Some(status) = error.status() {
        return ErrorClass::of_http_status(status.as_u16());
    }
    // A body that was cut off is an error of decoding too; one that came whole and is no JSON will not become JSON.
    let is_other_than_expected = chain(error).any(<dyn std::error::Error>::is::<serde_json::Error>);
    let permanent = error.is_builder() || error.is_redirect() || is_other_than_expected;
    Some(if permanent { ErrorClass::Permanent } else { ErrorClass::Transient })
}

/// Like [`Response::error_for_status`], and the error asks for the wait that the server asks for (`Retry-After`), at most an hour.
pub fn or_retry_after(response: Response) -> Result<Response, BoxError> {
    const LONGEST: Duration = Duration::from_secs(3600);
    let wait = retry_after(response.headers(), SystemTime::now());
    match (response.error_for_status(), wait) {
        (Err(error), Some(wait)) if of_reqwest(&error) != Some(ErrorClass::Permanent) => {
            Err(Throttled::after(wait.min(LONGEST), error).into())
        }
        (answered, _) => Ok(answered?),
    }
}

/// Seconds, or a time.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).ok(),
    }
}

#[cfg(test)]
mod tests {
    use redrive::{ByMarker, ErrorClassifier};
    use reqwest::Client;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request with these bytes, and hangs up.
    async fn server(answer: &'static str) -> Result<String, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let _ = stream.read(&mut [0; 4096]).await?;
            stream.write_all(answer.as_bytes()).await
        });
        Ok(format!("http://{address}"))
    }

    async fn get(answer: &'static str) -> Result<Response, BoxError> {
        Ok(Client::new().get(server(answer).await?).send().await?)
    }

    #[tokio::test]
    async fn a_status_decides() -> Result<(), BoxError> {
        let class = async |answer| of_reqwest(&get(answer).await.unwrap().error_for_status().unwrap_err());
        let unavailable = class("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(unavailable, Some(ErrorClass::Transient));
        let gone = class("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(gone, Some(ErrorClass::Permanent));
        Ok(())
    }

    #[tokio::test]
    async fn who_does_not_answer_is_asked_again() -> Result<(), BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let soon = Client::builder().timeout(Duration::from_millis(1)).build()?;
        let timed_out = soon.get(&url).send().await.unwrap_err();
        assert!(timed_out.is_timeout(), "{timed_out:?}");
        drop(listener);
        let refused = Client::new().get(&url).send().await.unwrap_err();
        assert!(refused.is_connect(), "{refused:?}");
        let hung_up = Client::new().get(server("").await?).send().await.unwrap_err();
        for error in [timed_out, refused, hung_up] {
            assert_eq!(of_reqwest(&error), Some(ErrorClass::Transient), "{error:?}");
        }
        let no_url = Client::new().get("carrier").send().await.unwrap_err();
        assert_eq!(of_reqwest(&no_url), Some(ErrorClass::Permanent));
        Ok(())
    }

    #[tokio::test]
    async fn a_body_that_was_cut_off_is_asked_for_again() -> Result<(), BoxError> {
        let class = async |answer| of_reqwest(&get(answer).await.unwrap().json::<u32>().await.unwrap_err());
        let cut_off = class("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n12").await;
        assert_eq!(cut_off, Some(ErrorClass::Transient));
        let other = class("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlamp").await;
        assert_eq!(other, Some(ErrorClass::Permanent));
        Ok(())
    }

    #[tokio::test]
    async fn a_server_that_says_when_is_asked_then() -> Result<(), BoxError> {
        let class =
            async |answer| ByMarker.classify(&*or_retry_after(get(answer).await.unwrap()).unwrap_err());
        let busy =
            class("HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(busy, ErrorClass::Throttled(Duration::from_secs(30)));
        let never = class("HTTP/1.1 503 Not Today\r\nretry-after: 999999\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(never, ErrorClass::Throttled(Duration::from_secs(3600)));
        assert!(or_retry_after(get("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?).is_ok());
        Ok(())
    }

    #[test]
    fn a_time_is_a_wait_from_now() {
        let now = httpdate::parse_http_date("Mon, 23 Nov 2026 12:00:00 GMT").unwrap();
        let wait = |value: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            retry_after(&headers, now)
        };
        assert_eq!(wait("Mon, 23 Nov 2026 12:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(wait("Mon, 23 Nov 2026 11:59:00 GMT"), None, "over: the policy says when");
        assert_eq!(wait("soon"), None);
    }
}
