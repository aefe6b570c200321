//! Parts of the binary form, written down by hand.

/// A number as the binary form has it: seven bits a byte, the lowest first, the eighth says that more follow.
pub fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
