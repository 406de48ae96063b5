//! Arguments that are read beside the body.

use redrive_core::{Delivery, FromDelivery, OptionalFromDelivery, Rejected, Value};

/// A clone of the state that was given to [`Consumer::handler_with`](crate::Consumer::handler_with), or of a part of it
/// ([`FromRef`]).
#[derive(Clone, Copy, Debug)]
pub struct State<S>(pub S);

/// A part of a state, for handlers that extract `State<Part>`. Every state that implements `Clone` is a part of itself.
///
/// ```
/// use redrive_consumer::{FromRef, State};
/// # #[derive(Clone)] struct Db;
/// # #[derive(Clone)] struct Mailer;
///
/// #[derive(Clone)]
/// struct App {
///     db: Db,
///     mailer: Mailer,
/// }
///
/// impl FromRef<App> for Db {
///     fn from_ref(app: &App) -> Self {
///         app.db.clone()
///     }
/// }
///
/// async fn ship(State(db): State<Db>, State(app): State<App>) {}
/// # fn is_handler<A>(_: impl redrive_consumer::Handler<A, App>) {} is_handler(ship);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no part of the state `{S}`",
    note = "`.handler_with(state, ..)` must be given a `{Self}`, or a state of which it is a part: `impl FromRef<{S}> for {Self}`"
)]
pub trait FromRef<S> {
    /// Returns the part of this state.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}

impl<S, T: FromRef<S>> FromDelivery<S> for State<T> {
    fn from_delivery(_: &Delivery, state: &S) -> Result<Self, Rejected> {
        Ok(Self(T::from_ref(state)))
    }
}

/// A value that a layer attached to the delivery: see [`Extensions`](redrive_core::Extensions). `Option<Extension<T>>` is `None` if no
/// layer attached one.
///
/// ```
/// use redrive_consumer::{Consumer, Extension};
/// use redrive_core::Delivery;
/// # fn example<T: redrive_core::Transport>(transport: T) {
///
/// #[derive(Clone)]
/// struct Region(&'static str);
///
/// async fn ship(Extension(Region(region)): Extension<Region>) {
///     println!("ships from {region}");
/// }
///
/// let add_region = tower::util::MapRequestLayer::new(|mut delivery: Delivery| {
///     delivery.extensions_mut().insert(Region("eu"));
///     delivery
/// });
/// let consumer = Consumer::new(transport).layer(add_region).handler(ship);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

impl<S, T: Clone + Send + Sync + 'static> FromDelivery<S> for Extension<T> {
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected> {
        let found = <Self as OptionalFromDelivery<S>>::from_delivery(delivery, state)?;
        found.ok_or_else(|| {
            let wanted = std::any::type_name::<T>();
            Rejected::new(format!("no layer has put a `{wanted}` beside the delivery"), "missing extension")
        })
    }
}

impl<S, T: Clone + Send + Sync + 'static> OptionalFromDelivery<S> for Extension<T> {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Option<Self>, Rejected> {
        Ok(delivery.extensions().get::<T>().cloned().map(Self))
    }
}

/// One header of the message, typed: `Header(Tenant(tenant)): Header<Tenant>`. `Option<Header<T>>` is `None` if the message has no
/// such header.
///
/// ```
/// use redrive_consumer::{Header, TypedHeader};
/// use redrive_core::Value;
///
/// struct Tenant(String);
///
/// impl TypedHeader for Tenant {
///     const NAME: &'static str = "tenant";
///
///     fn read(value: &Value) -> Option<Self> {
///         value.as_str().map(|tenant| Self(tenant.to_owned()))
///     }
/// }
///
/// async fn ship(Header(Tenant(tenant)): Header<Tenant>) {
///     println!("ships for {tenant}");
/// }
/// # fn is_handler<A>(_: impl redrive_consumer::Handler<A, ()>) {} is_handler(ship);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

/// A header with its name and its type; for [`Header`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which header it is read from",
    label = "not the type of a header",
    note = "write a type of your own for the header, and implement `TypedHeader` for it: `NAME` and `read`"
)]
pub trait TypedHeader: Sized {
    /// The name of the header on the message.
    const NAME: &'static str;

