//! What Prometheus scrapes: a text whose numbers may grow from one scrape to the next, or a running service.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};

/// A page with metrics. Its thread ends with the process.
pub(crate) struct Target {
    address: SocketAddr,
    page: Arc<Mutex<Page>>,
}

struct Page {
    content: Content,
    scrapes: u32,
}

enum Content {
    Text(&'static str),
    Service(Box<dyn Fn() -> String + Send>),
}

impl Target {
    /// Serves `text` on a free port. A line `name{labels} 5 +2` is 5 at the first scrape, 7 at the next.
    pub(crate) fn serve(text: &'static str) -> Result<Target> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let page = Arc::new(Mutex::new(Page { content: Content::Text(text), scrapes: 0 }));
        std::thread::spawn({
            let page = Arc::clone(&page);
            move || {
                for client in listener.incoming().flatten() {
                    // One that went away asks again.
                    let _ = answer(&client, &page);
                }
            }
        });
        Ok(Target { address, page })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves another text from now on. What grows goes on from where it is.
    pub(crate) fn switch_to(&self, text: &'static str) {
        self.serve_now(Content::Text(text));
    }

    /// Serves what this service answers from now on.
    pub(crate) fn switch_to_service(&self, render: impl Fn() -> String + Send + 'static) {
        self.serve_now(Content::Service(Box::new(render)));
    }

    fn serve_now(&self, content: Content) {
        self.page.lock().unwrap_or_else(PoisonError::into_inner).content = content;
    }

    /// What a scrape gives.
    pub(crate) fn scrape(&self) -> Result<String> {
        let mut response = ureq::get(format!("http://{}/metrics", self.address)).call()?;
        response.body_mut().read_to_string().context("the target's answer breaks off")
    }
}

fn answer(mut client: &TcpStream, page: &Mutex<Page>) -> Result<()> {
    for line in BufReader::new(client).lines() {
        if line?.is_empty() {
            break;
        }
    }
    let body = {
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        page.scrapes += 1;
        match &page.content {
            Content::Text(text) => {
                text.lines().map(|line| grown(line, page.scrapes - 1) + "\n").collect::<String>()
            }
            Content::Service(render) => render(),
        }
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
    write!(client, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
    Ok(())
}

/// The line at a scrape: `name{labels} 5 +2` is 9 after two others.
fn grown(line: &str, scrapes: u32) -> String {
    let parts = line.rsplit_once(" +").filter(|_| !line.starts_with('#'));
    let Some((series, value, step)) = parts.and_then(|(rest, step)| {
        let (series, value) = rest.rsplit_once(' ')?;
        Some((series, value.parse::<f64>().ok()?, step.parse::<f64>().ok()?))
    }) else {
        return line.to_owned();
    };
    format!("{series} {}", value + step * f64::from(scrapes))
}

#[test]
fn numbers_grow_with_each_scrape() {
    assert_eq!(grown(r#"a{b="c"} 5 +2"#, 0), r#"a{b="c"} 5"#);
    assert_eq!(grown(r#"a{b="c"} 5 +2"#, 2), r#"a{b="c"} 9"#);
    assert_eq!(grown(r#"a{b="c"} 5"#, 2), r#"a{b="c"} 5"#);
    assert_eq!(grown("# HELP a Seconds +2", 2), "# HELP a Seconds +2");
}
