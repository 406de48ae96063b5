use bytes::BytesMut;

use super::{Attach, Begin, Detach, Disposition, Flow, Open, Performative, Transfer};
use crate::amqp::encode::encode_padded_list;
use crate::amqp::state::{AmqpError, DeliveryState};
use crate::amqp::{DecodeError, Fields, Reader, Value};

const OPEN: u64 = 0x10;
const BEGIN: u64 = 0x11;
const ATTACH: u64 = 0x12;
const FLOW: u64 = 0x13;
const TRANSFER: u64 = 0x14;
const DISPOSITION: u64 = 0x15;
const DETACH: u64 = 0x16;
const END: u64 = 0x17;
const CLOSE: u64 = 0x18;

/// Returns the number of fields of a performative in the specification.
const fn field_count(descriptor: u64) -> usize {
    match descriptor {
        OPEN => 10,
        BEGIN => 8,
        ATTACH => 14,
        FLOW | TRANSFER => 11,
        DISPOSITION => 6,
        DETACH => 3,
        _ => 1,
    }
}

/// Writes a performative with all of its fields, as Azure does: clients such as `azure-servicebus` before 7.15 index the fields, and
/// fail if trailing nulls are left out.
fn put(descriptor: u64, fields: &[Value], to: &mut BytesMut) {
    encode_padded_list(descriptor, fields, field_count(descriptor), to);
}

impl Performative {
    /// Reads the performative of a frame; the reader then holds the payload of a transfer.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let descriptor = reader.descriptor()?;
        let mut fields = reader.fields()?;
        let f = &mut fields;
        Ok(match descriptor {
            Some(OPEN) => Self::Open(Open::decode(f)?),
            Some(BEGIN) => Self::Begin(Begin::decode(f)?),
            Some(ATTACH) => Self::Attach(Box::new(Attach::decode(f)?)),
            Some(FLOW) => Self::Flow(Flow::decode(f)?),
            Some(TRANSFER) => Self::Transfer(Transfer::decode(f)?),
            Some(DISPOSITION) => Self::Disposition(Disposition::decode(f)?),
            Some(DETACH) => Self::Detach(Detach::decode(f)?),
            Some(END) => Self::End(AmqpError::from_value(&f.value()?)?),
            Some(CLOSE) => Self::Close(AmqpError::from_value(&f.value()?)?),
            _ => return Err(DecodeError::Expected("a performative")),
        })
    }

    /// Writes the performative.
    pub(crate) fn encode(&self, to: &mut BytesMut) {
        match self {
            Self::Open(open) => open.encode(to),
            Self::Begin(begin) => begin.encode(to),
            Self::Attach(attach) => attach.encode(to),
            Self::Flow(flow) => flow.encode(to),
            Self::Transfer(transfer) => transfer.encode(to),
            Self::Disposition(disposition) => disposition.encode(to),
            Self::Detach(detach) => detach.encode(to),
            Self::End(error) => put(END, &[AmqpError::optional(error.as_ref())], to),
            Self::Close(error) => put(CLOSE, &[AmqpError::optional(error.as_ref())], to),
        }
    }
}

impl Open {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            container_id: f.text()?.unwrap_or_default(),
            hostname: f.text()?,
            max_frame_size: f.u32()?.unwrap_or(u32::MAX),
            channel_max: f.u32()?.and_then(|n| n.try_into().ok()).unwrap_or(u16::MAX),
            idle_time_out: f.u32()?.filter(|ms| *ms > 0),
        })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [
            self.container_id.as_str().into(),
            self.hostname.clone().into(),
            self.max_frame_size.into(),
            self.channel_max.into(),
            self.idle_time_out.into(),
        ];
        put(OPEN, &fields, to);
    }
}

impl Begin {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            remote_channel: f.u32()?.and_then(|n| n.try_into().ok()),
            next_outgoing_id: f.u32()?.unwrap_or(0),
            incoming_window: f.u32()?.unwrap_or(0),
            outgoing_window: f.u32()?.unwrap_or(0),
            handle_max: f.u32()?.unwrap_or(u32::MAX),
        })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [
            self.remote_channel.into(),
            self.next_outgoing_id.into(),
            self.incoming_window.into(),
            self.outgoing_window.into(),
            self.handle_max.into(),
        ];
        put(BEGIN, &fields, to);
    }
}

