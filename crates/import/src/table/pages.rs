//! [`Checked`]: pages of an untrusted Parquet file, none larger than a bound once unpacked, none with more
//! values than it can have: the library reserves memory for what a page promises.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Largest page, unpacked. Writers make pages of about 1 MiB; some make them as large as a row group's column.
const MAX_PAGE_BYTES: u64 = 64 << 20;

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(ParquetError::General(why.into()))
}

/// A file that is read by position; where the library looks for the header of a page, the header is looked at first.
pub(super) struct PageFile {
    pub file: Arc<File>,
    pub length: u64,
}

/// The file from a position on.
pub(super) struct From {
    file: Arc<File>,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Length for PageFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for PageFile {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut begin = [0; 32];
        let mut from = From { file: Arc::clone(&self.file), at: start };
        let mut filled = 0;
        while filled < begin.len() {
            match from.read(&mut begin[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        match unpacked_bytes(&begin[..filled]) {
            None => refused(format!("at byte {start} there is no header of a page")),
            Some(bytes) if bytes > MAX_PAGE_BYTES => {
                refused(format!("the page at byte {start} has {bytes} bytes unpacked, at most 64 MiB are read"))
            }
            Some(_) => Ok(BufReader::with_capacity(1024, From { file: Arc::clone(&self.file), at: start })),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return refused(format!("it has no {length} bytes at byte {start}"));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// The size that a page promises to have unpacked: the second field of its header (Thrift's compact protocol; every
/// writer has type, unpacked and packed size in front, in this order).
fn unpacked_bytes(header: &[u8]) -> Option<u64> {
    const NEXT_I32: u8 = 0x15;
    let mut at = 0;
    let mut field = || {
        (*header.get(at)? == NEXT_I32).then_some(())?;
        at += 1;
        varint(header, &mut at)
    };
    let (_kind, unpacked, _packed) = (field()?, field()?, field()?);
    // Zigzag: what is negative is odd.
    unpacked.is_multiple_of(2).then_some(unpacked / 2)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The pages of one column of one row group.
pub(super) struct Checked {
    pub inner: SerializedPageReader<PageFile>,
    /// Most values that a page can have: the row group's rows, without bound for lists.
    pub rows: u64,
}

impl Checked {
    fn check(&self, page: &Page) -> Result<()> {
        let (values, bytes) = (u64::from(page.num_values()), page.buffer().len() as u64);
        match page {
            Page::DictionaryPage { .. } if values > bytes / 4 => {
                refused(format!("a dictionary of {bytes} bytes has {values} values"))
            }
            Page::DictionaryPage { .. } => Ok(()),
            _ if values > self.rows => refused(format!("a page has {values} values of {} rows", self.rows)),
            _ => match page.encoding() {
                Encoding::PLAIN
                | Encoding::PLAIN_DICTIONARY
                | Encoding::RLE_DICTIONARY
                | Encoding::RLE
                | Encoding::DELTA_BINARY_PACKED => Ok(()),
                Encoding::DELTA_LENGTH_BYTE_ARRAY => self.check_lengths(page),
                other => refused(format!("its encoding {other} is not known here; write it with dictionaries")),
            },
        }
    }

    /// The lengths of texts are unpacked at once: their number is in the page itself, behind the levels.
    fn check_lengths(&self, page: &Page) -> Result<()> {
        let mut at = match page {
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                *def_levels_byte_len as usize + *rep_levels_byte_len as usize
            }
            _ => return refused("its texts have the encoding DELTA_LENGTH_BYTE_ARRAY; write it with dictionaries"),
        };
        let bytes = page.buffer();
        let lengths = (|| {
            let (_block, _parts) = (varint(bytes, &mut at)?, varint(bytes, &mut at)?);
            varint(bytes, &mut at)
        })();
        match lengths {
            Some(lengths) if lengths <= self.rows => Ok(()),
            _ => refused("a page has more texts than rows"),
        }
    }
}

impl Iterator for Checked {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Checked {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.inner.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.check(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }
}
