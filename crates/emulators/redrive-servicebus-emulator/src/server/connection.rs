//! One connection without its socket: the caller passes bytes and time, and gets bytes. `opening` handles the opening.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::context::Context;
use super::mailbox::{LinkKey, Mail, Mailbox};
use super::session::Session;
use super::shared_state::SharedState;
use crate::amqp::frame::{Frame, FrameKind, put_frame, take_frame};
use crate::amqp::performative::{Begin, Performative};
use crate::amqp::state::AmqpError;
use crate::amqp::{DecodeError, Reader};
use crate::broker::BrokerError;

/// Maximum frame size in both directions.
pub(super) const MAX_FRAME: u32 = 64 * 1024;
/// Azure's value; a client may open one session less than this.
pub(super) const CHANNEL_MAX: u16 = 4999;
/// Maximum number of links of a connection: each keeps its attach, up to a frame.
const MAX_LINKS: usize = 5000;
/// Azure's value. A client that is silent for twice as long is considered gone.
pub(super) const IDLE_TIME_OUT: Duration = Duration::from_secs(240);
/// Time limit for a client until its connection is open.
pub(super) const OPEN_TIME_OUT: Duration = Duration::from_secs(60);
/// With this much output nothing more is read; reading continues when the output is sent.
const TURN: usize = 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Header,
    Sasl,
    HeaderAfterSasl,
    Opening,
    Open,
    Over,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) phase: Phase,
    /// Number of outages of the state file when the connection began.
    pub(super) outages: u64,
    dropped: bool,
    sessions: HashMap<u16, Session>,
    pub(super) context: Context,
    /// Interval in which something must be sent, so that the client does not close the connection.
    pub(super) keep_alive: Option<Duration>,
    last_sent: Instant,
    last_received: Instant,
}

impl Connection {
    pub(crate) fn new(shared: Arc<SharedState>, mailbox: Arc<Mailbox>, now: Instant) -> Self {
        Self {
            phase: Phase::Header,
            outages: shared.outages(),
            dropped: false,
            sessions: HashMap::new(),
            context: Context::new(shared, mailbox, MAX_FRAME as usize),
            keep_alive: None,
            last_sent: now,
            last_received: now,
        }
    }

    /// Processes input. Bytes stay in `input` if their frame is incomplete, or until the output is sent.
    pub(crate) fn receive(&mut self, input: &mut BytesMut, now: Instant) {
        self.last_received = now;
        self.context.now = now;
        while self.phase != Phase::Over && self.context.out.len() < TURN {
            let went_on = match self.phase {
                Phase::Header | Phase::HeaderAfterSasl => self.take_header(input),
                _ => match take_frame(input, MAX_FRAME as usize) {
                    Ok(Some(frame)) => self.on_frame(&frame).map(|()| true),
                    Ok(None) => Ok(false),
                    Err(error) => Err(AmqpError::new("amqp:connection:framing-error", error.to_string())),
                },
            };
            match went_on {
                Ok(true) if self.context.drop_connection => self.drop_now(),
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.close(Some(error)),
            }
        }
    }

    /// Serves the links that were woken.
    pub(crate) fn read_mail(&mut self, mail: Mail) {
        if mail.drop {
            return self.drop_now();
        }
        if mail.close {
            return self.close(Some(AmqpError::new("amqp:connection:forced", "The emulator ends.")));
        }
        for LinkKey { channel, handle } in mail.session_lost {
            if let Some(session) = self.sessions.get_mut(&channel) {
                session.lose_session(&mut self.context, handle);
            }
        }
        for detaching in mail.detach {
            for session in self.sessions.values_mut() {
                session.detach_forced(&mut self.context, &detaching);
            }
        }
        if mail.time_moved {
            self.detach_idle();
        }
        for LinkKey { channel, handle } in mail.wake {
            if let Some(session) = self.sessions.get_mut(&channel) {
                session.serve(&mut self.context, handle);
            }
        }
    }

    /// Continues what stopped because there was enough output.
    pub(crate) fn serve(&mut self) {
        if !std::mem::take(&mut self.context.held_back) {
            return;
        }
        for session in self.sessions.values_mut() {
            session.serve_all(&mut self.context);
        }
    }

