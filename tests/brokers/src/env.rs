//! The broker that a test uses.

use crate::{Node, Version, install};

/// A running broker that tests share: they must use their own names, and leave it running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// `amqp://user:password@host:port/vhost`
    pub url: String,
    /// Its version.
    pub version: Version,
}

/// The URL of the shared broker of `version`, from [`Version::url_variable`].
pub fn shared_url(version: Version) -> Option<String> {
    std::env::var(version.url_variable()).ok().filter(|url| !url.is_empty())
}

/// With `1`, tests of the emulator run on RabbitMQ itself.
pub const ON_RABBITMQ_VARIABLE: &str = "REDRIVE_TEST_ON_RABBITMQ";

/// Whether tests of the emulator run on RabbitMQ itself.
///
/// # Panics
/// When [`ON_RABBITMQ_VARIABLE`] is something else than `1` or empty.
pub fn emulated_on_rabbitmq() -> bool {
    match std::env::var(ON_RABBITMQ_VARIABLE).as_deref() {
        Ok("1") => true,
        Err(_) | Ok("") => false,
        Ok(other) => panic!("{ON_RABBITMQ_VARIABLE} is `{other}`: set it to 1, or not at all"),
    }
}

/// The shared broker of `version`.
///
/// # Panics
/// When there is none, saying how to get one.
pub fn broker(version: Version) -> Broker {
    let Some(url) = shared_url(version) else {
        panic!(
            "this test needs RabbitMQ {version}: run `cargo xtask test`, or start one and set {}=amqp://…, \
             or leave it out with `-- --skip {}`",
            version.url_variable(),
            version.mark()
        )
    };
    Broker { url, version }
}

/// A private node of `version`, for a test that kills or reconfigures its broker. Blocks for seconds.
///
/// # Panics
/// When `version` is not installed, saying how to install it, or when the node does not start.
pub fn own_node(version: Version) -> Node {
    own_node_with(version, &[])
}

/// [`own_node`] with more lines of `rabbitmq.conf`, for example `consumer_timeout = 5000`.
///
/// # Panics
/// As [`own_node`].
pub fn own_node_with(version: Version, config: &[&str]) -> Node {
    own_node_with_plugins(version, config, &[])
}

/// [`own_node_with`] with plugins, for example `rabbitmq_management`.
///
/// # Panics
/// As [`own_node`].
pub fn own_node_with_plugins(version: Version, config: &[&str], plugins: &[&str]) -> Node {
    own_node_with_files(version, config, plugins, &[])
}

/// [`own_node_with_plugins`] with files: see [`Node::with_files`].
///
/// # Panics
/// As [`own_node`].
pub fn own_node_with_files(
    version: Version,
    config: &[&str],
    plugins: &[&str],
    files: &[(&str, &str)],
) -> Node {
    assert!(
        install::find(version).is_some(),
        "this test kills its broker, so it needs RabbitMQ {version} installed here (a URL is not enough): \
         run `cargo xtask test` as root on Debian or Ubuntu, or leave it out with `-- --skip {}`",
        version.mark()
    );
    Node::with_files(version, config, plugins, files).unwrap_or_else(|error| panic!("{error:#}"))
}
