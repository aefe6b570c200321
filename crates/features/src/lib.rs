//! Nothing but dependencies: the features that all parts together ask of the libraries that they share.
//!
//! Cargo builds a library with the features that the packages it was told to build ask for. The programs, the preload library
//! and the Python extension are built one after the other, each with an answer of its own, and the tests with another: the
//! store was built five times. The package below all others asks for all of it, so that each answer is the same.
//! `tests/test_built_once.py` tells what is missing here.
