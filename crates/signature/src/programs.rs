//! [`programs_of`]: what each program did with all files, from what it did with each.

use crate::factors::Factors;
use crate::length::SignatureLength;
use crate::order::RequestProcess;
use crate::stream::StreamSignature;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What one process did with one file.
#[derive(Debug)]
pub struct ProcessSignature {
    /// The process.
    pub process: RequestProcess,
    /// Signature, factors and phases of its requests, in order of their start; what started at once is in order of
    /// offset.
    pub stream: StreamSignature,
}

/// What one program did with one file. It can be written and read again, so that files may be signed apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileProgram {
    /// Number in [`stripewise_trace::Trace::programs`].
    pub program: u32,
    /// Rank and process id of its processes that read or wrote the file.
    pub processes: Vec<(u32, u32)>,
    /// Of all of them.
    pub factors: Factors,
    /// Parts of their signatures.
    pub parts: u64,
    /// Numbers in their signatures.
    pub numbers: u64,
}

/// What one program did with all files.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramFactors {
    /// Number in [`stripewise_trace::Trace::programs`].
    pub program: u32,
    /// Files that it read or wrote.
    pub files: u64,
    /// Its processes that read or wrote.
    pub processes: u64,
    /// What its pattern signature is decided from.
    pub factors: Factors,
    /// Parts of its processes' signatures.
    pub parts: u64,
    /// Numbers in its processes' signatures.
    pub numbers: u64,
}

impl ProgramFactors {
    /// How long its processes' signatures are.
    pub fn length(&self) -> SignatureLength {
        SignatureLength { accesses: self.factors.accesses(), parts: self.parts, numbers: self.numbers }
    }
}

impl FileProgram {
    /// Of one program's processes of one file; there is at least one.
    pub(crate) fn of(processes: &[ProcessSignature]) -> Self {
        let RequestProcess { program, .. } = processes[0].process;
        let mut all = Self { program, processes: Vec::new(), factors: Factors::default(), parts: 0, numbers: 0 };
        for signature in processes {
            all.processes.push((signature.process.rank, signature.process.pid));
            all.factors.merge(&signature.stream.factors);
            all.parts += signature.stream.signature.len();
            all.numbers += signature.stream.signature.numbers();
        }
        all
    }
}

/// By program, in order of number. `files` are in order of file: means of intervals are floats, and depend on the order
/// in their last bit. O(p log p) for p processes of all files.
pub fn programs_of(files: impl IntoIterator<Item = FileProgram>) -> Vec<ProgramFactors> {
    let mut programs: BTreeMap<u32, (ProgramFactors, BTreeSet<(u32, u32)>)> = BTreeMap::new();
    for file in files {
        let FileProgram { program, .. } = file;
        let (all, processes) = programs.entry(program).or_insert_with(|| {
            let factors = Factors::default();
            (ProgramFactors { program, files: 0, processes: 0, factors, parts: 0, numbers: 0 }, BTreeSet::new())
        });
        all.files += 1;
        all.factors.merge(&file.factors);
        all.parts = all.parts.saturating_add(file.parts);
        all.numbers = all.numbers.saturating_add(file.numbers);
        processes.extend(file.processes);
    }
    programs.into_values().map(|(all, processes)| ProgramFactors { processes: processes.len() as u64, ..all }).collect()
}
