//! What threads of the program meet at: the standard library's, or with the feature `shuttle` that of shuttle, which decides at
//! each of them which thread goes on.

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::atomic;
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::atomic;
