//! NBD through TLS: what qemu and libnbd agree on with the daemon, and what clients get that do otherwise.
#![expect(clippy::disallowed_methods, reason = "the real program is tested, in real time")]

use crate::harness::World;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const REPLY_MAGIC: [u8; 8] = 0x0003_e889_0455_65a9_u64.to_be_bytes();
const STARTTLS: u32 = 5;
const ACK: u32 = 1;
const TLS_REQUIRED: u32 = 1 << 31 | 5;

/// A daemon with an export `e1` of 64 MiB that requires TLS, and a folder of credentials.
struct Stage {
    world: World,
    port: u16,
}

fn openssl(folder: &Path, words: &str) {
    let ended = Command::new("openssl").args(words.split(' ')).current_dir(folder).output();
    let ended = ended.expect("openssl is there");
    assert!(ended.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&ended.stderr));
}

/// Makes an authority in `folder`.
fn make_authority(folder: &Path, name: &str) {
    fs::create_dir_all(folder).expect("made");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca-key.pem";
    openssl(folder, &format!("req -x509 {key} -out ca-cert.pem -days 30 -subj /CN={name}"));
}

/// Makes a certificate for a `server` or `client`, which the authority in `folder` vouches for.
fn make_certificate(folder: &Path, role: &str, days: u32) {
    let names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
    let uses = format!("{names}\nbasicConstraints=CA:FALSE\nextendedKeyUsage={role}Auth\n");
    fs::write(folder.join("uses"), uses).expect("written");
    let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout new-{role}-key.pem");
    openssl(folder, &format!("req -new {key} -out request -subj /CN={role}"));
    let by = "-CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial";
    openssl(
        folder,
        &format!("x509 -req -in request {by} -days {days} -extfile uses -out new-{role}-cert.pem"),
    );
    for kind in ["key", "cert"] {
        let name = format!("{role}-{kind}.pem");
        fs::rename(folder.join(format!("new-{name}")), folder.join(name)).expect("renamed");
    }
}

/// Has the authority in `folder` take the certificate of the client back.
fn revoke(folder: &Path) {
    let settings =
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=30\n";
    for (name, text) in [("settings", settings), ("index", ""), ("number", "01\n")] {
        fs::write(folder.join(name), text).expect("written");
    }
    let by = "-config settings -cert ca-cert.pem -keyfile ca-key.pem";
    openssl(folder, &format!("ca {by} -revoke client-cert.pem"));
    openssl(folder, &format!("ca {by} -gencrl -out new-crl.pem"));
    fs::rename(folder.join("new-crl.pem"), folder.join("ca-crl.pem")).expect("renamed");
}

