//! Rust values as plain Python objects: dicts, lists, numbers, strings, `None`; and text of Python as Rust takes it.

use crate::error::raise;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use rustix::fs::FileType;
use serde_json::Value;

/// `value` as Python objects; every area of the module builds its results with `serde_json::json!`. O(size of value).
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Number(number) => {
            if let Some(whole) = number.as_u64() {
                whole.into_pyobject(py)?.into_any()
            } else if let Some(whole) = number.as_i64() {
                whole.into_pyobject(py)?.into_any()
            } else {
                number.as_f64().into_pyobject(py)?.into_any()
            }
        }
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (key, item) in fields {
                dict.set_item(key, to_python(py, item)?)?;
            }
            dict.into_any()
        }
    })
}

/// Text that a person has written. What is not UTF-8, as an argument of a command may be, is a `StripewiseError` that names it.
pub(crate) struct Utf8Text(pub(crate) String);

impl FromPyObject<'_, '_> for Utf8Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let text = object.cast::<PyString>()?;
        match text.to_cow() {
            Ok(text) => Ok(Self(text.into_owned())),
            Err(_) => Err(raise(format!("{} is not UTF-8, as patterns and optimisations are", text.repr()?))),
        }
    }
}

/// The kind of a file in words.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "file of an unknown kind",
    }
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