    /// Does what is due.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.context.now = now;
        let patience = if self.phase == Phase::Open { IDLE_TIME_OUT * 2 } else { OPEN_TIME_OUT };
        if now.duration_since(self.last_received) >= patience {
            return self
                .close(Some(AmqpError::new("amqp:connection:forced", "Nothing was heard for too long.")));
        }
        for session in self.sessions.values_mut() {
            session.on_time(&mut self.context);
        }
        self.detach_idle();
        self.context.release_delayed();
        if self.keep_alive.is_some_and(|every| now.duration_since(self.last_sent) >= every) {
            self.last_sent = now;
            // A client that does not read gets no more empty frames in addition to its pending output.
            if self.context.out.is_empty() {
                put_frame(FrameKind::Amqp, 0, &mut self.context.out, |_| {});
            }
        }
    }

    /// Returns when [`on_time`](Self::on_time) is next due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let patience = if self.phase == Phase::Open { IDLE_TIME_OUT * 2 } else { OPEN_TIME_OUT };
        let waits = self.sessions.values().filter_map(Session::next_deadline).min();
        let idle = self.sessions.values().filter_map(|session| session.next_idle(&self.context)).min();
        [
            Some(self.last_received + patience),
            self.keep_alive.map(|every| self.last_sent + every),
            self.context.next_delayed(),
            waits,
            idle,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.context.out.is_empty()
    }

    pub(crate) fn unsent(&self) -> usize {
        self.context.out.len()
    }

    pub(crate) fn take_output(&mut self) -> BytesMut {
        self.last_sent = Instant::now();
        self.context.out.split()
    }

    /// Returns true if only the rest of the output remains to be sent.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns true if not even that is to be sent.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Gives back what the client held.
    pub(crate) fn end(&mut self) {
        for (_, mut session) in self.sessions.drain() {
            session.end(&mut self.context);
        }
        self.context.roll_back_all();
        self.phase = Phase::Over;
    }

    fn detach_idle(&mut self) {
        for session in self.sessions.values_mut() {
            session.detach_idle(&mut self.context);
        }
    }

    /// Closes the connection with this error, and drops its output: the changes behind the output could not be stored.
    pub(crate) fn fail(&mut self, error: &BrokerError) {
        self.context.out.clear();
        self.close(Some(AmqpError::new("amqp:connection:forced", error.to_string())));
    }

    fn drop_now(&mut self) {
        self.dropped = true;
        self.end();
    }

    fn close(&mut self, error: Option<AmqpError>) {
        if self.phase == Phase::Open {
            self.context.send(0, &Performative::Close(error));
        } else if let Some(error) = error {
            tracing::debug!(condition = error.condition, description = error.description, "client refused");
        }
        self.end();
    }

    fn on_frame(&mut self, frame: &Frame) -> Result<(), AmqpError> {
        if self.phase == Phase::Sasl {
            return self.on_sasl(frame).map_err(undecodable);
        }
        if frame.kind != FrameKind::Amqp {
            return Err(AmqpError::new("amqp:connection:framing-error", "a SASL frame outside of SASL"));
        }
        if frame.body.is_empty() {
            return Ok(());
        }
        let mut reader = Reader::new(&frame.body);
        let performative = Performative::decode(&mut reader).map_err(undecodable)?;
        if self.phase == Phase::Opening {
            let Performative::Open(open) = performative else {
                return Err(AmqpError::new("amqp:illegal-state", "the first frame must be an open"));
            };
            self.on_open(&open);
            return Ok(());
        }
        self.on_performative(frame.channel, performative, reader.rest())
    }

    fn on_performative(
        &mut self,
        channel: u16,
        performative: Performative,
        payload: &[u8],
    ) -> Result<(), AmqpError> {
        match performative {
            Performative::Open(_) => {
                Err(AmqpError::new("amqp:illegal-state", "the connection is open already"))
            }
            Performative::Close(_) => {
                self.close(None);
                Ok(())
            }
            Performative::Begin(begin) => self.on_begin(channel, &begin),
            Performative::Attach(_) if self.links() >= MAX_LINKS => {
                let text = format!("A connection has at most {MAX_LINKS} links.");
                Err(AmqpError::new("amqp:resource-limit-exceeded", text))
            }
            Performative::End(_) => {
                if let Some(mut session) = self.sessions.remove(&channel) {
                    session.end(&mut self.context);
                    self.context.send(channel, &Performative::End(None));
                }
                Ok(())
            }
            performative => match self.sessions.get_mut(&channel) {
                Some(session) => session.on_performative(&mut self.context, performative, payload),
                // The client sent this before it learned that its session ended.
                None => Ok(()),
            },
        }
    }

    fn links(&self) -> usize {
        self.sessions.values().map(Session::link_count).sum()
    }

    fn on_begin(&mut self, channel: u16, begin: &Begin) -> Result<(), AmqpError> {
        if channel > CHANNEL_MAX || self.sessions.contains_key(&channel) {
            return Err(AmqpError::new(
                "amqp:not-allowed",
                format!("channel {channel} cannot begin a session"),
            ));
        }
        let session = Session::new(channel, begin);
        self.context.send(channel, &Performative::Begin(session.begin()));
        self.sessions.insert(channel, session);
        Ok(())
    }
}

fn undecodable(error: DecodeError) -> AmqpError {
    AmqpError::new("amqp:decode-error", error.to_string())
}
