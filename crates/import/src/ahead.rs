//! [`Ahead`]: reads ahead in a thread of its own, so that unpacking and understanding go on together.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

const BLOCK_BYTES: usize = 256 * 1024;
/// Blocks that wait at most.
const BLOCKS: usize = 16;

/// The bytes of another reader, which ends with the first error.
pub(crate) struct Ahead {
    blocks: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
}

impl Ahead {
    /// Starts the thread; it ends with the bytes, or when this is dropped.
    pub fn new(mut from: impl Read + Send + 'static) -> io::Result<Self> {
        let (send, blocks) = sync_channel(BLOCKS);
        thread::Builder::new().name("unpack".to_owned()).spawn(move || {
            loop {
                let mut block = vec![0; BLOCK_BYTES];
                let (mut filled, mut failed) = (0, None);
                while filled < block.len() {
                    match from.read(&mut block[filled..]) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    }
                }
                block.truncate(filled);
                let ends = filled < BLOCK_BYTES;
                if filled > 0 && send.send(Ok(block)).is_err() {
                    return;
                }
                if let Some(error) = failed {
                    // A reader that has gone does not need the error.
                    drop(send.send(Err(error)));
                    return;
                }
                if ends {
                    return;
                }
            }
        })?;
        Ok(Ahead { blocks, block: Vec::new(), at: 0 })
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            match self.blocks.recv() {
                Ok(block) => (self.block, self.at) = (block?, 0),
                // The thread is done.
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.block.len() - self.at);
        buffer[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
