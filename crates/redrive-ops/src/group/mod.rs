//! Groups of failures that are alike. Pure.
//!
//! | module | is |
//! |---|---|
//! | [`template`] | what the failures of a group have in common |
//! | [`id`] | the id of a group |
//! | [`mask`] | masks what varies in a text |
//! | [`forms`], [`times`] | what varies, by its form |
//! | [`placeholder`] | what stands for it |
//! | [`text`] | reads a text by position |

mod forms;
mod id;
mod mask;
mod placeholder;
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
