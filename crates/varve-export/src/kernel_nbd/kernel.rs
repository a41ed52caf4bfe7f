//! What is asked of the kernel's NBD client, each in one exchange over generic netlink.
//!
//! The kernel carries a request out while it is sent, which may take as long as it likes: it is sent from a thread that nothing waits for.

use super::message::{self, Answer, Parameters, answers};
use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an answer may be on its way.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Bytes of the longest answer: a family with all that it can do.
const ANSWER_BYTES: usize = 16 << 10;

/// The kernel's NBD client.
pub(super) trait Kernel: Send + Sync {
    /// Makes the device `index` one that asks these sockets.
    fn connect(
        &self,
        index: u32,
        parameters: &Parameters,
        sockets: &[UnixStream],
        identity: &str,
    ) -> io::Result<()>;
    /// Gives the device another socket in the place of one that has ended. If none has, the kernel closes it again.
    fn replace_socket(&self, index: u32, socket: &UnixStream, identity: &str) -> io::Result<()>;
    /// Gives the device another size.
    fn resize(&self, index: u32, parameters: &Parameters, identity: &str) -> io::Result<()>;
    /// Disconnects the device.
    fn disconnect(&self, index: u32) -> io::Result<()>;
}

/// That of this host.
#[derive(Debug)]
pub(super) struct HostKernel {
    family: u16,
}

impl HostKernel {
    /// Fails with `NotFound` where the kernel has no NBD client.
    pub(super) fn find() -> io::Result<Self> {
        let found = exchange(&message::family())?.into_iter().find_map(|answer| match answer {
            Answer::Family(family) => Some(family),
            Answer::Ended(_) | Answer::Other => None,
        });
        let family = found.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { family })
    }
}

impl Kernel for HostKernel {
    fn connect(
        &self,
        index: u32,
        parameters: &Parameters,
        sockets: &[UnixStream],
        identity: &str,
    ) -> io::Result<()> {
        let sockets: Vec<i32> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        exchange(&message::connect(self.family, index, parameters, &sockets, identity)).map(drop)
    }

    fn replace_socket(&self, index: u32, socket: &UnixStream, identity: &str) -> io::Result<()> {
        exchange(&message::replace_socket(self.family, index, socket.as_raw_fd(), identity)).map(drop)
    }

    fn resize(&self, index: u32, parameters: &Parameters, identity: &str) -> io::Result<()> {
        exchange(&message::resize(self.family, index, parameters, identity)).map(drop)
    }

    fn disconnect(&self, index: u32) -> io::Result<()> {
        exchange(&message::disconnect(self.family, index)).map(drop)
    }
}

/// Sends a request, and waits for its end.
fn exchange(request: &[u8]) -> io::Result<Vec<Answer>> {
    let socket = open()?;
    rustix::net::sendto(&socket, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let (mut buffer, mut answered) = (vec![0; ANSWER_BYTES], Vec::new());
    loop {
        let received = match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            received => received?.1,
        };
        for answer in answers(&buffer[..received.min(ANSWER_BYTES)]) {
            match answer {
                Answer::Ended(ended) => return ended.map(|()| answered).map_err(io::Error::from),
                answer => answered.push(answer),
            }
        }
    }
}

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(GENERIC))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}
