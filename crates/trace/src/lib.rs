//! The record of a program's I/O: format, recorder, reader.
