//! Opens a connection: headers, SASL, open.

use std::time::Duration;

use bytes::BytesMut;

use super::connection::{CHANNEL_MAX, Connection, IDLE_TIME_OUT, MAX_FRAME, Phase};
use crate::amqp::DecodeError;
use crate::amqp::frame::{AMQP_HEADER, Frame, FrameKind, SASL_HEADER, put_frame};
use crate::amqp::performative::{Open, Performative};
use crate::amqp::state::{AmqpError, sasl_init, sasl_mechanisms, sasl_outcome};

impl Connection {
    pub(super) fn take_header(&mut self, input: &mut BytesMut) -> Result<bool, AmqpError> {
        let Some(header) = input.first_chunk::<8>().copied() else { return Ok(false) };
        let _ = input.split_to(8);
        self.phase = match (header, self.phase) {
            (SASL_HEADER, Phase::Header) => {
                self.context.out.extend_from_slice(&SASL_HEADER);
                put_frame(FrameKind::Sasl, 0, &mut self.context.out, sasl_mechanisms);
                Phase::Sasl
            }
            (AMQP_HEADER, _) => {
                self.context.out.extend_from_slice(&AMQP_HEADER);
                Phase::Opening
            }
            // As the specification demands: send our own header, and close.
            _ => {
                self.context.out.extend_from_slice(&AMQP_HEADER);
                Phase::Over
            }
        };
        Ok(true)
    }

    pub(super) fn on_sasl(&mut self, frame: &Frame) -> Result<(), DecodeError> {
        let (mechanism, response) = sasl_init(&frame.body)?;
        let accepted = mechanism != "PLAIN" || self.context.shared.keys.admits_plain(&response);
        if mechanism == "PLAIN" && accepted {
            self.context.authorised.plain();
        }
        put_frame(FrameKind::Sasl, 0, &mut self.context.out, |to| sasl_outcome(u8::from(!accepted), to));
        self.phase = if accepted { Phase::HeaderAfterSasl } else { Phase::Over };
        Ok(())
    }

    pub(super) fn on_open(&mut self, open: &Open) {
        // The minimum of the specification is 512.
        self.context.max_frame = open.max_frame_size.clamp(512, MAX_FRAME) as usize;
        // Clients give up after their idle timeout, some after half of it.
        self.keep_alive = open.idle_time_out.map(|ms| Duration::from_millis(u64::from(ms.max(100))) * 2 / 5);
        self.context.send(
            0,
            &Performative::Open(Open {
                container_id: "redrive-servicebus-emulator".to_owned(),
                hostname: None,
                max_frame_size: MAX_FRAME,
                channel_max: CHANNEL_MAX,
                idle_time_out: u32::try_from(IDLE_TIME_OUT.as_millis()).ok(),
            }),
        );
        self.phase = Phase::Open;
    }
}
