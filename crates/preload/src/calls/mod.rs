//! The functions of libc that this library stands in for, by what they do.

mod closing;
mod data;
mod metadata;
mod opening;
mod processes;
mod recorded;
mod stdio;
