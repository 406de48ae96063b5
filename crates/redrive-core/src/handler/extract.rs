//! What a handler's arguments can be.

use std::fmt;

use bytes::Bytes;

use crate::deaths::DeathHistory;
use crate::delivery::Delivery;
use crate::disposition::BoxError;
use crate::headers::Headers;
use crate::history::FailureHistory;
use crate::message::{Message, Properties};
use crate::publisher::Publisher;

/// What can be taken out of a delivery, as an argument of a handler.
///
/// An argument that cannot be extracted is no accident that another attempt would mend: the handler does not run, and
/// the message is dead-lettered as `NonRetryableError`.
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
    note = "arguments are `Json<T>` (feature `json`, `T: Deserialize`), `State<S>`, `Attempt`, `String`, `Bytes`, `Headers`, \
            `Properties`, `Message`, `FailureHistory`, `DeathHistory`, `Delivery`, `Publisher`, or your own `impl FromDelivery<S>`",
    note = "for `State<T>`, `T` must be the type that `.handler_with(state, ..)` is given"
)]
pub trait FromDelivery<S>: Sized {
    /// Takes it out.
    ///
    /// # Errors
    ///
    /// When it is not there, or cannot be read.
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected>;
}

/// An argument of a handler could not be extracted. Always permanent.
#[derive(Debug)]
pub struct Rejected {
    what: String,
    why: BoxError,
}

impl Rejected {
    /// `what` is wrong with the message, and `why`.
    #[must_use]
    pub fn new(what: impl Into<String>, why: impl Into<BoxError>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.why)
    }
}

/// The state that was given to [`Consumer::handler_with`](crate::Consumer::handler_with), cloned.
#[derive(Clone, Copy, Debug)]
pub struct State<S>(pub S);

impl<S: Clone> FromDelivery<S> for State<S> {
    fn from_delivery(_: &Delivery, state: &S) -> Result<Self, Rejected> {
        Ok(Self(state.clone()))
    }
}

/// Which attempt at the message this is: 1 the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(pub u32);

/// The body, parsed from JSON.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned, S> FromDelivery<S> for Json<T> {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        match serde_json::from_slice(delivery.message().body()) {
            Ok(value) => Ok(Self(value)),
            Err(error) => {
                let wanted = std::any::type_name::<T>();
                Err(Rejected::new(format!("the body is not a `{wanted}` in JSON"), error))
            }
        }
    }
}

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
    Attempt: |delivery| Attempt(delivery.attempt());
    Bytes: |delivery| delivery.message().body().clone();
    Headers: |delivery| delivery.message().headers().clone();
    Properties: |delivery| delivery.message().properties().clone();
    Message: |delivery| delivery.message().clone();
    FailureHistory: |delivery| delivery.history().clone();
    DeathHistory: Delivery::deaths;
    Delivery: Clone::clone;
}