/// Copies files from one folder to another.
fn copy(from: &Path, to: &Path, names: &[&str]) {
    fs::create_dir_all(to).expect("made");
    for name in names {
        fs::copy(from.join(name), to.join(name)).expect("copied");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// A daemon with a volume, and credentials in `pki`.
fn world() -> World {
    let world = World::with_group();
    world.ok("lv create data/a --size 64M");
    make_authority(&world.path("pki"), "one");
    make_certificate(&world.path("pki"), "server", 30);
    make_certificate(&world.path("pki"), "client", 30);
    world
}

impl Stage {
    fn new() -> Self {
        let (world, port) = (world(), free_port());
        let made = world.ok(&format!("export create data/a --nbd tcp:{port} --tls pki"));
        assert_eq!(made, format!("nbds://127.0.0.1:{port}/data%2Fa\n"));
        Self { world, port }
    }

    /// What nbdinfo says of the export to a client with what is in `folder`.
    fn nbdinfo(&self, folder: &str) -> Output {
        let folder = self.world.path(folder);
        let uri = format!("nbds://127.0.0.1:{}/data%2Fa?tls-certificates={}", self.port, folder.display());
        let info = Command::new("nbdinfo").args(["--size", &uri]).output();
        info.expect("nbdinfo is there")
    }

    /// Whether a client with what is in `folder` is let in.
    fn lets_in(&self, folder: &str) -> bool {
        let ended = self.nbdinfo(folder);
        let is_size = ended.stdout == b"67108864\n";
        assert_eq!(is_size, ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        is_size
    }

    /// What qemu needs for the export with what is in `folder`.
    fn of_qemu(&self, folder: &str, more: &str) -> [String; 4] {
        let folder = self.world.path(folder);
        let credentials =
            format!("tls-creds-x509,id=t,endpoint=client,verify-peer=on,dir={}{more}", folder.display());
        let image = format!("driver=nbd,host=127.0.0.1,port={},export=data/a,tls-creds=t", self.port);
        ["--object".to_owned(), credentials, "--image-opts".to_owned(), image]
    }

    /// A connection whose client has sent its flags.
    fn raw(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        stream.write_all(&[0, 0, 0, 3]).expect("it reads");
        stream
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short");
    [OPTION_MAGIC, &number.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn go(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).expect("short");
    option(7, &[&length.to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat())
}

/// Option and kind of the next reply.
fn reply(stream: &mut TcpStream) -> (u32, u32) {
    let mut head = [0; 20];
    stream.read_exact(&mut head).expect("a reply");
    assert_eq!(head[..8], REPLY_MAGIC);
    let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let mut data = vec![0; number(16) as usize];
    stream.read_exact(&mut data).expect("its data");
    (number(8), number(12))
}

/// All that comes until the connection ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it ends"),
    }
    rest
}

fn has_reply(bytes: &[u8]) -> bool {
    bytes.windows(REPLY_MAGIC.len()).any(|window| window == REPLY_MAGIC)
}

#[test]
fn qemu_and_libnbd_write_and_read_through_tls() {
    let stage = Stage::new();
    let world = &stage.world;
    assert!(stage.lets_in("pki"));
    let script = ["-c", "write -P 7 1000 5000000", "-c", "read -P 7 1000 5000000", "-c", "flush"];
    let run = Command::new("qemu-io").args(script).args(stage.of_qemu("pki", "")).output().expect("qemu-io");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success() && !said.contains("failed"),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let uri =
        format!("nbds://127.0.0.1:{}/data%2Fa?tls-certificates={}", stage.port, world.path("pki").display());
    let copied = Command::new("nbdcopy").arg(&uri).arg(world.path("copy")).status().expect("nbdcopy");
    assert!(copied.success());
    let content = fs::read(world.path("copy")).expect("a copy");
    let written = content[1000..5_001_000].iter().all(|byte| *byte == 7);
    assert!(written && content[..1000] == [0; 1000] && content[5_001_000..].iter().all(|byte| *byte == 0));
    let pattern: Vec<u8> = (0..64 << 20).map(|at: u32| (at ^ at >> 13) as u8).collect();
    fs::write(world.path("copy"), &pattern).expect("written");
    let copied = Command::new("nbdcopy").arg(world.path("copy")).arg(&uri).status().expect("nbdcopy");
    assert!(copied.success());
    world.ok("export create data/a --nbd unix:plain.sock");
    let plain = crate::client::Client::new(&world.path("plain.sock"), "data/a").read(0, 64 << 20);
    assert!(
        plain.is_err() || plain == Ok(pattern.clone()),
        "one request is not that long, or it is the same"
    );
    let plain = crate::client::Client::new(&world.path("plain.sock"), "data/a").read(32 << 20, 32 << 20);
    assert!(plain == Ok(pattern[32 << 20..].to_vec()), "what nbdcopy sent has arrived");
}

#[test]
fn who_shows_no_certificate_of_the_authority_is_not_let_in() {
    let stage = Stage::new();
    let world = &stage.world;
    copy(&world.path("pki"), &world.path("bare"), &["ca-cert.pem"]);
    make_authority(&world.path("other"), "two");
    make_certificate(&world.path("other"), "client", 30);
    copy(&world.path("pki"), &world.path("other"), &["ca-cert.pem"]);
    let plain = format!("nbd://127.0.0.1:{}/data%2Fa", stage.port);
    let plain = Command::new("nbdinfo").args(["--size", &plain]).output().expect("nbdinfo");
    assert!(!plain.status.success() && plain.stdout.is_empty());
    assert_eq!(["bare", "other", "pki"].map(|folder| stage.lets_in(folder)), [false, false, true], "TLS2");
    for (folder, more) in [("other", ""), ("pki", ",priority=NORMAL:-VERS-TLS1.3")] {
        let info = Command::new("qemu-img").arg("info").args(stage.of_qemu(folder, more)).output();
        assert!(!info.expect("qemu-img").status.success(), "{folder}{more}");
    }
    let info = Command::new("qemu-img").arg("info").args(stage.of_qemu("pki", "")).output();
    assert!(info.expect("qemu-img").status.success());
    copy(&world.path("pki"), &world.path("revoked"), &["ca-cert.pem", "client-cert.pem", "client-key.pem"]);
    revoke(&world.path("pki"));
    eventually("its certificate was taken back", || !stage.lets_in("revoked"));
    make_certificate(&world.path("pki"), "client", 30);
    assert!(stage.lets_in("pki"), "another one was not");
    assert!(!world.log().contains("panicked"), "{}", world.log());
}

#[test]
fn nothing_in_the_clear_is_taken_for_a_command_or_for_what_is_encrypted() {
    let stage = Stage::new();
    let mut stream = stage.raw();
    for number in [3, 6, 7, 8, 10, 99] {
        stream.write_all(&option(number, &[])).expect("it reads");
        assert_eq!(reply(&mut stream), (number, TLS_REQUIRED));
    }
    stream.write_all(&option(STARTTLS, &[])).expect("it reads");
    assert_eq!(reply(&mut stream), (STARTTLS, ACK));
    stream.write_all(&go("data/a")).expect("it reads");
    assert!(!has_reply(&rest(&mut stream)), "what comes after the wish for TLS is encrypted");
    // As somebody between client and daemon would put it there.
    let mut stream = stage.raw();
    stream.write_all(&[option(STARTTLS, &[]), go("data/a"), option(3, &[])].concat()).expect("it reads");
    assert_eq!(reply(&mut stream), (STARTTLS, ACK));
    assert!(!has_reply(&rest(&mut stream)), "what came before TLS had begun is no command");
    let mut stream = stage.raw();
    stream.write_all(&option(1, b"data/a")).expect("it reads");
    assert_eq!(rest(&mut stream), b"", "this option knows no refusal");
    assert!(stage.lets_in("pki"));
    // Where nothing requires it, nothing offers it.
    let port = free_port();
    stage.world.ok(&format!("export create data/a --nbd tcp:{port}"));
    let plain = Stage { port, ..stage };
    let mut stream = plain.raw();
    stream.write_all(&option(STARTTLS, &[])).expect("it reads");
    assert_eq!(reply(&mut stream), (STARTTLS, 1 << 31 | 1));
}

/// Stands between one client and the daemon, and says something in the clear behind the client's wish for TLS. Its port, and what the
/// daemon says after its greeting.
fn between(port: u16, injected: Vec<u8>) -> (u16, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let own = listener.local_addr().expect("it has one").port();
    let relay = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut daemon = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let mut greeting = [0; 18];
        daemon.read_exact(&mut greeting).and_then(|()| client.write_all(&greeting)).expect("a greeting");
        let mut wish = [0; 4 + 16];
        client.read_exact(&mut wish).expect("flags and an option");
        assert_eq!(wish[4..], option(STARTTLS, &[]));
        daemon.write_all(&[&wish[..], &injected].concat()).expect("it reads");
        let (mut from, mut to) = (client.try_clone().expect("a copy"), daemon.try_clone().expect("a copy"));
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let (mut said, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = daemon.read(&mut piece) {
            said.extend_from_slice(&piece[..length]);
            let _ = client.write_all(&piece[..length]); // It may have left.
        }
        let _ = client.shutdown(std::net::Shutdown::Both);
        said
    });
    (own, relay)
}

#[test]
fn who_stands_between_cannot_say_anything_that_holds_after_tls_has_begun() {
    let stage = Stage::new();
    let through = |injected: Vec<u8>| {
        let folder = stage.world.path("pki");
        let (port, relay) = between(stage.port, injected);
        let uri = format!("nbds://127.0.0.1:{port}/data%2Fa?tls-certificates={}", folder.display());
        let info = Command::new("nbdinfo").args(["--size", &uri]).output().expect("nbdinfo");
        (info.status.success(), relay.join().expect("no check failed"))
    };
    let agreed = [&REPLY_MAGIC[..], &STARTTLS.to_be_bytes(), &ACK.to_be_bytes(), &[0; 4]].concat();
    let (is_served, said) = through(Vec::new());
    assert!(is_served && said.len() > agreed.len() && said.starts_with(&agreed));
    // The client would take an answer to this for an answer to what it asks itself.
    let (is_served, said) = through(option(8, &[]));
    assert_eq!((is_served, said), (false, agreed), "TLS does not begin");
    assert!(stage.lets_in("pki"));
}

#[test]
fn clients_that_break_off_or_talk_nonsense_are_in_nobodys_way() {
    let stage = Stage::new();
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 40]].concat();
    let mut held = Vec::new();
    for number in 0..60_u32 {
        let mut stream = stage.raw();
        stream.write_all(&option(STARTTLS, &[])).expect("it reads");
        assert_eq!(reply(&mut stream), (STARTTLS, ACK));
        let bytes: Vec<u8> = match number % 6 {
            0 => Vec::new(),
            1 => hello.clone(),
            2 => (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
            3 => vec![0x15, 3, 3, 0, 2, 1, 0, 0x15, 3, 3, 0, 2, 1, 0], // Twice: nothing more is sent.
            4 => [&[0x16, 3, 1, 0xff, 0xff][..], &[0; 70_000]].concat(),
            _ => [&[0x17, 3, 3, 0, 0][..]; 5_000].concat(),
        };
        let _ = stream.write_all(&bytes); // It may have been closed by then.
        if number % 2 == 0 {
            held.push(stream);
        }
    }
    assert!(stage.lets_in("pki"), "{}", stage.world.log());
    drop(held);
    assert!(!stage.world.log().contains("panicked"), "{}", stage.world.log());
    assert!(stage.lets_in("pki"));
}

/// A client of qemu that stays.
struct Interactive {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Interactive {
    fn new(stage: &Stage) -> Self {
        let mut command = Command::new("qemu-io");
        command.args(stage.of_qemu("pki", "")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("qemu-io");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, said }
    }

    /// Has it write a page.
    fn write(&mut self, offset: u32) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "write -P 9 {offset} 4096").and_then(|()| stdin.flush()).expect("it reads");
        let mut line = String::new();
        while !line.contains(&format!("wrote 4096/4096 bytes at offset {offset}")) {
            line.clear();
            assert!(self.said.read_line(&mut line).is_ok_and(|length| length > 0), "it has ended");
        }
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until it is so.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The kinds of problems in the status, with its exit code.
fn problems(world: &World) -> (i32, Vec<String>) {
    let ended = world.run("status --check --json");
    let status: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let rows = status["data"]["attention"].as_array().cloned().unwrap_or_default();
    (ended.exit, rows.iter().filter_map(|row| row["kind"].as_str().map(str::to_owned)).collect())
}

#[test]
fn new_credentials_are_used_by_themselves_and_old_connections_stay() {
    let mut stage = Stage::new();
    let pki = stage.world.path("pki");
    copy(&pki, &stage.world.path("before"), &["ca-cert.pem", "client-cert.pem", "client-key.pem"]);
    let mut client = Interactive::new(&stage);
    client.write(0);
    make_authority(&pki, "three");
    make_certificate(&pki, "client", 30);
    make_certificate(&pki, "server", 30);
    eventually("the new ones are let in", || stage.lets_in("pki"));
    assert!(!stage.lets_in("before"));
    client.write(4096);
    make_authority(&stage.world.path("next"), "four");
    make_certificate(&stage.world.path("next"), "client", 30);
    make_certificate(&stage.world.path("next"), "server", 30);
    assert!(stage.world.ok("export change e1 --tls next -n").contains("TLS by"));
    assert_eq!([stage.lets_in("next"), stage.lets_in("pki")], [false, true]);
    assert_eq!(stage.world.ok("export change e1 --tls next"), "e1 of data/a: read-write, TLS\n");
    assert_eq!([stage.lets_in("next"), stage.lets_in("pki")], [true, false]);
    client.write(8192);
    drop(client);
    assert_eq!(stage.world.stop(), Some(0));
    stage.world.start();
    assert_eq!([stage.lets_in("next"), stage.lets_in("pki")], [true, false], "kept over a restart");
    let shown = stage.world.data("export list")[0]["tls"].take();
    assert_eq!(shown["folder"].as_str(), stage.world.path("next").to_str());
    assert!(shown["valid_until"].as_u64() > Some(1_700_000_000), "{shown}");
}

#[test]
fn what_is_wrong_with_credentials_is_refused_at_first_and_in_the_status_later() {
    let world = world();
    let port = free_port();
    let create = format!("export create data/a --nbd tcp:{port} --tls pki");
    let pki = world.path("pki");
    copy(&pki, &world.path("good"), &["ca-cert.pem", "server-cert.pem", "server-key.pem"]);
    let refused = |what: &str| {
        for dry in ["", " -n"] {
            let said = world.refused(&format!("{create}{dry}"), 1, "V0505");
            assert!(said.contains(what) && said.contains("help: "), "{said}");
        }
    };
    fs::remove_file(pki.join("server-key.pem")).expect("it is there");
    refused("server-key.pem: No such file");
    fs::copy(pki.join("client-key.pem"), pki.join("server-key.pem")).expect("copied");
    refused("server-cert.pem with server-key.pem");
    fs::write(pki.join("server-cert.pem"), "nothing").expect("written");
    refused("server-cert.pem has no certificate");
    make_certificate(&pki, "server", 0);
    eventually("it expires", || !world.run(&format!("{create} -n")).stderr.is_empty());
    refused("server-cert.pem has expired");
    make_certificate(&pki, "server", 10);
    world.ok(&create);
    eventually("it is soon", || problems(&world) == (7, vec!["export-credentials".to_owned()]));
    assert!(world.run("status").stdout.contains("expires within 14 days"));
    copy(&world.path("good"), &pki, &["server-cert.pem", "server-key.pem"]);
    eventually("there is a new one", || problems(&world) == (0, Vec::new()));
    fs::remove_file(pki.join("ca-cert.pem")).expect("it is there");
    eventually("a file is missing", || problems(&world).0 == 7);
    let stage = Stage { world, port };
    copy(&stage.world.path("good"), &stage.world.path("client"), &["ca-cert.pem"]);
    copy(&stage.world.path("pki"), &stage.world.path("client"), &["client-cert.pem", "client-key.pem"]);
    assert!(stage.lets_in("client"), "EXPORTTLS2: it goes on with those of before");
    copy(&stage.world.path("good"), &pki, &["ca-cert.pem"]);
    eventually("it is there again", || problems(&stage.world) == (0, Vec::new()));
}

#[test]
fn tls_is_for_nbd_and_for_a_socket_as_a_whole() {
    let world = world();
    world.ok("export create data/a --nbd unix:a.sock --tls pki");
    let uri = world.ok("export list");
    assert!(uri.contains("nbds+unix:///data%2Fa?socket="), "{uri}");
    world.ok("lv create data/b --size 64M");
    let refused = world.refused("export create data/b --nbd unix:a.sock", 2, "V0002");
    assert!(refused.contains("export e1 has the same socket, with TLS from"), "EXPORTTLS1: {refused}");
    world.ok("export create data/b --nbd unix:a.sock --tls pki");
    world.refused("export create data/b --vhost-user b.sock --tls pki", 2, "V0002");
    world.ok("export create data/b --nbd unix:b.sock");
    let refused = world.refused("export change e3 --tls pki", 2, "V0002");
    assert!(refused.contains("varve export remove e3; varve export create data/b --nbd unix:"), "{refused}");
    // Other hosts may reach what is encrypted.
    world.refused("export create data/b --nbd tcp:0.0.0.0:10811 -n", 2, "V0508");
    world.ok("export create data/b --nbd tcp:0.0.0.0:10811 --tls pki -n");
}
