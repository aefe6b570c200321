//! Where agents join: a gRPC server of one method, on a thread of its own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::server::{Grpc, StreamingService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::{AgentError, Result};
use crate::guest_stream::{GuestStream, PeerConnection};
use crate::hub::Hub;
use crate::session::serve;
use crate::wire::{JOIN_PATH, MESSAGE_BYTES, Sealed};

/// Answers that wait until an agent takes them.
const ANSWERS: usize = 8;
/// How often is looked for connections that have shown no key, and for another file of keys: once a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Sessions of a connection.
const STREAMS: u32 = 4;

/// Listens until it is dropped.
pub struct AgentListener {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AgentListener {
    /// Listens on `address` for agents of `hub`.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn start(address: SocketAddr, hub: Arc<Hub>) -> Result<Self> {
        let failed = |error: std::io::Error| AgentError::Invalid(format!("cannot listen on {address}: {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("agents".to_owned()).spawn(move || {
            let teller = hub.teller.clone();
            runtime.block_on(async move {
                tokio::select! {
                    ended = listen(listener, hub) => {
                        if let Err(error) = ended {
                            teller.say(&format!("no agent can join any more: {error}"));
                        }
                    }
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, stop: Some(stop), thread: Some(thread.map_err(failed)?) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for AgentListener {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn listen(listener: TcpListener, hub: Arc<Hub>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let (of, of_streams) = (hub.clone(), hub.clone());
    let incoming = incoming.map(move |stream| GuestStream::new(stream?, of_streams.clone()));
    let server = Server::builder().max_concurrent_streams(STREAMS).http2_max_header_list_size(16_384);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let close_old = async {
        loop {
            looks.tick().await;
            of.close_old_strangers();
            of.reload_keys();
        }
    };
    tokio::select! {
        served = server.serve_with_incoming(JoinService(hub), incoming) => Ok(served?),
        () = close_old => Ok(()),
    }
}

/// The one service.
#[derive(Clone)]
struct JoinService(Arc<Hub>);

impl tower_service::Service<http::Request<Body>> for JoinService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let hub = Arc::clone(&self.0);
        Box::pin(async move {
            if request.uri().path() != JOIN_PATH {
                return Ok(Status::unimplemented("there is one method here, Join").into_http());
            }
            let mut grpc = Grpc::new(ProstCodec::<Sealed, Sealed>::default()).max_decoding_message_size(MESSAGE_BYTES);
            Ok(grpc.streaming(JoinMethod(hub), request).await)
        })
    }
}

/// The one method.
struct JoinMethod(Arc<Hub>);

impl StreamingService<Sealed> for JoinMethod {
    type Response = Sealed;
    type ResponseStream = ReceiverStream<std::result::Result<Sealed, Status>>;
    type Future = Ready<std::result::Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Sealed>>) -> Self::Future {
        let Some(peer) = request.extensions().get::<PeerConnection>().copied() else {
            return ready(Err(Status::internal("a connection without an address")));
        };
        let (answers, taken) = mpsc::channel(ANSWERS);
        tokio::spawn(serve(Arc::clone(&self.0), request.into_inner(), answers, peer));
        ready(Ok(Response::new(ReceiverStream::new(taken))))
    }
}
