//! Converts values into bodies, and bodies into values.

use bytes::Bytes;

use crate::disposition::BoxError;

/// A format of bodies. A format implements [`Decode`], [`Encode`] or both.
///
/// ```
/// use redrive_core::{BoxError, Bytes, Codec, Decode, Encode, Message};
///
/// /// Numbers, separated by commas.
/// struct Csv;
///
/// impl Codec for Csv {
///     const CONTENT_TYPE: &'static str = "text/csv";
/// }
///
/// impl Decode<Vec<u64>> for Csv {
///     fn decode(body: &Bytes) -> Result<Vec<u64>, BoxError> {
///         Ok(std::str::from_utf8(body)?.split(',').map(str::parse).collect::<Result<_, _>>()?)
///     }
/// }
///
/// impl Encode<[u64]> for Csv {
///     fn encode(values: &[u64]) -> Result<Bytes, BoxError> {
///         Ok(values.iter().map(u64::to_string).collect::<Vec<_>>().join(",").into())
///     }
/// }
///
/// let message = Message::encoded::<Csv, _>(&[1, 2, 3][..])?;
/// assert_eq!(&message.body()[..], b"1,2,3");
/// assert_eq!(message.properties().content_type.as_deref(), Some("text/csv"));
/// assert_eq!(Csv::decode(message.body())?, [1, 2, 3]);
/// # Ok::<(), BoxError>(())
/// ```
///
/// Decoding ignores the content type of the message, because publishers often leave it out. If one queue carries several formats,
/// use a `Router` by content type.
pub trait Codec: 'static {
    /// Content type of encoded messages, for example `application/json`.
    const CONTENT_TYPE: &'static str;
}

/// A format that decodes values of type `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot read a `{T}` from a body",
    note = "for JSON, `{T}` must implement `serde::Deserialize`: `#[derive(serde::Deserialize)]`"
)]
pub trait Decode<T>: Codec {
    /// Decodes the body.
    ///
    /// # Errors
    ///
    /// If the body is not a value of type `T`. The error becomes the cause of a [`Rejected`](crate::Rejected).
    fn decode(body: &Bytes) -> Result<T, BoxError>;
}

/// A format that encodes values of type `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot write a `{T}` into a body",
    note = "for JSON, `{T}` must implement `serde::Serialize`: `#[derive(serde::Serialize)]`"
)]
pub trait Encode<T: ?Sized>: Codec {
    /// Encodes the value.
    ///
    /// # Errors
    ///
    /// If the format cannot represent the value.
    fn encode(value: &T) -> Result<Bytes, BoxError>;
}

/// JSON, by `serde_json`. A byte order mark before it, as some programs write, is skipped.
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug)]
pub struct JsonCodec;

#[cfg(feature = "json")]
impl Codec for JsonCodec {
    const CONTENT_TYPE: &'static str = "application/json";
}

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned> Decode<T> for JsonCodec {
    fn decode(body: &Bytes) -> Result<T, BoxError> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        Ok(serde_json::from_slice(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body))?)
    }
}

#[cfg(feature = "json")]
impl<T: serde::Serialize + ?Sized> Encode<T> for JsonCodec {
    fn encode(value: &T) -> Result<Bytes, BoxError> {
        Ok(serde_json::to_vec(value)?.into())
    }
}
