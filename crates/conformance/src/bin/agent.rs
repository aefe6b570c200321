//! Carries out operations that come through its standard input, by the functions of libc: as any program does, on a mount
//! or under the preload.

use std::io::{BufReader, stdin, stdout};
use stripewise_conformance::operation::{AgentRequest, Answer, receive, send};
use stripewise_conformance::system_calls::ProcessSlots;

fn main() -> std::io::Result<()> {
    let mut process = ProcessSlots::default();
    let mut requests = BufReader::new(stdin().lock());
    let mut answers = stdout().lock();
    while let Some((request, data)) = receive(&mut requests)? {
        let answer = match request {
            AgentRequest::Enter(directory) => process.enter(&directory),
            AgentRequest::Do(operation) => process.run(&operation, &data),
        };
        let data = if let Answer::Bytes { data } = &answer { data.as_slice() } else { &[] };
        send(&mut answers, &answer, data)?;
    }
    Ok(())
}
