//! The page of `redrive serve`: the task of whoever is on call by clicks in a real Chromium, and what strangers get.

mod common;

use std::path::PathBuf;
use std::time::Instant;

use common::{Cli, Page, Shop};
use redrive_brokers::Version;
use redrive_brokers::browser::Browser;
use reqwest::header::{CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::{Method, Response, StatusCode};

mod v3_10 {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_edit_and_redrive_by_clicks() {
        the_task(&Shop::rabbitmq(Version::V3_10).await, "3.10").await;
    }
}

mod v4_3 {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_edit_and_redrive_by_clicks() {
        the_task(&Shop::rabbitmq(Version::V4_3).await, "4.3").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_message_says_is_text_and_never_a_page() {
        hostile(&Shop::rabbitmq(Version::V4_3).await).await;
    }
}

mod servicebus {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_edit_and_redrive_by_clicks() {
        the_task(&Shop::servicebus().await, "servicebus").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn strangers_are_refused() {
        strangers(&Shop::servicebus().await).await;
    }
}

#[cfg(unix)]
mod memory {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_edit_and_redrive_by_clicks() {
        the_task(&Shop::memory().await, "memory").await;
    }
}

/// Where people look at the pictures of a test.
fn pictures(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pictures").join(name)
}

/// Why do orders fail? Mend one, send its group back, remove the rest, see the shelf empty.
async fn the_task(shop: &Shop, name: &str) {
    shop.fail().await;
    let service = shop.repaired().await;
    let cli = Cli::new(shop);
    let page = Page::start(&cli, &[&shop.queue]).await;
    let browser = Browser::start(pictures(name)).await;
    let begun = Instant::now();
    browser.open(&page.url).await;
    browser.sees("Shelves").await;
    browser.picture("shelves").await;
    browser.click_link(&shop.queue).await;
    browser.sees("5 messages in 2 groups").await;
    browser.picture("groups").await;
    browser.fits_a_phone().await;

    browser.click_link("order <number>: no answer from the stock").await;
    browser.click_link("order-1").await;
    browser.sees("no answer from the stock").await;
    browser.picture("message").await;
    browser.click_link("Edit…").await;
    browser.replace_in_text(r#""headers": {}"#, r#""headers": {"checked": true}"#).await;
    browser.click("Show the difference").await;
    browser.sees("checked").await;
    browser.picture("difference").await;
    browser.click("Send the edited message back").await;
    browser.sees("4 messages in 2 groups").await;
    service.handled(1).await;

    // The first group is that of the stock: two are left, of two groups of two.
    browser.click_link("order <number>: no answer from the stock").await;
    browser.click("Redrive…").await;
    browser.sees("to the consumer of").await;
    browser.fill("canary", "1").await;
    browser.fill("canary_wait", "1").await;
    browser.picture("plan").await;
    browser.click("redrive 2 messages").await;
    browser.sees("2 of 2 done. the run is over").await;
    browser.picture("run").await;
    service.handled(3).await;

    browser.open(&page.at(&format!("/groups?queue={}", shop.queue))).await;
    browser.sees("2 messages in 1 group").await;
    browser.click("Discard…").await;
    browser.fill("count", "3").await;
    browser.click("discard 2 messages").await;
    browser.sees("type the number of messages, 2").await;
    shop.has_shelved(2).await;
    browser.back().await;
    browser.fill("count", "2").await;
    browser.click("discard 2 messages").await;
    browser.sees("2 of 2 done. the run is over").await;
    browser.open(&page.at("/")).await;
    browser.sees("Shelves").await;
    browser.picture("empty").await;
    println!("{name}: {:.1} s by clicks", begun.elapsed().as_secs_f64());
    shop.has_shelved(0).await;

    let audit = cli.audit();
    let actions: Vec<_> = audit.iter().map(|record| record["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["edit", "redrive", "discard"]);
    assert_eq!(cli.originals(), 5);
    if shop.takes_restored() {
        browser.click_link("History").await;
        browser.click_link(cli.last_run().expect("a run").as_str()).await;
        browser.click("Bring back 2 messages").await;
        browser.is_gone("Bring back").await;
        shop.has_shelved(2).await;
    }
    browser.picture("history").await;
    browser.end().await;
    page.stop().await;
    service.stop().await;
    shop.tidy_up().await;
}

const SCRIPT: &str = "<script>document.title='owned'</script>";

async fn hostile(shop: &Shop) {
    shop.fail_one(SCRIPT).await;
    let cli = Cli::new(shop);
    let page = Page::start(&cli, &[&shop.queue]).await;
    let browser = Browser::start(pictures("hostile")).await;
    browser.open(&page.url).await;
    browser.click_link(&shop.queue).await;
    browser.sees("1 message in 1 group").await;
    // The text of the failure is the name of the group.
    browser.click_first_row().await;
    browser.sees(SCRIPT).await;
    browser.click_first_row().await;
    browser.sees(SCRIPT).await;
    browser.is_clean().await;
    let said = browser.text().await;
    assert!(said.matches(SCRIPT).count() >= 4, "in the id, the error, a header and the body: {said}");
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    browser.picture("message").await;
    browser.click_link("as it is").await;
    browser.sees(SCRIPT).await;
    browser.is_clean().await;
    browser.end().await;
    page.stop().await;
    shop.tidy_up().await;
}

async fn strangers(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let token = "0123456789abcdef0123456789abcdef";
    cli.write("reader", token);
    let reader = format!("wall={}", cli.path("reader").display());
    let page = Page::start(&cli, &[&shop.queue, "--read-only-token", &reader]).await;
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let ask = |method: Method, path: &str, headers: &[(reqwest::header::HeaderName, &str)]| {
        let mut request = client.request(method, page.at(path));
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        async { secured(request.send().await.expect("an answer")) }
    };
    let own = page.at("");

    for path in ["/", "/groups?queue=orders", "/runs", "/nothing"] {
        let answer = ask(Method::GET, path, &[]).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{path}");
        assert_eq!(answer.headers()[LOCATION], "/login");
    }
    assert_eq!(ask(Method::GET, "/login?token=00", &[]).await.status(), StatusCode::FORBIDDEN);
    let once = page.url.strip_prefix(&own).expect("its own").to_owned();
    let answer = ask(Method::GET, &once, &[]).await;
    let cookie = answer.headers()[SET_COOKIE].to_str().expect("text").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    let session = cookie.split(';').next().expect("a cookie").to_owned();
    assert_eq!(ask(Method::GET, &once, &[]).await.status(), StatusCode::FORBIDDEN, "it is good once");
    assert_eq!(ask(Method::GET, "/", &[(COOKIE, &session)]).await.status(), StatusCode::OK);
    assert_eq!(ask(Method::GET, "/nothing", &[(COOKIE, &session)]).await.status(), StatusCode::NOT_FOUND);

    // A name that somebody points at this machine, and a page of somebody else.
    let rebound = [(COOKIE, &*session), (HOST, "evil.example:7420")];
    assert_eq!(ask(Method::GET, "/", &rebound).await.status(), StatusCode::FORBIDDEN);
    for origin in [None, Some("null"), Some("https://evil.example")] {
        let mut headers = vec![(COOKIE, &*session)];
        headers.extend(origin.map(|origin| (ORIGIN, origin)));
        for path in ["/plan", "/apply", "/run", "/edit", "/refresh", "/logout"] {
            let answer = ask(Method::POST, path, &headers).await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path} {origin:?}");
        }
    }

    // A reader reads.
    let login = client.post(page.at("/login")).header(ORIGIN, &own).form(&[("token", token)]).send().await;
    let login = secured(login.expect("an answer"));
    let session =
        login.headers()[SET_COOKIE].to_str().expect("text").split(';').next().expect("one").to_owned();
    let look = ask(Method::GET, "/groups?queue=orders", &[(COOKIE, &session)]).await;
    let said = look.text().await.expect("text");
    assert!(said.contains("wall (reads)") && !said.contains("Discard"), "{said}");
    for path in ["/plan", "/apply", "/run", "/edit"] {
        let answer = ask(Method::POST, path, &[(COOKIE, &session), (ORIGIN, &own)]).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path}");
    }
    let wrong = ask(Method::GET, "/groups?queue=orders&q=age%3Esoon", &[(COOKIE, &session)]).await;
    assert!(wrong.text().await.expect("text").contains("soon"));
    let missing = ask(Method::GET, "/groups?queue=bills", &[(COOKIE, &session)]).await;
    assert_eq!(missing.status(), StatusCode::BAD_REQUEST);
    shop.has_shelved(5).await;
    page.stop().await;
}

/// Every answer has the same protection.
fn secured(answer: Response) -> Response {
    let policy = answer.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    answer
}
