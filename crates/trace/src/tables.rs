//! [`Tables`]: files, programs and processes of a merged trace, and their bytes.

/// A program (a job): all its processes carry its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: String,
}

/// One process (one execution image: a process that called `exec` appears twice).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Index of its program.
    pub program: u32,
    /// Its rank in the program.
    pub rank: u32,
    /// Process id on its host.
    pub pid: u32,
    /// Process id of its parent.
    pub parent_pid: u32,
    /// Name of its host.
    pub host: String,
    /// Command line, arguments separated by spaces; long ones are cut.
    pub command: String,
    /// When it made its first record, in nanoseconds since the start of the trace.
    pub start_ns: u64,
    /// Records it made.
    pub records: u64,
    /// Records lost because the process was killed in the middle of them.
    pub holes: u64,
    /// Records lost because the trace's disk was full.
    pub dropped: u64,
    /// Opens of files beyond what one process can name; their records have an unknown file.
    pub names_dropped: u64,
}

/// The tables that records refer to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Paths, absolute where they are known so.
    pub files: Vec<Vec<u8>>,
    /// Programs.
    pub programs: Vec<Program>,
    /// Processes; each names a program of the list.
    pub processes: Vec<Process>,
}

impl Tables {
    /// Puts the files in order of path; the new number of each, by its old one. O(n log n).
    pub fn order_files(&mut self) -> Vec<u32> {
        let mut old: Vec<u32> = (0..self.files.len() as u32).collect();
        old.sort_by(|&a, &b| self.files[a as usize].cmp(&self.files[b as usize]));
        let mut new = vec![0; old.len()];
        for (place, &id) in old.iter().enumerate() {
            new[id as usize] = place as u32;
        }
        self.files = old.iter().map(|&id| std::mem::take(&mut self.files[id as usize])).collect();
        new
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let count = |out: &mut Vec<u8>, count: usize| out.extend_from_slice(&(count as u64).to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &[u8]| {
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text);
        };
        count(&mut out, self.files.len());
        for file in &self.files {
            text(&mut out, file);
        }
        count(&mut out, self.programs.len());
        for program in &self.programs {
            text(&mut out, program.name.as_bytes());
        }
        count(&mut out, self.processes.len());
        for process in &self.processes {
            for word in [process.program, process.rank, process.pid, process.parent_pid] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            for long in [process.start_ns, process.records, process.holes, process.dropped, process.names_dropped] {
                out.extend_from_slice(&long.to_le_bytes());
            }
            text(&mut out, process.host.as_bytes());
            text(&mut out, process.command.as_bytes());
        }
        out
    }

    /// Inverse of [`Tables::to_bytes`]; on failure the offset in `bytes` and what is wrong there.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, (usize, String)> {
        let mut cursor = Cursor { bytes, at: 0 };
        let mut tables = Self::default();
        for _ in 0..cursor.long()? {
            tables.files.push(cursor.text()?.to_vec());
        }
        for _ in 0..cursor.long()? {
            tables.programs.push(Program { name: cursor.string()? });
        }
        for _ in 0..cursor.long()? {
            tables.processes.push(Process {
                program: cursor.word()?,
                rank: cursor.word()?,
                pid: cursor.word()?,
                parent_pid: cursor.word()?,
                start_ns: cursor.long()?,
                records: cursor.long()?,
                holes: cursor.long()?,
                dropped: cursor.long()?,
                names_dropped: cursor.long()?,
                host: cursor.string()?,
                command: cursor.string()?,
            });
            if tables.processes.last().is_some_and(|process| process.program as usize >= tables.programs.len()) {
                return Err((cursor.at, "a process of a program that is not listed".into()));
            }
        }
        if cursor.at != bytes.len() {
            return Err((cursor.at, format!("{} bytes after the tables", bytes.len() - cursor.at)));
        }
        Ok(tables)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], (usize, String)> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| (self.at, format!("the tables end where {len} more bytes are due")))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u32, (usize, String)> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn long(&mut self) -> Result<u64, (usize, String)> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn text(&mut self) -> Result<&'a [u8], (usize, String)> {
        let len = self.word()? as usize;
        self.take(len)
    }

    fn string(&mut self) -> Result<String, (usize, String)> {
        Ok(String::from_utf8_lossy(self.text()?).into_owned())
    }
}
