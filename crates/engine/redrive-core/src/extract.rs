//! Arguments of handlers.

use bytes::Bytes;

use crate::delivery::Delivery;
use crate::headers::Headers;
use crate::history::FailureHistory;
use crate::message::{Message, Properties};
use crate::publisher::Publisher;
use crate::rejected::Rejected;

/// An argument of a handler that is extracted from the delivery.
///
/// Extraction failures are permanent: the handler does not run, and the message is dead-lettered as `NonRetryableError`.
///
/// ```
/// use redrive_core::{Delivery, FromDelivery, Rejected};
///
/// struct Tenant(String);
///
/// impl<S> FromDelivery<S> for Tenant {
///     fn from_delivery(delivery: &Delivery, _state: &S) -> Result<Self, Rejected> {
///         let tenant = delivery.message().headers().get("tenant").and_then(|tenant| tenant.as_str());
///         tenant.map(|tenant| Tenant(tenant.to_owned())).ok_or_else(|| Rejected::new("no header `tenant`", "missing"))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler with state `{S}`",
    label = "cannot be extracted from a delivery",
    note = "arguments are `Json<T>` (feature `json`, `T: Deserialize`), `Body<T, C>`, `Header<T>`, `State<S>`, `Extension<T>`, \
            `Attempt`, `String`, `Bytes`, `Headers`, `Properties`, `Message`, `FailureHistory`, `Delivery`, `Publisher`, or your own `impl FromDelivery<S>`",
    note = "for `State<T>`, `T` must be the type that `.handler_with(state, ..)` is given, or a part of it (`FromRef`)"
)]
pub trait FromDelivery<S>: Sized {
    /// Extracts the argument.
    ///
    /// # Errors
    ///
    /// If the value is missing or cannot be read.
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected>;
}

/// An argument that may also be an `Option<T>`: `None` if the value is missing. A value that cannot be read is still rejected.
#[diagnostic::on_unimplemented(
    message = "`Option<{Self}>` cannot be an argument of a handler",
    note = "`Option` goes around `Json<T>`, `Body<T, C>`, `Header<T>` and `Extension<T>`; \
            to decide about any argument that cannot be extracted, ask for `Result<{Self}, Rejected>`"
)]
pub trait OptionalFromDelivery<S>: Sized {
    /// Extracts the argument, if its value is present.
    ///
    /// # Errors
    ///
    /// If the value is present and cannot be read.
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Option<Self>, Rejected>;
}

impl<S, T: OptionalFromDelivery<S>> FromDelivery<S> for Option<T> {
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected> {
        T::from_delivery(delivery, state)
    }
}

/// For handlers that decide themselves what happens to a message whose argument cannot be extracted.
impl<S, T: FromDelivery<S>> FromDelivery<S> for Result<T, Rejected> {
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected> {
        Ok(T::from_delivery(delivery, state))
    }
}

macro_rules! from_delivery_for_tuples {
    ($($part:ident),+) => {
        /// Several arguments in one, for example as the items of a batch.
        impl<S, $($part: FromDelivery<S>),+> FromDelivery<S> for ($($part,)+) {
            fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected> {
                Ok(($($part::from_delivery(delivery, state)?,)+))
            }
        }
    };
}

from_delivery_for_tuples!(A, B);
from_delivery_for_tuples!(A, B, C);
from_delivery_for_tuples!(A, B, C, D);

impl<S> FromDelivery<S> for String {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        match std::str::from_utf8(delivery.message().body()) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(Rejected::new("the body is not UTF-8 text", error)),
        }
    }
}

/// The publisher of the transport that the delivery came from.
impl<S> FromDelivery<S> for Publisher {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        delivery.publisher().cloned().ok_or_else(|| {
            let why =
                "a consumer gives one to every delivery; a test does it with `Delivery::with_publisher`";
            Rejected::new("the delivery came without a publisher", why)
        })
    }
}

macro_rules! always_there {
    ($($what:ty: $take:expr;)*) => {
        $(impl<S> FromDelivery<S> for $what {
            fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
                let take: fn(&Delivery) -> Self = $take;
                Ok(take(delivery))
            }
        })*
    };
}

always_there! {
    Bytes: |delivery| delivery.message().body().clone();
    Headers: |delivery| delivery.message().headers().clone();
    Properties: |delivery| delivery.message().properties().clone();
    Message: |delivery| delivery.message().clone();
    FailureHistory: |delivery| delivery.history().clone();
    Delivery: Clone::clone;
}
