//! Signatures of traces, after Chen et al. ("Data Layout Optimization for Petascale File Systems", slides "I/O
//! Signature: Pattern Classification" and "I/O Signature Notation").
//!
//! A [`Signature`] (the source's *trace signature*) is a sequence of accesses as nested loops: it expands to exactly
//! the accesses that it was made from. A [`PatternSignature`] tells the nature of a pattern by five [`Factors`]. A
//! [`Stream`] learns both, and the [`Phase`]s in time, of one process's accesses to one file in one pass;
//! [`file_in_words`] tells the ranks of a file in one line. [`TraceSignature`] has them all for a recorded trace.
//!
//! # Text form
//!
//! ```text
//! signature := [ item { ';' item } ]
//! item      := trace | repeat | residual
//! trace     := '{' ops ',' init ',' dim ',' '(' level { ',' level } ')' ',' reps '}'        dim = number of levels
//! level     := '[' '{' delta { ',' delta } '}' ',' '{' [ size { ',' size } ] '}' ',' '{' count '}' ']'
//! ops       := 'RW' | op { '+' op }
//! op        := 'READ' | 'WRITE'
//! repeat    := '{' 'REPEAT' ',' delta ',' count ',' '(' item { ';' item } ')' '}'
//! residual  := '{' 'RESIDUAL' ',' '(' access { ',' access } ')' '}'
//! access    := ( 'R' | 'W' ) offset '+' size
//! ```
//!
//! `trace` is the source's form; `ops` with several operations, `repeat` and `residual` are ours. Levels stand
//! outermost first. The innermost level makes `count` accesses; the k-th (from 0) has operation, size and delta number
//! k of their lists, which start over at their end, and the position then moves by that delta: a delta is between the
//! *starts* of accesses, so contiguous is delta = size. An outer level has no sizes; it runs the level inside `count`
//! times from its own position, which then moves by its own delta, whatever the inner movement was. The whole is run
//! `reps` times, each from the position at which the last ended. `RW` is READ and WRITE in turn. A `repeat` runs its
//! items `count` times, each time `delta` further on; their starts are those of the first time. A `residual` is what
//! no loop explains, in order. Offsets, counts and sizes are below 2^64, deltas between -2^63 and 2^63 - 1; positions
//! are taken modulo 2^64. White space is allowed between tokens.
//!
//! ```
//! use stripewise_signature::{Access, Signature};
//!
//! let trace: Vec<Access> = (0..4).map(|i| Access::read(i * 65_536, 65_536)).collect();
//! let signature = Signature::of(trace.iter().copied());
//! assert_eq!(signature.to_string(), "{READ,0,1,([{65536},{65536},{4}]),1}");
//! assert!(signature.expand().eq(trace));
//! ```

mod access;
mod classify;
mod close;
mod compress;
mod detect;
mod expand;
mod factors;
mod length;
mod order;
mod phases;
mod programs;
mod shape;
mod signature;
mod stream;
mod text;
mod tokens;
mod trace;
mod words;

pub use access::{Access, AccessOp};
pub use compress::Compressor;
pub use factors::{Factors, Operations, PatternSignature, SizeClass, Spatial, Temporal};
pub use length::SignatureLength;
pub use order::RequestProcess;
pub use phases::{MAX_PHASES, Phase};
pub use programs::{FileProgram, ProcessSignature, ProgramFactors, programs_of};
pub use shape::{Level, Nest, Repeat};
pub use signature::{Item, Signature};
pub use stream::{Stream, StreamSignature};
pub use text::{Beginning, SignatureError};
pub use trace::{FileSignature, Mismatch, SignatureProgress, TraceSignature};
pub use words::{Who, file_in_words, stream_in_words};