    /// Reads the value; `None` if it cannot be read.
    fn read(value: &Value) -> Option<Self>;
}

impl<S, T: TypedHeader> FromDelivery<S> for Header<T> {
    fn from_delivery(delivery: &Delivery, state: &S) -> Result<Self, Rejected> {
        let found = <Self as OptionalFromDelivery<S>>::from_delivery(delivery, state)?;
        found.ok_or_else(|| {
            Rejected::new(format!("the message has no header `{}`", T::NAME), "missing header")
        })
    }
}

impl<S, T: TypedHeader> OptionalFromDelivery<S> for Header<T> {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Option<Self>, Rejected> {
        let Some(value) = delivery.message().headers().get(T::NAME) else { return Ok(None) };
        let unreadable = || {
            let wanted = std::any::type_name::<T>();
            Rejected::new(format!("the header `{}` is not a `{wanted}`", T::NAME), format!("it is {value:?}"))
        };
        T::read(value).map(|value| Some(Self(value))).ok_or_else(unreadable)
    }
}

/// Which attempt at the message this is: 1 the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt(pub u32);

impl<S> FromDelivery<S> for Attempt {
    fn from_delivery(delivery: &Delivery, _: &S) -> Result<Self, Rejected> {
        Ok(Self(delivery.attempt()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use redrive_core::Message;

    use super::*;

    fn delivery(message: Message) -> Delivery {
        Delivery::new(message, "orders", UNIX_EPOCH)
    }

    fn extracted<T: FromDelivery<()>>(delivery: &Delivery) -> Result<T, Rejected> {
        T::from_delivery(delivery, &())
    }

    #[derive(Debug, PartialEq)]
    struct Tenant(String);

    impl TypedHeader for Tenant {
        const NAME: &'static str = "tenant";

        fn read(value: &Value) -> Option<Self> {
            value.as_str().map(|tenant| Self(tenant.to_owned()))
        }
    }

    #[test]
    fn a_header_is_there_missing_or_unreadable() {
        let there = delivery(Message::new("").with_header("tenant", "blue"));
        assert_eq!(extracted::<Header<Tenant>>(&there).unwrap().0, Tenant("blue".to_owned()));
        let missing = delivery(Message::new(""));
        let error = extracted::<Header<Tenant>>(&missing).unwrap_err();
        assert_eq!(error.to_string(), "the message has no header `tenant`");
        assert!(extracted::<Option<Header<Tenant>>>(&missing).unwrap().is_none());
        let unreadable = delivery(Message::new("").with_header("tenant", 7_i64));
        assert!(extracted::<Option<Header<Tenant>>>(&unreadable).is_err(), "it is there");
        assert!(extracted::<Result<Header<Tenant>, Rejected>>(&unreadable).unwrap().is_err());
    }

    #[test]
    fn what_a_layer_put_in_comes_out() {
        let mut delivery = delivery(Message::new(""));
        assert!(extracted::<Extension<u8>>(&delivery).unwrap_err().to_string().contains("u8"));
        assert!(extracted::<Option<Extension<u8>>>(&delivery).unwrap().is_none());
        delivery.extensions_mut().insert(7_u8);
        assert_eq!(extracted::<Extension<u8>>(&delivery).unwrap().0, 7);
    }

    #[test]
    #[cfg(feature = "json")]
    fn an_empty_body_is_none_and_a_wrong_one_is_rejected() {
        use crate::Json;

        assert!(extracted::<Option<Json<u8>>>(&delivery(Message::new(""))).unwrap().is_none());
        assert_eq!(extracted::<Option<Json<u8>>>(&delivery(Message::new("7"))).unwrap().unwrap().0, 7);
        let with_mark = delivery(Message::new("\u{feff}7"));
        assert_eq!(extracted::<Json<u8>>(&with_mark).unwrap().0, 7, "after a byte order mark");
        let error = extracted::<Option<Json<u8>>>(&delivery(Message::new("x"))).unwrap_err();
        assert_eq!(error.to_string(), "the body is not a `u8` in application/json");
    }
}
