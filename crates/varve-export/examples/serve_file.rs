//! Serves one file or block device over NBD on a Unix socket: `serve_file FILE SOCKET [direct|buffered]`.
//!
//! The smallest whole server: what the daemon does, without volumes. Good for trying the door with any client and
//! for measuring it beside others.

use std::process::ExitCode;
use std::rc::Rc;
use varve_block::{LocalFuture, accept_unaligned};
use varve_export::nbd::{Activity, Admission, Budget, Catalog, Door, Export, Limits, Listed, Shutdown};
use varve_os::{CacheMode, DiskFile, DiskOptions, ShardContext, Shards, ShardsConfig};

struct OneExport(Export);

impl Catalog for OneExport {
    fn lookup<'a>(&'a self, name: &'a str) -> LocalFuture<'a, Option<Export>> {
        Box::pin(async move { (name.is_empty() || name == self.0.name).then(|| self.0.clone()) })
    }
    fn list(&self) -> LocalFuture<'_, Vec<Listed>> {
        let (name, description) = (self.0.name.clone(), self.0.description.clone());
        Box::pin(async move { vec![Listed { name, description }] })
    }
}

async fn serve(context: ShardContext, disk: std::sync::Arc<DiskFile>, socket: String) -> std::io::Result<()> {
    let device = accept_unaligned(context.disk(&disk), context.arena());
    let listener = context.listen_unix(&socket, varve_os::FileAccess::OWNER)?;
    let door = Door {
        catalog: Rc::new(OneExport(Export::new("file", device))),
        limits: Limits::default(),
        budget: Budget::new(256 << 20),
        admission: Admission::new(256),
        tls: None,
        activity: Activity::default(),
        arena: context.arena(),
        clock: context.clock(),
        shutdown: Shutdown::new(),
        detachment: Default::default(),
    };
    println!("ready");
    loop {
        let connection = context.adopt(listener.accept().await?);
        let door = door.clone();
        context.spawner().spawn(async move {
            if let Err(end) = door.serve(connection).await {
                eprintln!("a connection ended: {end}");
            }
        });
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (file, socket, cache) = match arguments.as_slice() {
        [_, file, socket] => (file, socket.clone(), CacheMode::Direct),
        [_, file, socket, mode] if mode == "direct" => (file, socket.clone(), CacheMode::Direct),
        [_, file, socket, mode] if mode == "buffered" => (file, socket.clone(), CacheMode::Buffered),
        _ => {
            eprintln!("usage: serve_file FILE SOCKET [direct|buffered]");
            return ExitCode::from(2);
        }
    };
    let result = DiskFile::open(file, DiskOptions { cache, ..DiskOptions::default() })
        .map_err(|error| error.to_string())
        .and_then(|disk| {
            let shards = Shards::start(&ShardsConfig::default()).map_err(|error| error.to_string())?;
            let served = shards.handle(0).run_and_wait(move |context| serve(context, disk, socket));
            served.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve_file: {error}");
            ExitCode::FAILURE
        }
    }
}
