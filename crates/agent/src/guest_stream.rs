//! A connection that its listener can close.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::transport::server::Connected;

use crate::hub::Hub;

/// Where a session comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerConnection {
    /// Number of the connection.
    pub(crate) number: u64,
    pub(crate) address: SocketAddr,
}

/// A connection of an agent or a stranger; it counts until it is dropped.
pub(crate) struct GuestStream {
    stream: TcpStream,
    peer: PeerConnection,
    hub: Arc<Hub>,
    /// `None`: it has been closed.
    stopped: Option<oneshot::Receiver<()>>,
}

impl GuestStream {
    /// # Errors
    /// The connection has ended already.
    pub(crate) fn new(stream: TcpStream, hub: Arc<Hub>) -> Result<Self> {
        let address = stream.peer_addr()?;
        let (number, stopped) = hub.begin_connection(address);
        Ok(Self { stream, peer: PeerConnection { number, address }, hub, stopped: Some(stopped) })
    }
}

impl Drop for GuestStream {
    fn drop(&mut self) {
        self.hub.end_connection(self.peer.number);
    }
}

impl Connected for GuestStream {
    type ConnectInfo = PeerConnection;

    fn connect_info(&self) -> PeerConnection {
        self.peer
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if self.stopped.as_mut().is_none_or(|stopped| Pin::new(stopped).poll(context).is_ready()) {
            self.stopped = None;
            return Poll::Ready(Err(Error::new(ErrorKind::ConnectionAborted, "it gave way to another connection")));
        }
        Pin::new(&mut self.stream).poll_read(context, bytes)
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
