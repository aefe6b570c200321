//! Mounts for users without privilege, by `fusermount3`, which has it (set-user-id root).

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::connection::FuseDevice;

/// By which it is told the socket that it is to send the connection through.
const SOCKET: &str = "_FUSE_COMMFD";

/// Mounts on `dir` with these options, in the words of `fusermount3`.
///
/// # Errors
/// There is no such program; what it says.
pub fn mount_by_helper(dir: &Path, options: &[String]) -> io::Result<FuseDevice> {
    let (ours, its) = UnixStream::pair()?;
    let number = its.as_raw_fd();
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(options.join(",")).arg("--").arg(dir).env(SOCKET, number.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec it makes one system call, on a descriptor that is open then.
    unsafe {
        command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut helper = command.spawn()?;
    drop(its);
    let received = receive(&ours);
    drop(ours);
    let mut said = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        // What it says is only a part of the message.
        let _ = stderr.read_to_string(&mut said);
    }
    helper.wait()?;
    match received? {
        Some(fd) => Ok(FuseDevice::new(fd)),
        None if said.contains("user_allow_other") => Err(io::Error::new(io::ErrorKind::PermissionDenied, said)),
        None => Err(io::Error::other(said)),
    }
}

/// An option's value, in which a comma does not end it.
pub fn escaped(value: &OsStr) -> String {
    value.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,")
}

/// The descriptor that comes through the socket; `None` when it ends without one.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // As large as the header and a descriptor, and as aligned as the header.
    let mut control = [0_u64; 4];
    // SAFETY: zeros are a message without parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    let received = loop {
        // SAFETY: the message points to a part and room that live on.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        if received >= 0 {
            break received;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    if received == 0 {
        return Ok(None);
    }
    // SAFETY: recvmsg has filled the message, and its room is as the kernel left it.
    let first = unsafe { libc::CMSG_FIRSTHDR(&message) };
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: CMSG_FIRSTHDR gives a header that lies in the room, and the room is aligned for it.
    let head = unsafe { first.read() };
    // SAFETY: a number; nothing is read.
    let whole = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as usize;
    if head.cmsg_level != libc::SOL_SOCKET || head.cmsg_type != libc::SCM_RIGHTS || head.cmsg_len < whole {
        return Ok(None);
    }
    // SAFETY: the header says that a descriptor follows it in the room.
    let fd = unsafe { libc::CMSG_DATA(first).cast::<i32>().read_unaligned() };
    // SAFETY: the kernel has made this descriptor for us in recvmsg.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}
