//! Opening a connection: log in, agree on limits, choose the virtual host.

use std::sync::Arc;

use bytes::Bytes;
use redrive_amqp091::{
    Connection as ConnectionMethod, Method, RawTable, ShortStr, Table, Value, connection, reply,
};

use crate::broker::access::User;
use crate::broker::connection::Phase;
use crate::broker::failure::{Failure, Outcome};
use crate::broker::{At, Broker, ConnectionId, Version};

const MECHANISMS: &[u8] = b"AMQPLAIN PLAIN";

impl Broker {
    pub(super) fn start(&mut self, id: ConnectionId) {
        let properties = server_properties(self.version());
        if let Some(connection) = self.connection(id) {
            connection.phase = Phase::Started;
        }
        self.send(
            At { connection: id, channel: 0 },
            connection::Start {
                version_major: 0,
                version_minor: 9,
                server_properties: RawTable::from(properties),
                mechanisms: Bytes::from_static(MECHANISMS),
                locales: Bytes::from_static(b"en_US"),
            },
        );
    }

    pub(super) fn handshake(&mut self, at: At, method: Method) -> Outcome {
        let Some(connection) = self.connection(at.connection) else { return Ok(()) };
        match (connection.phase, method) {
            (Phase::Started, Method::Connection(ConnectionMethod::StartOk(start))) => self.log_in(at, &start),
            (Phase::Tuning, Method::Connection(ConnectionMethod::TuneOk(tune))) => self.tune(at, &tune),
            (Phase::Tuned, Method::Connection(ConnectionMethod::Open(open))) => self.open(at, &open),
            (_, Method::Connection(ConnectionMethod::Close(_))) => {
                self.send(at, connection::CloseOk {});
                if let Some(connection) = self.connection(at.connection) {
                    connection.phase = Phase::Over;
                }
                Ok(())
            }
            (_, method) => {
                Err(Failure::command_invalid(&format!("{} while the connection is opened", method.name())))
            }
        }
    }

    fn log_in(&mut self, at: At, start: &connection::StartOk) -> Outcome {
        let client = start.client_properties.decode();
        let capable = |name: &str| {
            let capabilities = client.get("capabilities").and_then(Value::as_table);
            capabilities.and_then(|table| table.get(name)).and_then(Value::as_bool).unwrap_or(false)
        };
        let (cancel, blocked) = (capable("consumer_cancel_notify"), capable("connection.blocked"));
        let closes = capable("authentication_failure_close");
        let (channel_max, frame_max, heartbeat) =
            (self.options.channel_max, self.options.frame_max, self.options.heartbeat);
        let user = self.authenticate(&start.mechanism, &start.response);
        let Some(connection) = self.connection(at.connection) else { return Ok(()) };
        connection.client_properties = client;
        connection.notifies_cancel = cancel;
        connection.notifies_blocked = blocked;
        connection.closes_after_failed_login = closes;
        match user {
            Ok(user) => {
                connection.user = Some(Arc::new(user));
                connection.phase = Phase::Tuning;
                self.send(at, connection::Tune { channel_max, frame_max, heartbeat });
                Ok(())
            }
            Err(failure) if closes => Err(failure.ending_connection()),
            // Older clients take the end of the connection for a refused login.
            Err(_) => {
                connection.phase = Phase::Over;
                self.touch(at.connection);
                Ok(())
            }
        }
    }

    fn authenticate(&self, mechanism: &ShortStr, response: &Bytes) -> Outcome<User> {
        let mechanism = mechanism.to_str();
        let credentials = match &*mechanism {
            "PLAIN" => plain(response),
            "AMQPLAIN" => amqplain(response),
            other => {
                return Err(Failure::connection(
                    reply::ACCESS_REFUSED,
                    "ACCESS_REFUSED",
                    &format!("unknown authentication mechanism '{other}': use PLAIN or AMQPLAIN"),
                ));
            }
        };
        let user = credentials.and_then(|(name, password)| {
            let user = self.users.get(&name)?;
            user.password.is(&password).then(|| user.clone())
        });
        user.ok_or_else(|| {
            Failure::connection(
                reply::ACCESS_REFUSED,
                "ACCESS_REFUSED",
                &format!(
                    "Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
                ),
            )
        })
    }

    fn tune(&mut self, at: At, tune: &connection::TuneOk) -> Outcome {
        let (least, most) = (self.version().min_frame(), self.options.frame_max);
        let channels = self.options.channel_max;
        let frame_max = tune.frame_max;
        if frame_max == 0 || frame_max > most {
            return Err(Failure::not_allowed(&format!(
                "negotiated frame_max = {frame_max} is greater than the maximum allowed value ({most})"
            )));
        }
        if frame_max < least {
            return Err(Failure::not_allowed(&format!(
                "negotiated frame_max = {frame_max} is lower than the minimum allowed value ({least})"
            )));
        }
        if tune.channel_max == 0 || tune.channel_max > channels {
            return Err(Failure::not_allowed(&format!(
                "negotiated channel_max = {} is greater than the maximum allowed value ({channels})",
                tune.channel_max
            )));
        }
        let Some(connection) = self.connection(at.connection) else { return Ok(()) };
        connection.frame_max = frame_max;
        connection.channel_max = tune.channel_max;
        connection.heartbeat = tune.heartbeat;
        connection.phase = Phase::Tuned;
        Ok(())
    }

    fn open(&mut self, at: At, open: &connection::Open) -> Outcome {
        let name = open.virtual_host.to_str();
        let Some(vhost) = self.vhost_named(&name) else {
            return Err(Failure::not_allowed(&format!("vhost {name} not found")));
        };
        let Some(connection) = self.connection(at.connection) else { return Ok(()) };
        let permitted = connection.user.as_ref().is_some_and(|user| user.permissions.contains_key(&*name));
        if !permitted {
            let user = connection.user.as_ref().map_or("", |user| &user.name);
            return Err(Failure::not_allowed(&format!("access to vhost '{name}' refused for user '{user}'")));
        }
        connection.vhost = vhost;
        connection.phase = Phase::Open;
        self.send(at, connection::OpenOk::default());
        Ok(())
    }
}

fn plain(response: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut parts = response.splitn(3, |byte| *byte == 0);
    let _authorization = parts.next()?;
    let user = parts.next()?;
    let password = parts.next()?;
    Some((String::from_utf8(user.to_vec()).ok()?, password.to_vec()))
}

/// A table without its length.
fn amqplain(response: &Bytes) -> Option<(String, Vec<u8>)> {
    let table = RawTable::checked(response.clone()).ok()?.decode();
    let user = table.get("LOGIN")?.as_str()?.to_owned();
    match table.get("PASSWORD")? {
        Value::LongStr(password) => Some((user, password.to_vec())),
        _ => None,
    }
}

fn server_properties(version: Version) -> Table {
    let mut capabilities = Table::new();
    for name in [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ] {
        capabilities.insert(ShortStr::from_static(name), true);
    }
    Table::new()
        .with("capabilities", capabilities)
        .with("cluster_name", "rabbit@emulator")
        .with("copyright", "The redrive authors")
        .with("information", "An emulator: https://github.com/redrive-rs/redrive")
        .with("platform", concat!("redrive-rabbitmq-emulator ", env!("CARGO_PKG_VERSION")))
        .with("product", "RabbitMQ")
        .with("version", version.number())
}
