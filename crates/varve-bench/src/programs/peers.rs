//! The other NBD servers: how each is started in front of one file, and for which cache modes it is a like peer.

use crate::prelude::*;
use crate::programs::fio::Endpoint;
use crate::programs::server::Server;
use std::fs;

/// Whether a server goes through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cache {
    /// It does.
    Buffered,
    /// It passes it by, and uses io_uring.
    Direct,
}

/// Another NBD server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    /// nbdkit with its file plugin.
    Nbdkit,
    /// The reference server.
    NbdServer,
    /// qemu's stand-alone server.
    QemuNbd,
    /// qemu's storage daemon.
    QemuStorageDaemon,
}

/// Where the reference server, which leaves its first process, writes the number of the one that serves.
const PID_FILE: &str = "nbd-server.pid";
/// Name of the export where a server wants one.
const EXPORT: &str = "bench";

impl Peer {
    /// Those that can be compared in this cache mode.
    pub(crate) fn like(cache: Cache) -> &'static [Peer] {
        match cache {
            Cache::Buffered => &[Peer::Nbdkit, Peer::NbdServer, Peer::QemuNbd, Peer::QemuStorageDaemon],
            Cache::Direct => &[Peer::QemuNbd, Peer::QemuStorageDaemon],
        }
    }

    /// Its program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Peer::Nbdkit => "nbdkit",
            Peer::NbdServer => "nbd-server",
            Peer::QemuNbd => "qemu-nbd",
            Peer::QemuStorageDaemon => "qemu-storage-daemon",
        }
    }

    /// Starts it in front of `file`; its socket and log go to `directory`.
    pub(crate) fn start(self, cache: Cache, file: &Path, directory: &Path) -> Outcome<(Server, Endpoint)> {
        self.start_in(cache, file, "raw", directory)
    }

    /// As [`Peer::start`], for a file in a format that it knows.
    pub(crate) fn start_in(
        self,
        cache: Cache,
        file: &Path,
        format: &str,
        directory: &Path,
    ) -> Outcome<(Server, Endpoint)> {
        let program = find(self.program()).ok_or("not installed")?;
        let socket = directory.join(format!("{}.sock", self.program()));
        let log = directory.join(format!("{}.log", self.program()));
        let arguments = self.arguments(cache, file, format, &socket, directory)?;
        let mut server = Server::start(&program, &arguments, &log)?;
        if self == Peer::NbdServer {
            server.follow(&directory.join(PID_FILE))?;
        }
        server.wait_for_socket(&socket)?;
        let export = if matches!(self, Peer::Nbdkit | Peer::QemuNbd) { "" } else { EXPORT };
        Ok((server, Endpoint::Nbd { uri: format!("nbd+unix:///{export}?socket={}", socket.display()) }))
    }

    fn arguments(
        self,
        cache: Cache,
        file: &Path,
        format: &str,
        socket: &Path,
        directory: &Path,
    ) -> Outcome<Vec<String>> {
        let (file, socket) = (file.display(), socket.display());
        let direct = cache == Cache::Direct;
        let text = match self {
            Peer::Nbdkit => format!("-f -U {socket} file file={file}"),
            Peer::NbdServer => {
                let configuration = directory.join("nbd-server.conf");
                let content = format!(
                    "[generic]\nunixsock = {socket}\nallowlist = true\n[{EXPORT}]\nexportname = {file}\nflush = true\n"
                );
                fs::write(&configuration, content).of("its configuration")?;
                format!("-C {} -p {}", configuration.display(), directory.join(PID_FILE).display())
            }
            Peer::QemuNbd => {
                let cache = if direct { "--cache=none --aio=io_uring" } else { "--cache=writeback" };
                format!("-k {socket} -f {format} -t -e 8 {cache} {file}")
            }
            Peer::QemuStorageDaemon => {
                let cache = if direct { "cache.direct=on,aio=io_uring" } else { "cache.direct=off" };
                let layers = match format {
                    "raw" => format!("--blockdev driver=file,node-name=disk,filename={file},{cache}"),
                    _ => format!(
                        "--blockdev driver=file,node-name=file,filename={file},{cache} \
                         --blockdev driver={format},node-name=disk,file=file"
                    ),
                };
                format!(
                    "{layers} \
                     --nbd-server addr.type=unix,addr.path={socket},max-connections=8 \
                     --export type=nbd,id=export,node-name=disk,name={EXPORT},writable=on"
                )
            }
        };
        Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
    }
}

/// Where `program` is, in the places where distributions put programs.
fn find(program: &str) -> Option<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"]
        .iter()
        .map(|place| Path::new(place).join(program))
        .find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_that_can_pass_the_page_cache_by_are_direct_peers() {
        assert_eq!(Peer::like(Cache::Direct), [Peer::QemuNbd, Peer::QemuStorageDaemon]);
        assert_eq!(Peer::like(Cache::Buffered).len(), 4);
    }

    #[test]
    fn the_reference_server_gets_its_configuration_as_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = Peer::NbdServer
            .arguments(Cache::Buffered, Path::new("/f"), "raw", Path::new("/s"), directory.path())
            .expect("arguments");
        let configuration = fs::read_to_string(&arguments[1]).expect("a configuration");
        assert_eq!(arguments.len(), 4);
        assert!(configuration.contains("exportname = /f\n") && configuration.contains("unixsock = /s\n"));
    }
}
