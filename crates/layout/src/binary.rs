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

/// Every number that a server can have.
const ANY_SERVERS: usize = 1 << 16;

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
    /// A server that the pool does not have.
    #[error("the layout names a server at byte {at} that is not among the pool's {servers}")]
    Server {
        /// Where it does.
        at: usize,
        /// Servers that there are.
        servers: usize,
    },
    /// More stripes than [`MAX_STRIPES`], or more in a round than there are servers.
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

    /// A round as runs, and how many stripes these are. Servers must be among the first `servers`, or the metadata tier.
    fn round(&mut self, servers: usize) -> Result<Round, DecodeError> {
        let (mut runs, mut stripes) = (Vec::new(), 0_usize);
        for _ in 0..self.count(3)? {
            let start = self.at;
            let (first, count, width_bytes) = (self.number()?, self.number()?, self.number()?);
            let end = first.checked_add(count).filter(|&end| end <= 1 << 16).ok_or(DecodeError::Number(start))?;
            let is_meta = (first, count) == (u64::from(ServerId::META.0), 1);
            if end > servers as u64 && !is_meta {
                return Err(DecodeError::Server { at: start, servers });
            }
            // A server stands once in a round, which is seen when it is built: here, that no more can be asked for.
            stripes += count as usize;
            if stripes > MAX_STRIPES.min(servers + 1) {
                return Err(DecodeError::TooLarge);
            }
            runs.push((first, end, width_bytes));
        }
        Ok(Round { runs, stripes })
    }
}

/// A round that was read, not yet spread out: few bytes can stand for many stripes.
struct Round {
    /// First server, the one behind the last, width in bytes.
    runs: Vec<(u64, u64, u64)>,
    stripes: usize,
}

impl Round {
    fn spread(&self) -> Vec<Stripe> {
        let mut round = Vec::with_capacity(self.stripes);
        for &(first, end, width_bytes) in &self.runs {
            round.extend((first..end).map(|server| Stripe { server: ServerId(server as u16), width_bytes }));
        }
        round
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

    /// [`Layout::from_bytes_within`] of any servers.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong and where.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::from_bytes_within(bytes, ANY_SERVERS)
    }

    /// Reads the binary form of a layout over the first `servers` servers and the metadata tier. The bytes need not be
    /// trusted: any bytes give a valid layout or an error. Stripes are counted before any memory is taken for them, at most
    /// [`MAX_STRIPES`], and no region can have more than the servers that there are: each needs two bytes of its own, so
    /// that few bytes never become many.
    ///
    /// # Errors
    /// [`DecodeError`] says what is wrong and where.
    pub fn from_bytes_within(bytes: &[u8], servers: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.byte()? {
            VERSION => {}
            version => return Err(DecodeError::Version(version)),
        }
        let rounds = (0..reader.count(4)?).map(|_| reader.round(servers)).collect::<Result<Vec<_>, _>>()?;
        if rounds.iter().map(|round| round.stripes).sum::<usize>() > MAX_STRIPES {
            return Err(DecodeError::TooLarge);
        }
        let (mut stripes, mut offset) = (0, 0_u64);
        let mut regions = Vec::new();
        for _ in 0..reader.count(2)? {
            let start = reader.at;
            offset = offset.checked_add(reader.number()?).ok_or(DecodeError::Number(start))?;
            let index = usize::try_from(reader.number()?).map_err(|_| DecodeError::Number(start))?;
            let round = rounds.get(index).ok_or(DecodeError::Number(start))?;
            stripes += round.stripes;
            if stripes > MAX_STRIPES {
                return Err(DecodeError::TooLarge);
            }
            regions.push((offset, round));
        }
        if reader.at != bytes.len() {
            return Err(DecodeError::NotCanonical);
        }
        let layout = Self::new(regions.into_iter().map(|(offset, round)| (offset, round.spread())))?;
        if layout.to_bytes() == bytes { Ok(layout) } else { Err(DecodeError::NotCanonical) }
    }

    /// The name of this layout in a pool: blake3 of [`Layout::to_bytes`]. Equal layouts have equal hashes.
    pub fn hash(&self) -> [u8; 32] {
        *blake3::hash(&self.to_bytes()).as_bytes()
    }
}
