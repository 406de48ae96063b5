//! Arguments that are read from the body.

use std::marker::PhantomData;

#[cfg(feature = "json")]
use redrive_core::JsonCodec;
use redrive_core::{Codec, Decode, Delivery, FromDelivery, OptionalFromDelivery, Rejected};

/// The body, decoded by a [`Codec`]: `Body(order, ..): Body<Order, MessagePack>`. For JSON: [`Json`].
///
/// `Option<Body<T, C>>` is `None` if the body is empty.
#[derive(Clone, Copy, Debug)]
pub struct Body<T, C>(pub T, pub PhantomData<C>);

impl<T, C: Decode<T>, S> FromDelivery<S> for Body<T, C> {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        decoded::<T, C>(delivery).map(|value| Self(value, PhantomData))
    }
}

impl<T, C: Decode<T>, S> OptionalFromDelivery<S> for Body<T, C> {
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Option<Self>, Rejected> {
        unless_empty(delivery, || FromDelivery::from_delivery(delivery, state))
    }
}

/// The body, parsed from JSON. Ignores the content type of the message.
///
/// `Option<Json<T>>` is `None` if the body is empty.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned, S> FromDelivery<S> for Json<T> {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        decoded::<T, JsonCodec>(delivery).map(Self)
    }
}

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned, S> OptionalFromDelivery<S> for Json<T> {
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Option<Self>, Rejected> {
        unless_empty(delivery, || FromDelivery::from_delivery(delivery, state))
    }
}

fn decoded<T, C: Decode<T>>(delivery: &Delivery) -> Result<T, Rejected> {
    C::decode(delivery.message().body()).map_err(|error| {
        let (wanted, format) = (std::any::type_name::<T>(), <C as Codec>::CONTENT_TYPE);
        Rejected::new(format!("the body is not a `{wanted}` in {format}"), error)
    })
}

fn unless_empty<T>(
    delivery: &Delivery,
    read: impl FnOnce() -> Result<T, Rejected>,
) -> Result<Option<T>, Rejected> {
    if delivery.message().body().is_empty() { Ok(None) } else { read().map(Some) }
}
