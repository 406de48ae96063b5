//! The page without a browser.

use reqwest::StatusCode;
use reqwest::header::{COOKIE, ORIGIN};

use crate::common::{Cli, Page, Shop};

/// A browser sends the cookies of a host to every port of it.
pub(crate) async fn two_pages_on_one_host(shop: &Shop) {
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let pages = [Page::start(&cli, &[queue]).await, Page::start(&cli, &[queue]).await];
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let mut cookies = Vec::new();
    for page in &pages {
        let login = client.get(&page.url).send().await.expect("an answer");
        let cookie =
            login.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a cookie");
        let name = cookie.split('=').next().expect("a name").to_owned();
        cookies.retain(|other: &String| !other.starts_with(&format!("{name}=")));
        cookies.push(cookie.to_owned());
    }
    let cookies = cookies.join("; ");
    for page in &pages {
        let shown = client.get(page.at("/")).header(COOKIE, &cookies).send().await.expect("an answer");
        assert_eq!(shown.status(), StatusCode::OK);
        let head = client.head(page.at("/")).header(COOKIE, &cookies).send().await.expect("an answer");
        assert_eq!(head.status(), StatusCode::OK);
        let foreign =
            client.post(page.at("/refresh")).header(COOKIE, &cookies).header(ORIGIN, "https://evil.example");
        assert_eq!(foreign.send().await.expect("an answer").status(), StatusCode::FORBIDDEN);
    }
    for page in pages {
        page.stop().await;
    }
}
