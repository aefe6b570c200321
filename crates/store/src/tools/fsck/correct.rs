//! Handles whose bytes are damaged: the check sum says which byte was wrong, and the datafiles whether that is so.

use crate::format::handle::Handle;

/// All handles that differ from `bytes` in one byte and have the right check sum. O(255 x length²), a damaged handle at
/// a time.
pub(super) fn corrections(bytes: &[u8]) -> Vec<Handle> {
    let mut tried = bytes.to_vec();
    let mut found = Vec::new();
    for at in 0..bytes.len() {
        for byte in (0..=255).filter(|byte| *byte != bytes[at]) {
            tried[at] = byte;
            found.extend(Handle::decode(&tried));
        }
        tried[at] = bytes[at];
    }
    // All fields may be right and only the check sum wrong.
    if let Some((body, _)) = bytes.split_last_chunk::<4>() {
        let sum = crc32c::crc32c(body).to_be_bytes();
        found.extend(Handle::decode(&[body, &sum].concat()));
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_one_byte_is_corrected() {
        let mut handle = Handle::new(77, [9; 32]);
        handle.present.insert(3);
        let bytes = handle.encode().unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(corrections(&damaged).contains(&handle), "byte {at}");
        }
        assert!(corrections(&[]).is_empty() && corrections(&[0; 3000]).is_empty());
    }
}
