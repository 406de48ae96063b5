//! Groups of similar failures. Pure.
//!
//! | module | contains |
//! |---|---|
//! | [`template`] | the common part of a group's failures |
//! | [`id`] | the id of a group |
//! | [`mask`] | masks the variable parts of a text |
//! | [`codes`] | recognizes what says the cause, and stays |
//! | [`forms`], [`times`] | recognize variable parts by their form |
//! | [`text`] | reads a text by position; the placeholders |

mod codes;
mod forms;
mod id;
mod mask;
mod template;
#[cfg(test)]
mod tests;
mod text;
mod times;

pub use id::{GroupId, ParseGroupIdError};
pub use template::Template;
pub(crate) use template::error_text;
#[cfg(feature = "exporter")]
pub(crate) use template::is_name;
pub(crate) use text::cut;
