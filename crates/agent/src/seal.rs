//! Seals: who has a node's key, and that no message is repeated, left out or of another session.

use crate::error::{AgentError, Result};
use crate::wire::{NONCE_BYTES, Sealed};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// What a key of a session is for; both directions have their own, so that no message can be sent back.
const CHALLENGE: &str = "stripewise turns v1 challenge";
const FROM_AGENT: &str = "stripewise turns v1 from agent";
const TO_AGENT: &str = "stripewise turns v1 to agent";

/// One direction of a session: its key and the number of the next message.
#[derive(Debug, Clone)]
pub struct SealedWay {
    key: [u8; KEY_BYTES],
    next: u64,
}

/// The keys of a session of `node`.
#[derive(Debug, Clone)]
pub struct SessionKeys {
    /// For the challenge alone.
    pub challenge: SealedWay,
    key: [u8; KEY_BYTES],
    opening: Vec<u8>,
}

fn derived(purpose: &str, parts: &[&[u8]]) -> SealedWay {
    let mut hasher = blake3::Hasher::new_derive_key(purpose);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    SealedWay { key: *hasher.finalize().as_bytes(), next: 0 }
}

impl SessionKeys {
    /// Of a node's key and the agent's opening, which has its random number, its node and its pool.
    pub fn new(key: &[u8; KEY_BYTES], opening: &[u8]) -> Self {
        Self { challenge: derived(CHALLENGE, &[key, opening]), key: *key, opening: opening.to_vec() }
    }

    /// Both directions, from and to the agent, once the orchestrator's random number is known.
    pub fn directions(&self, nonce: &[u8]) -> (SealedWay, SealedWay) {
        let of = |purpose| derived(purpose, &[&self.key, &self.opening, nonce]);
        (of(FROM_AGENT), of(TO_AGENT))
    }
}

impl SealedWay {
    fn seal_of(&self, number: u64, body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&number.to_le_bytes());
        hasher.update(body);
        hasher.finalize()
    }

    /// Seals the next message.
    pub fn seal(&mut self, message: &impl prost::Message) -> Sealed {
        let (number, body) = (self.next, message.encode_to_vec());
        self.next += 1;
        let seal = self.seal_of(number, &body).as_bytes().to_vec();
        Sealed { number, body, seal }
    }

    /// Opens the next message of the other side.
    ///
    /// # Errors
    /// Its seal is of another key, its number not the next one, or its body no such message.
    pub fn open<M: prost::Message + Default>(&mut self, sealed: &Sealed) -> Result<M> {
        let seal: [u8; 32] = sealed.seal.as_slice().try_into().map_err(|_| AgentError::WrongSeal)?;
        // In constant time.
        if self.seal_of(sealed.number, &sealed.body) != blake3::Hash::from_bytes(seal) {
            return Err(AgentError::WrongSeal);
        }
        if sealed.number != self.next {
            return Err(AgentError::WrongNumber { found: sealed.number, expected: self.next });
        }
        self.next += 1;
        M::decode(sealed.body.as_slice()).map_err(|error| AgentError::NoMessage(error.to_string()))
    }
}

/// Random bytes of the kernel.
///
/// # Errors
/// The kernel has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(AgentError::Invalid(format!("the kernel gives no random bytes: {errno}"))),
        }
    }
    Ok(bytes)
}

/// A session's random number.
///
/// # Errors
/// The kernel has none.
pub fn nonce() -> Result<Vec<u8>> {
    Ok(random::<NONCE_BYTES>()?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Challenge;

    #[test]
    fn a_message_counts_once_in_its_place_and_session() {
        let keys = SessionKeys::new(&[7; KEY_BYTES], b"opening");
        let (mut from, mut to) = keys.directions(b"number");
        let [first, second] = [from.seal(&Challenge { nonce: vec![1] }), from.seal(&Challenge { nonce: vec![2] })];
        let (mut there, mut back) = keys.directions(b"number");
        let opened: Challenge = there.open(&first).unwrap();
        assert_eq!(opened.nonce, [1]);
        assert!(matches!(there.open::<Challenge>(&first), Err(AgentError::WrongNumber { found: 0, expected: 1 })));
        assert!(matches!(back.open::<Challenge>(&second), Err(AgentError::WrongSeal)), "of the other direction");
        let (mut other, _) = keys.directions(b"another");
        assert!(matches!(other.open::<Challenge>(&first), Err(AgentError::WrongSeal)), "of another session");
        let mut changed = second.clone();
        changed.body[0] ^= 1;
        assert!(matches!(there.open::<Challenge>(&changed), Err(AgentError::WrongSeal)));
        let (mut stranger, _) = SessionKeys::new(&[8; KEY_BYTES], b"opening").directions(b"number");
        assert!(matches!(stranger.open::<Challenge>(&second), Err(AgentError::WrongSeal)));
        assert_eq!(there.open::<Challenge>(&second).unwrap().nonce, [2]);
        assert_eq!(to.seal(&Challenge::default()).number, 0);
    }
}
