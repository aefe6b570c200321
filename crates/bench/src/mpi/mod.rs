//! MPI: the library found and bound at run time, ranks started, files through MPI-IO.

mod file;
pub mod launch;
mod library;
pub mod rank;
