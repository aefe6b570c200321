//! [`LogRegion`]: a compressed part of a log as a stream. Each rank may have written a stream of its own, one behind the
//! other.

use super::header::{Compression, Extent, LogHeader, word};
use crate::ahead::Ahead;
use crate::log::Log;
use bzip2::read::MultiBzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, BufRead, BufReader, Read};

/// A region from this length on is worth a thread.
const AHEAD_FROM_BYTES: u64 = 32 * 1024;

pub(super) struct LogRegion {
    reader: Box<dyn Read + Send>,
    big_endian: bool,
}

/// How filling a buffer ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filled {
    Whole,
    /// The region ended at a border of records.
    End,
}

impl LogRegion {
    pub fn new(log: &Log, header: &LogHeader, extent: Extent) -> Self {
        let part = log.part(extent.start, extent.start.saturating_add(extent.length));
        let reader: Box<dyn Read + Send> = match header.compression {
            Compression::Zlib => Box::new(Streams::new(BufReader::with_capacity(64 * 1024, part))),
            Compression::Bzip2 => Box::new(MultiBzDecoder::new(part)),
            Compression::None => Box::new(part),
        };
        LogRegion { reader, big_endian: header.big_endian }
    }

    /// The same, unpacked by a thread of its own from now on where that is worth it.
    pub fn ahead(self, extent: Extent) -> io::Result<Self> {
        if extent.length < AHEAD_FROM_BYTES {
            return Ok(self);
        }
        Ok(LogRegion { reader: Box::new(Ahead::new(self.reader)?), ..self })
    }

    /// Fills the buffer; an error says how the region is damaged, as the end of a sentence.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, String> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(Filled::End),
                Ok(0) => return Err("it ends within a record".to_owned()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(Filled::Whole)
    }

    /// Reads what there is, at most the buffer; how much.
    pub fn some(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        loop {
            match self.reader.read(buffer) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Number `index` of a buffer of 8-byte numbers.
    #[inline]
    pub fn word(&self, buffer: &[u8], index: usize) -> u64 {
        word(&buffer[index * 8..], self.big_endian)
    }
}

/// zlib streams, one behind the other.
struct Streams<R> {
    input: R,
    inflate: Decompress,
    within: bool,
}

impl<R: BufRead> Streams<R> {
    fn new(input: R) -> Self {
        Streams { input, inflate: Decompress::new(true), within: false }
    }
}

impl<R: BufRead> Read for Streams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let packed = self.input.fill_buf()?;
            let at_end = packed.is_empty();
            if at_end && !self.within {
                return Ok(0);
            }
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self.inflate.decompress(packed, buffer, FlushDecompress::None);
            let status = status.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let used = (self.inflate.total_in() - before_in) as usize;
            let made = (self.inflate.total_out() - before_out) as usize;
            self.input.consume(used);
            self.within = true;
            if status == Status::StreamEnd {
                self.inflate.reset(true);
                self.within = false;
            } else if used == 0 && made == 0 {
                let (kind, why) = if at_end {
                    (io::ErrorKind::UnexpectedEof, "its compressed data ends early")
                } else {
                    (io::ErrorKind::InvalidData, "its compressed data cannot be unpacked")
                };
                return Err(io::Error::new(kind, why));
            }
            if made > 0 {
                return Ok(made);
            }
        }
    }
}
