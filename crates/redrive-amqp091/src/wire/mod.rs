//! Fields as bytes: [`Reader`] takes them from a payload, [`Writer`] appends them. [`Field`] does both for each type of a method's
//! argument.

mod field;
mod reader;
mod writer;

pub(crate) use field::Field;
pub(crate) use reader::Reader;
pub(crate) use writer::Writer;