impl Attach {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let name = f.text()?.unwrap_or_default();
        let handle = f.u32()?.ok_or(DecodeError::Expected("a handle"))?;
        let receiver = f.bool()?.ok_or(DecodeError::Expected("a role"))?;
        let mode = |n: Option<u32>, default: u8| n.and_then(|n| n.try_into().ok()).unwrap_or(default);
        let sender_settle_mode = mode(f.u32()?, 2);
        let receiver_settle_mode = mode(f.u32()?, 0);
        let (source, target) = (f.value()?, f.value()?);
        let (_unsettled, _incomplete) = (f.value()?, f.value()?);
        let initial_delivery_count = f.u32()?;
        let max_message_size = f.value()?.as_i64().and_then(|n| n.try_into().ok());
        let (_offered, _desired) = (f.value()?, f.value()?);
        let properties = f.map()?;
        Ok(Self {
            name,
            handle,
            receiver,
            sender_settle_mode,
            receiver_settle_mode,
            source,
            target,
            initial_delivery_count,
            max_message_size,
            properties,
        })
    }

    fn encode(&self, to: &mut BytesMut) {
        let properties =
            if self.properties.is_empty() { Value::Null } else { Value::Map(self.properties.clone()) };
        let fields = [
            self.name.as_str().into(),
            self.handle.into(),
            self.receiver.into(),
            self.sender_settle_mode.into(),
            self.receiver_settle_mode.into(),
            self.source.clone(),
            self.target.clone(),
            Value::Null,
            Value::Null,
            self.initial_delivery_count.into(),
            self.max_message_size.into(),
            Value::Null,
            Value::Null,
            properties,
        ];
        put(ATTACH, &fields, to);
    }
}

impl Flow {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            next_incoming_id: f.u32()?,
            incoming_window: f.u32()?.unwrap_or(0),
            next_outgoing_id: f.u32()?.unwrap_or(0),
            outgoing_window: f.u32()?.unwrap_or(0),
            handle: f.u32()?,
            delivery_count: f.u32()?,
            link_credit: f.u32()?,
            available: f.u32()?,
            drain: f.bool()?.unwrap_or(false),
            echo: f.bool()?.unwrap_or(false),
        })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [
            self.next_incoming_id.into(),
            self.incoming_window.into(),
            self.next_outgoing_id.into(),
            self.outgoing_window.into(),
            self.handle.into(),
            self.delivery_count.into(),
            self.link_credit.into(),
            self.available.into(),
            self.drain.into(),
            self.echo.into(),
        ];
        put(FLOW, &fields, to);
    }
}

impl Transfer {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let handle = f.u32()?.ok_or(DecodeError::Expected("a handle"))?;
        let (delivery_id, delivery_tag, format) = (f.u32()?, f.binary()?, f.u32()?);
        let (settled, more, _mode) = (f.bool()?, f.bool()?, f.value()?);
        let state = DeliveryState::from_value(&f.value()?)?;
        let (_resume, aborted) = (f.bool()?, f.bool()?);
        Ok(Self {
            handle,
            delivery_id,
            delivery_tag,
            message_format: format.unwrap_or(0),
            settled: settled.unwrap_or(false),
            more: more.unwrap_or(false),
            state,
            aborted: aborted.unwrap_or(false),
        })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [
            self.handle.into(),
            self.delivery_id.into(),
            self.delivery_tag.clone().into(),
            self.message_format.into(),
            self.settled.into(),
            self.more.into(),
            Value::Null,
            DeliveryState::optional(self.state.as_ref()),
            Value::Null,
            self.aborted.into(),
        ];
        put(TRANSFER, &fields, to);
    }
}

impl Disposition {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let receiver = f.bool()?.ok_or(DecodeError::Expected("a role"))?;
        let first = f.u32()?.ok_or(DecodeError::Expected("a delivery id"))?;
        let last = f.u32()?.unwrap_or(first);
        let settled = f.bool()?.unwrap_or(false);
        Ok(Self { receiver, first, last, settled, state: DeliveryState::from_value(&f.value()?)? })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [
            self.receiver.into(),
            self.first.into(),
            self.last.into(),
            self.settled.into(),
            DeliveryState::optional(self.state.as_ref()),
        ];
        put(DISPOSITION, &fields, to);
    }
}

impl Detach {
    fn decode(f: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let handle = f.u32()?.ok_or(DecodeError::Expected("a handle"))?;
        Ok(Self { handle, closed: f.bool()?.unwrap_or(false), error: AmqpError::from_value(&f.value()?)? })
    }

    fn encode(&self, to: &mut BytesMut) {
        let fields = [self.handle.into(), self.closed.into(), AmqpError::optional(self.error.as_ref())];
        put(DETACH, &fields, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every performative without its optional fields, and its number of fields in the specification.
    fn all() -> [(Performative, usize); 9] {
        [
            (Performative::Open(Open::default()), 10),
            (Performative::Begin(Begin::default()), 8),
            (Performative::Attach(Box::default()), 14),
            (Performative::Flow(Flow::default()), 11),
            (Performative::Transfer(Transfer::default()), 11),
            (Performative::Disposition(Disposition::default()), 6),
            (Performative::Detach(Detach::default()), 3),
            (Performative::End(None), 1),
            (Performative::Close(None), 1),
        ]
    }

    #[test]
    fn every_performative_is_written_with_all_of_its_fields() {
        for (performative, count) in all() {
            let mut bytes = BytesMut::new();
            performative.encode(&mut bytes);
            let Ok(Value::Described(described)) = Reader::new(&bytes).value() else {
                panic!("{performative:?} is no described list")
            };
            let Value::List(fields) = &described.1 else { panic!("{performative:?} is no list") };
            assert_eq!(fields.len(), count, "{performative:?}");
            assert_eq!(Performative::decode(&mut Reader::new(&bytes)), Ok(performative));
        }
    }
}
