//! The other side of a socket, in a process of its own: a mapper, an echo server, and the door in front of an image. The
//! benchmark starts itself again with a hidden word for that.

use crate::prelude::*;
use clap::Parser;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use varve_block::{Access, LocalFuture};
use varve_export::nbd::{Activity, Admission, Budget, Catalog, Door, Export, Limits, Listed, Shutdown};
use varve_mapper::wire::{Extent, Hello, Intent, Place, Welcome};
use varve_mapper::{Mapper, Session, serve};
use varve_target::qcow2::{Image, ImageDevice, Options};

use crate::programs::server::Server;

/// Bytes of a message of a round trip, about those of a question and of its answer.
pub(crate) const MESSAGE: usize = 64;
/// What is said when an image is served.
const READY: &str = "ready";

/// What answers.
#[derive(Parser, Clone, Debug)]
pub(crate) enum Answerer {
    /// A mapper whose volume is the device that it was given, asked for each range anew.
    Mapper {
        /// Where it listens.
        socket: PathBuf,
    },
    /// Sends back what comes.
    Echo {
        /// Where it listens.
        socket: PathBuf,
    },
    /// Serves a qcow2 image over NBD.
    Image {
        /// The image.
        file: PathBuf,
        /// Where it listens.
        socket: PathBuf,
    },
}

impl Answerer {
    /// Answers until its process is ended.
    pub(crate) fn run(&self) -> Outcome<()> {
        match self {
            Answerer::Mapper { socket } => map(socket).map_err(Failed::from),
            Answerer::Echo { socket } => echo(socket).map_err(Failed::from),
            Answerer::Image { file, socket } => serve_image(file, socket),
        }
    }

    /// Starts this program as such an answerer, and waits until it listens at `socket`; what it says goes to a log beside that.
    pub(crate) fn start(words: &[&str], socket: &Path) -> Outcome<Server> {
        let program = std::env::current_exe()?;
        let arguments: Vec<String> = ["answer"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let mut server = Server::start(&program, &arguments, &socket.with_extension("log"))?;
        server.wait_for_socket(socket)?;
        Ok(server)
    }
}

/// All of the volume is on the first device that the engine gives, and no answer is for more than was asked.
struct Straight;

impl Mapper for Straight {
    fn hello(&mut self, _: &Hello, _: &Session) -> io::Result<Welcome> {
        Ok(Welcome::default())
    }

    fn map(&mut self, offset: u64, length: u64, _: Intent) -> Vec<Extent> {
        vec![Extent::new(offset, length, Place::Data { device: 0, offset })]
    }
}

fn map(socket: &Path) -> io::Result<()> {
    for engine in UnixListener::bind(socket)?.incoming() {
        if let Err(error) = serve(engine?, &mut Straight) {
            eprintln!("{error}");
        }
    }
    Ok(())
}

fn echo(socket: &Path) -> io::Result<()> {
    for peer in UnixListener::bind(socket)?.incoming() {
        let mut peer: UnixStream = peer?;
        let mut message = [0; MESSAGE];
        while peer.read_exact(&mut message).is_ok() {
            peer.write_all(&message)?;
        }
    }
    Ok(())
}

/// The one export.
struct Alone(Export);

impl Catalog for Alone {
    fn lookup<'a>(&'a self, _: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(std::future::ready(Some(self.0.clone())))
    }

    fn list(&self) -> LocalFuture<'_, Vec<Listed>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

fn serve_image(file: &Path, socket: &Path) -> Outcome<()> {
    let disk = open(file, Medium::Memory)?;
    let shard = Shard::start()?;
    let socket = socket.to_owned();
    shard.run(async move |context: ShardContext| {
        let (arena, clock) = (context.arena(), context.clock());
        let options = Options { access: Access::ReadWrite, ..Options::default() };
        let image = Image::open(context.disk(&disk), arena.clone(), options).await;
        let image = Rc::new(image?);
        let device = varve_block::accept_unaligned(Device::new(ImageDevice::new(image)), arena.clone());
        let door = Door {
            catalog: Rc::new(Alone(Export::new("image", device))),
            limits: Limits::default(),
            budget: Budget::new(256 << 20),
            admission: Admission::new(16),
            tls: None,
            activity: Activity::default(),
            arena,
            clock,
            shutdown: Shutdown::new(),
            detachment: Default::default(),
        };
        let listener = context.listen_unix(&socket, varve_os::FileAccess::OWNER)?;
        println!("{READY}");
        loop {
            let stream = context.adopt(listener.accept().await?);
            let door = door.clone();
            context.spawner().spawn(async move {
                if let Err(end) = door.serve(stream).await {
                    eprintln!("{end}");
                }
            });
        }
    })
}
