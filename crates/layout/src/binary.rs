//! The compact binary form of a layout, and its hash.
//!
//! ```text
//! version   1 byte, 1
//! rounds    varint count, then each: varint runs, then each run: varint first server, varint servers, varint width
//! regions   varint count, then each: varint offset - offset of the region before, varint index of its round
//! ```
//!
//! A run is consecutive servers of one width. Rounds stand once, in order of first use. Varints are LEB128. There is
//! one form for each layout, so equal layouts have equal hashes; any other form is refused.

use crate::layout::{Layout, LayoutError, ServerId, Stripe};
use std::collections::HashMap;

const VERSION: u8 = 1;

/// Most stripes that [`Layout::from_bytes`] takes, over all regions: a bound on what few hostile bytes can allocate.
pub const MAX_STRIPES: usize = 1 << 20;

/// Bytes that are not a layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No byte at all, or the bytes end within a field.
    #[error("the layout ends early, at byte {0}: it is damaged")]
    Truncated(usize),
    /// Written by a program that knows a later form.
    #[error("the layout has form {0}; this program reads form {VERSION}: use a newer one")]
    Version(u8),
    /// A number that the field cannot have.
    #[error("the layout has an impossible number at byte {0}: it is damaged")]
    Number(usize),
    /// More stripes than [`MAX_STRIPES`].
    #[error("the layout has more than {MAX_STRIPES} stripes in all")]
    TooLarge,
    /// A readable layout, but not as [`Layout::to_bytes`] writes it.
    #[error("the layout is not in its one written form: it is damaged")]
    NotCanonical,
    /// The bytes are in form, the layout is not valid.
    #[error("the layout is not valid: {0}")]
    Invalid(#[from] LayoutError),
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The runs of a round: first server, servers, width in bytes.
fn runs(round: &[Stripe]) -> Vec<(u16, u64, u64)> {
    let mut runs: Vec<(u16, u64, u64)> = Vec::new();
    for stripe in round {
        match runs.last_mut() {
            Some((first, servers, width))
                if *width == stripe.width_bytes && u64::from(*first) + *servers == u64::from(stripe.server.0) =>
            {
                *servers += 1;
            }
            _ => runs.push((stripe.server.0, 1, stripe.width_bytes)),
        }
    }
    runs
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated(self.at))?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if part << shift >> shift != part {
                return Err(DecodeError::Number(start));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Number(start))
    }

    /// A number of things of which each takes at least `bytes_each` of the bytes that are left.
    fn count(&mut self, bytes_each: usize) -> Result<usize, DecodeError> {
        let start = self.at;
        let count = usize::try_from(self.number()?).map_err(|_| DecodeError::Number(start))?;
        if count > (self.bytes.len() - self.at) / bytes_each {
            return Err(DecodeError::Number(start));
        }
        Ok(count)
    }

    fn round(&mut self, most: usize) -> Result<Vec<Stripe>, DecodeError> {
        let mut round = Vec::new();
        for _ in 0..self.count(3)? {
            let start = self.at;
            let (first, servers, width_bytes) = (self.number()?, self.number()?, self.number()?);
            let end = first.checked_add(servers).filter(|&end| end <= 1 << 16).ok_or(DecodeError::Number(start))?;
            if round.len() as u64 + servers > most as u64 {
                return Err(DecodeError::TooLarge);
            }
            round.extend((first..end).map(|server| Stripe { server: ServerId(server as u16), width_bytes }));
        }
        Ok(round)
    }
}

impl Layout {
    /// The binary form: a few bytes per distinct round and per region. [`Layout::from_bytes`] reads it, up to
    /// [`MAX_STRIPES`] stripes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut known: HashMap<&[Stripe], u64> = HashMap::new();
        let mut rounds = Vec::new();
        let mut regions = Vec::new();
        let mut before = 0;
        for region in self.regions() {
            let next = known.len() as u64;
            let index = *known.entry(region.stripes()).or_insert_with(|| {
                let runs = runs(region.stripes());
                put(&mut rounds, runs.len() as u64);
                for (first, servers, width_bytes) in runs {
                    put(&mut rounds, u64::from(first));
                    put(&mut rounds, servers);
                    put(&mut rounds, width_bytes);
                }
                next
            });
            put(&mut regions, region.offset() - before);
            put(&mut regions, index);
            before = region.offset();
        }
        let mut out = vec![VERSION];
        put(&mut out, known.len() as u64);
        out.extend(rounds);
        put(&mut out, self.regions().len() as u64);
        out.extend(regions);
        out
    }

    /// Reads the binary form. The bytes need not be trusted: any bytes give a valid layout or an error, with memory for
    /// at most [`MAX_STRIPES`] stripes.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong and where.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.byte()? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let mut rounds = Vec::new();
        let mut stripes = 0;
        for _ in 0..reader.count(4)? {
            rounds.push(reader.round(MAX_STRIPES - stripes)?);
            stripes += rounds.last().map_or(0, Vec::len);
        }
        let mut stripes = 0;
        let mut offset = 0_u64;
        let mut regions = Vec::new();
        for _ in 0..reader.count(2)? {
            let start = reader.at;
            offset = offset.checked_add(reader.number()?).ok_or(DecodeError::Number(start))?;
            let index = usize::try_from(reader.number()?).map_err(|_| DecodeError::Number(start))?;
            let round = rounds.get(index).ok_or(DecodeError::Number(start))?;
            stripes += round.len();
            if stripes > MAX_STRIPES {
                return Err(DecodeError::TooLarge);
            }
            regions.push((offset, round.clone()));
        }
        let layout = Self::new(regions)?;
        if reader.at == bytes.len() && layout.to_bytes() == bytes { Ok(layout) } else { Err(DecodeError::NotCanonical) }
    }

    /// The name of this layout in a pool: blake3 of [`Layout::to_bytes`]. Equal layouts have equal hashes.
    pub fn hash(&self) -> [u8; 32] {
        *blake3::hash(&self.to_bytes()).as_bytes()
    }
}
