//! A case: layouts and a list of operations, and how it is tried in a world.

use crate::model::{ClockInterval, ReferenceModel};
use crate::operation::{Answer, CaseOperation};
use crate::world::{LayoutRows, World};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// One operation, by one of the agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseStep {
    /// The agent's number, counted round the agents that there are.
    #[serde(default)]
    pub who: usize,
    #[serde(flatten)]
    #[allow(missing_docs, reason = "its type says it")]
    pub operation: CaseOperation,
}

/// What is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Layouts: of new files called `a`, `b` and `c` the first three; a move takes any.
    pub layouts: Vec<LayoutRows>,
    /// The operations in order.
    pub steps: Vec<CaseStep>,
}

impl Case {
    /// Reads a kept case.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The case as a file that is kept: a line per operation.
    pub fn to_text(&self) -> String {
        let steps: Vec<String> = self.steps.iter().map(json).collect();
        format!("{{\"layouts\": {},\n\"steps\": [\n{}\n]}}\n", json(&self.layouts), steps.join(",\n"))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}

fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// An answer for people: bytes as their number, for they are many.
fn told(answer: &Answer) -> String {
    match answer {
        Answer::Bytes { data } => format!("{} bytes", data.len()),
        Answer::Failed(errno) => format!("{}", std::io::Error::from_raw_os_error(*errno)),
        other => format!("{other:?}"),
    }
}

fn difference(got: &Answer, expected: &Answer) -> String {
    let mut text = format!("came {}, right is {}", told(got), told(expected));
    if let (Answer::Bytes { data: got }, Answer::Bytes { data: expected }) = (got, expected)
        && let Some(at) = got.iter().zip(expected).position(|(got, expected)| got != expected)
    {
        text += &format!("; byte {at} is {:#04x} and should be {:#04x}", got[at], expected[at]);
    }
    text
}

/// A case that is being tried.
struct Trial<'a> {
    world: &'a mut World,
    model: ReferenceModel,
}

impl Trial<'_> {
    /// One operation, through the way in and in the model; left out where the way does not have it.
    fn step(&mut self, who: usize, operation: &CaseOperation) -> Result<(), String> {
        let who = who % self.world.agents();
        if !self.world.has(who, operation) || !self.model.allows(who, operation) {
            return Ok(());
        }
        self.step_anyhow(who, operation)
    }

    fn step_anyhow(&mut self, who: usize, operation: &CaseOperation) -> Result<(), String> {
        let data = operation.data();
        let from_ns = now_ns();
        let got = self.world.run(who, operation, &data)?;
        let window = ClockInterval { from_ns, to_ns: now_ns() };
        let expected = self.model.step(who, operation, &data, &got, window);
        if got == expected {
            return Ok(());
        }
        Err(format!("{operation:?} through {}: {}", self.world.name_of(who), difference(&got, &expected)))
    }

    /// All bytes of all files, through every agent: first by the descriptors that are open, then, when all are closed,
    /// by name.
    fn compare_all(&mut self) -> Result<(), String> {
        let agents = self.world.agents();
        for (who, slot) in self.model.open_slots() {
            self.step(who, &CaseOperation::Fstat { slot })?;
            self.compare(who, slot, self.model.stretches_of_slot((who, slot)))?;
        }
        for who in 0..agents {
            (0..SLOTS).try_for_each(|slot| self.step(who, &CaseOperation::Unmap { slot }))?;
        }
        for (who, slot) in self.model.open_slots() {
            self.step(who, &CaseOperation::Close { slot })?;
        }
        for who in 0..agents {
            for (path, directory) in self.model.all_names() {
                self.step(who, &CaseOperation::Stat { path: path.clone(), follow: false })?;
                if directory {
                    self.step(who, &CaseOperation::List { path })?;
                } else if self.model.file_at(&path).is_some() {
                    let stretches = self.model.stretches_at(&path);
                    self.step(who, &CaseOperation::Open { slot: 0, path, flags: libc::O_RDONLY, mode: 0 })?;
                    self.compare(who, 0, stretches)?;
                    self.step(who, &CaseOperation::Close { slot: 0 })?;
                }
            }
        }
        Ok(())
    }

    fn compare(&mut self, who: usize, slot: u8, stretches: Vec<(u64, usize)>) -> Result<(), String> {
        stretches
            .into_iter()
            .try_for_each(|(at, len)| self.step(who, &CaseOperation::Pread { slot, at: at as i64, len }))
    }

    fn remove_all(&mut self) -> Result<(), String> {
        for (path, directory) in self.model.all_names() {
            let gone = if directory { CaseOperation::Rmdir { path } } else { CaseOperation::Unlink { path } };
            // The other agents may remember these names: no operation uses them again.
            self.step_anyhow(0, &gone)?;
        }
        Ok(())
    }
}

/// Slots of an agent.
pub const SLOTS: u8 = 4;

/// Tries a case; what went wrong.
///
/// # Errors
/// The first operation whose answer was not right, or what was left behind at the end.
pub fn try_case(world: &mut World, case: &Case) -> Result<(), String> {
    world.begin(&case.layouts)?;
    let mut trial = Trial { world, model: ReferenceModel::default() };
    let mut tried = || {
        for (number, step) in case.steps.iter().enumerate() {
            trial.step(step.who, &step.operation).map_err(|wrong| format!("step {number}: {wrong}"))?;
        }
        trial.compare_all().map_err(|wrong| format!("at the end: {wrong}"))?;
        trial.world.raises_no_alarm()?;
        trial.remove_all().map_err(|wrong| format!("removing all: {wrong}"))
    };
    let tried = tried();
    let left = trial.world.end();
    tried.and(left)
}
