//! How long signatures are beside the requests that they expand to.

use crate::signature::Signature;

/// Sums over signatures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignatureLength {
    /// Requests.
    pub accesses: u64,
    /// Parts of the signatures.
    pub parts: u64,
    /// Numbers in the signatures.
    pub numbers: u64,
}

impl SignatureLength {
    /// Of several signatures.
    pub fn of<'a>(signatures: impl IntoIterator<Item = &'a Signature>) -> Self {
        signatures.into_iter().fold(Self::default(), |sum, signature| Self {
            accesses: sum.accesses + signature.accesses(),
            parts: sum.parts + signature.len(),
            numbers: sum.numbers + signature.numbers(),
        })
    }

    /// Numbers of the requests, an offset and a size each, per number of the signatures; 1 for none.
    pub fn ratio(&self) -> f64 {
        if self.numbers == 0 { 1.0 } else { 2.0 * self.accesses as f64 / self.numbers as f64 }
    }
}
