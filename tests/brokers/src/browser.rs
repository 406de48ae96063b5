//! A browser for tests of pages: Debian's Chromium and its driver.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::process::Child;

use crate::free_port;
use crate::install::installed;

/// Where Debian's package puts the driver.
const DRIVER: &str = "/usr/bin/chromedriver";

/// Returns the program that drives a Chromium, and installs both if they are missing, as root of Debian or Ubuntu.
///
/// # Errors
/// If they cannot be installed.
pub fn chromedriver() -> Result<PathBuf> {
    installed(DRIVER, &["chromium", "chromium-driver"])
}

/// How long a page may take. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// A headless Chromium; it ends with this value.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    pictures: PathBuf,
    _driver: Child,
}

impl Browser {
    /// Starts one, which keeps its pictures in this folder.
    ///
    /// # Panics
    /// Like all of its methods: when the page does not do it in 90 s.
    pub async fn start(pictures: PathBuf) -> Self {
        let program = tokio::task::spawn_blocking(chromedriver).await.expect("no panic").expect("a browser");
        let port = free_port().expect("a free port");
        let driver = tokio::process::Command::new(program)
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("a driver");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1280,900",
        ];
        let options = serde_json::json!({ "goog:chromeOptions": { "args": arguments } });
        let capabilities = options.as_object().expect("an object").clone();
        let connect = || async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities.clone()).connect(&format!("http://127.0.0.1:{port}")).await.ok()
        };
        let client = found("the browser", connect).await;
        std::fs::create_dir_all(&pictures).expect("a folder");
        Self { client, pictures, _driver: driver }
    }

    /// Opens a URL.
    pub async fn open(&self, url: &str) {
        self.client.goto(url).await.expect("opened");
    }

    /// Goes back.
    pub async fn back(&self) {
        self.client.back().await.expect("went back");
    }

    /// Waits until the page says so.
    pub async fn sees(&self, text: &str) {
        let look = || async { self.text().await.contains(text).then_some(()) };
        if tokio::time::timeout(PATIENCE, found_in_time(look)).await.is_err() {
            self.picture("failed").await;
            panic!("the page does not say {text:?}, but: {}", self.text().await);
        }
    }

    /// Waits until the page does not say so.
    pub async fn is_gone(&self, text: &str) {
        found(text, || async { (!self.text().await.contains(text)).then_some(()) }).await;
    }

    /// On a narrow screen nothing is beside the screen.
    pub async fn fits_a_phone(&self) {
        self.client.set_window_size(390, 844).await.expect("narrow");
        let script = "return [document.documentElement.scrollWidth, window.innerWidth];";
        let seen = self.client.execute(script, Vec::new()).await.expect("it ran");
        self.picture("phone").await;
        assert!(seen[0].as_u64() <= seen[1].as_u64() && seen[1].as_u64() <= Some(600), "{seen}");
        self.client.set_window_size(1280, 900).await.expect("wide");
    }

    /// Clicks the link whose text contains this one.
    pub async fn click_link(&self, text: &str) {
        self.click_on(Locator::XPath(&format!("//a[contains(., {text:?})]"))).await;
    }

    /// Clicks the first row of a table.
    pub async fn click_first_row(&self) {
        self.click_on(Locator::Css("a.row")).await;
    }

    /// Clicks the button whose text contains this one.
    pub async fn click(&self, button: &str) {
        self.click_on(Locator::XPath(&format!("//button[contains(normalize-space(.), {button:?})]"))).await;
    }

    async fn click_on(&self, what: Locator<'_>) {
        let click = || async { self.client.find(what).await.ok()?.click().await.ok() };
        if tokio::time::timeout(PATIENCE, found_in_time(click)).await.is_err() {
            self.picture("failed").await;
            panic!("nothing to click on: {what:?} in {}", self.text().await);
        }
    }

    /// Types into the field of this name.
    pub async fn fill(&self, name: &str, value: &str) {
        let css = format!("input[name={name}]:not([type=hidden])");
        let fill = || async {
            let field = self.client.find(Locator::Css(&css)).await.ok()?;
            field.clear().await.ok()?;
            field.send_keys(value).await.ok()
        };
        found(&css, fill).await;
    }

    /// Replaces a part of the text area.
    pub async fn replace_in_text(&self, from: &str, to: &str) {
        self.sees("Show the difference").await;
        let script = "const text = document.querySelector('textarea'); const before = text.value; \
                      text.value = before.replace(arguments[0], arguments[1]); return before !== text.value;";
        let changed = self.client.execute(script, vec![from.into(), to.into()]).await.expect("it ran");
        assert_eq!(changed, true, "{from} is not in the text");
    }

    /// Returns the text of the page.
    pub async fn text(&self) -> String {
        let look = || async {
            let body: Result<String, CmdError> =
                async { self.client.find(Locator::Css("body")).await?.text().await }.await;
            body.ok()
        };
        found("a page", look).await
    }

    /// Nothing that a message says has become a part of the page, or has run.
    pub async fn is_clean(&self) {
        let script = "return [document.title, [...document.scripts].map(script => script.src), \
                      document.querySelectorAll('img, iframe, object, [onerror]').length];";
        let seen = self.client.execute(script, Vec::new()).await.expect("it ran");
        assert_ne!(seen[0], "owned");
        let scripts = seen[1].as_array().expect("scripts");
        assert!(
            scripts.iter().all(|script| script.as_str().is_some_and(|script| script.ends_with("/script.js"))),
            "{seen}"
        );
        assert_eq!(seen[2], 0, "{seen}");
    }

    /// Keeps a picture of the page, for people.
    pub async fn picture(&self, name: &str) {
        let picture = self.client.screenshot().await.expect("a picture");
        std::fs::write(self.pictures.join(format!("{name}.png")), picture).expect("written");
    }

    /// Closes the browser.
    pub async fn end(self) {
        self.client.close().await.expect("closed");
    }
}

async fn found<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    let found = tokio::time::timeout(PATIENCE, found_in_time(look)).await;
    found.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

async fn found_in_time<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    loop {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
