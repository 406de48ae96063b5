//! Where a scenario runs: a real broker, or an emulator of its own.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_brokers::Version;
use redrive_rabbitmq_emulator::{Emulator, UnpromisedOrder};
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// A broker for one run, and its clock.
#[derive(Debug)]
pub struct Target {
    pub(crate) amqp: SocketAddr,
    /// The management API, with user and password.
    pub(crate) management: String,
    pub(crate) vhost: String,
    pub(crate) clock: Box<dyn Clock>,
}

/// How time passes for a broker.
pub(crate) trait Clock: fmt::Debug + Send {
    /// The time since the scenario began.
    fn now(&self) -> Duration;
    /// Lets time pass until `until` after the scenario began.
    fn pass(&mut self, until: Duration);
    /// Whether it is a real broker, which does some things after it has answered.
    fn is_real(&self) -> bool;
    /// Called after each step.
    fn tick(&mut self) {}
    /// How long a broker may take to hand on what it was given.
    fn pause(&self) -> Duration;
    /// How long to wait for what a real broker does in `real`.
    fn settling(&self, real: Duration) -> Duration {
        real
    }
    /// Starts from zero.
    fn begin(&mut self);
}

impl Target {
    /// A real broker, by `amqp://…` and the URL of its management API.
    ///
    /// # Errors
    /// If a URL cannot be read.
    pub fn real(amqp: &str, management: &str) -> Result<Target> {
        let host = amqp.split('@').nth(1).context("the AMQP URL names no user")?;
        let host = host.split('/').next().unwrap_or_default();
        let amqp = host.to_socket_addrs()?.next().with_context(|| format!("{host} has no address"))?;
        let clock = Box::new(RealClock { began: Instant::now() });
        Ok(Target { amqp, management: management.to_owned(), vhost: "/".to_owned(), clock })
    }

    /// Sends a request to the management API; a policy that is not there may be deleted.
    pub(crate) fn manage(&self, method: &str, path: &str, body: Option<&serde_json::Value>) -> Result<u16> {
        let (scheme, rest) = self.management.split_once("//").context("the management URL has no scheme")?;
        let (login, host) = rest.split_once('@').context("the management URL names no user")?;
        let url = format!("{scheme}//{host}/api/{path}");
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let login = format!("Basic {}", STANDARD.encode(login));
        let answer = match (method, body) {
            ("PUT", Some(body)) => agent
                .put(&url)
                .header("authorization", &login)
                .header("content-type", "application/json")
                .send(body.to_string().as_bytes()),
            _ => agent.delete(&url).header("authorization", &login).call(),
        };
        let answer = answer.with_context(|| format!("{method} {path} failed"))?;
        let status = answer.status().as_u16();
        ensure!(status < 500, "{method} {path} failed with {status}");
        Ok(status)
    }
}

impl Target {
    /// An emulator of its own, whose clock stands still between the steps.
    ///
    /// # Errors
    /// If it does not start.
    pub fn emulated(version: Version, order: UnpromisedOrder, runtime: &Handle) -> Result<Target> {
        let builder = Emulator::builder()
            .version(version.into())
            .virtual_clock()
            .unpromised_order(order)
            .listen_http("127.0.0.1:0");
        let emulator = runtime.block_on(builder.start()).context("the emulator did not start")?;
        let http = emulator.http_address().context("the emulator has no management API")?;
        Ok(Target {
            amqp: emulator.address(),
            management: format!("http://guest:guest@{http}"),
            vhost: "/".to_owned(),
            clock: Box::new(VirtualClock { emulator, passed: Duration::ZERO }),
        })
    }
}

#[derive(Debug)]
struct VirtualClock {
    emulator: Emulator,
    passed: Duration,
}

/// What a step takes on the emulator: nothing that happens in two steps happens at the same time.
const STEP: Duration = Duration::from_millis(1);

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        self.passed
    }

    fn pass(&mut self, until: Duration) {
        self.emulator.advance(until.saturating_sub(self.passed));
        self.passed = until.max(self.passed);
    }

    fn is_real(&self) -> bool {
        false
    }

    fn tick(&mut self) {
        self.pass(self.passed + STEP);
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn settling(&self, _real: Duration) -> Duration {
        Duration::ZERO
    }

    fn begin(&mut self) {
        self.passed = Duration::ZERO;
    }
}

#[derive(Debug)]
struct RealClock {
    began: Instant,
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn pass(&mut self, until: Duration) {
        std::thread::sleep(until.saturating_sub(self.began.elapsed()));
    }

    fn is_real(&self) -> bool {
        true
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(4)
    }

    fn begin(&mut self) {
        self.began = Instant::now();
    }
}
