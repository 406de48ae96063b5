//! Fields as bytes: [`Reader`] takes them from a payload, [`Writer`] appends them.

mod reader;
mod writer;

pub(crate) use reader::Reader;
pub(crate) use writer::Writer;
