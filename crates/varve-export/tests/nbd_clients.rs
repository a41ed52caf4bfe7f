//! The NBD door behind a real socket, judged by clients in common use: libnbd's tools, QEMU's, and fio.
//!
//! They are in Debian's packages `libnbd-bin`, `qemu-utils` and `fio`; without them these tests fail.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use varve_block::{LocalFuture, accept_unaligned};
use varve_export::nbd::{Activity, Admission, Budget, Catalog, Door, Export, Limits, Listed, Shutdown};
use varve_os::{CacheMode, DiskFile, DiskOptions, ShardContext, Shards, ShardsConfig};

const SIZE: u64 = 64 << 20;

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

async fn listen(context: ShardContext, file: PathBuf, socket: PathBuf, cache: CacheMode) {
    let options = DiskOptions { cache, ..DiskOptions::create(SIZE) };
    let disk = DiskFile::open(file, options).expect("a new file");
    let device = accept_unaligned(context.disk(&disk), context.arena());
    let listener = context.listen_unix(socket, varve_os::FileAccess::OWNER).expect("a new socket");
    let door = Door {
        catalog: Rc::new(OneExport(Export::new("data/vm1", device))),
        limits: Limits::default(),
        budget: Budget::new(64 << 20),
        admission: Admission::new(256),
        tls: None,
        activity: Activity::default(),
        arena: context.arena(),
        clock: context.clock(),
        shutdown: Shutdown::new(),
        detachment: Default::default(),
    };
    let spawner = context.spawner();
    context.spawner().spawn(async move {
        while let Ok(socket) = listener.accept().await {
            let (connection, door) = (context.adopt(socket), door.clone());
            spawner.spawn(async move {
                // How a client leaves is its own affair.
                let _ = door.serve(connection).await;
            });
        }
    });
}

/// A server on a file of its own, in a directory that goes with it.
struct Server {
    directory: tempfile::TempDir,
    uri: String,
    _shards: Shards,
}

impl Server {
    fn start(cache: CacheMode) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let (file, socket) = (directory.path().join("disk"), directory.path().join("socket"));
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let shards = Shards::start(&ShardsConfig::default()).expect("shards");
        let listening = shards.handle(0).run_and_wait(move |context| listen(context, file, socket, cache));
        listening.expect("it listens");
        Self { directory, uri, _shards: shards }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Runs a client where what it leaves behind goes away; what it prints. Panics if it fails.
fn client(server: &Server, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(server.directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text
}

/// Bytes that look random, with a hole in the middle.
fn write_image(path: &Path) {
    let mut state = 1u64;
    let mut image = vec![0; SIZE as usize];
    for (index, word) in image.chunks_exact_mut(8).enumerate() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if !(1 << 20..3 << 20).contains(&index) {
            word.copy_from_slice(&state.to_le_bytes());
        }
    }
    std::fs::write(path, image).expect("an image");
}

#[test]
fn libnbd_sees_and_copies_everything() {
    let server = Server::start(CacheMode::Buffered);
    let info = client(&server, "nbdinfo", &[&server.uri]);
    for fact in ["export-size: 67108864", "base:allocation", "can_multi_conn: true", "can_fast_zero: true"] {
        assert!(info.contains(fact), "{fact}: {info}");
    }
    assert!(client(&server, "nbdinfo", &["--list", &server.uri]).contains("export=\"data/vm1\""));
    let (image, copy) = (server.path("image"), server.path("copy"));
    write_image(&image);
    client(&server, "nbdcopy", &["--flush", &image.display().to_string(), &server.uri]);
    client(&server, "nbdcopy", &[&server.uri, &copy.display().to_string()]);
    assert!(std::fs::read(&image).ok() == std::fs::read(&copy).ok(), "the copy differs");
    let map = client(&server, "nbdinfo", &["--map", &server.uri]);
    assert!(map.contains("hole,zero"), "{map}");
}

#[test]
fn qemu_converts_compares_and_writes_where_it_likes() {
    let server = Server::start(CacheMode::Direct);
    let image = server.path("image");
    write_image(&image);
    let image = image.display().to_string();
    client(&server, "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &server.uri]);
    assert!(
        client(&server, "qemu-img", &["compare", "-f", "raw", "-F", "raw", &image, &server.uri])
            .contains("identical")
    );
    let commands = [
        "write -P 0x5a 3 5",
        "write -f -P 0x5b 1000 70000",
        "read -P 0x5b 1000 70000",
        "write -z 4096 8192",
        "read -P 0 4096 8192",
        "write -z -u 100000 1000000",
        "read -P 0 100000 1000000",
        "discard 1M 1M",
        "flush",
        "read -P 0x5a 3 5",
    ];
    let mut arguments = vec!["-f", "raw"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&server.uri);
    let text = client(&server, "qemu-io", &arguments);
    assert!(!text.contains("verification failed"), "{text}");
}

#[test]
fn fio_reads_what_it_wrote() {
    let server = Server::start(CacheMode::Buffered);
    let uri = format!("--uri={}", server.uri);
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--bsrange=512-128k",
        "--iodepth=32",
        "--size=64M",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
    ];
    let text = client(&server, "fio", &arguments);
    assert!(text.contains("err= 0"), "{text}");
}
