//! A disk for tests, served through FUSE: one file that stalls, fails, shrinks, fills and forgets on order.
//!
//! The file is mounted on a file, as Varve's own exports are; its content is in another file. Orders come as
//! lines over a control socket; each is answered with a line that begins with `ok` or `error`.

mod disk;
mod filesystem;
mod name;
mod orders;

use filesystem::{FaultFile, Shared};
use fuser::{Config, MountOption, Session};
use name::Name;
use orders::Order;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

const USAGE: &str = "\
usage: varve-faultdisk serve FILE CONTENT SOCKET [buffered]   serves CONTENT as FILE until it is told to quit
       varve-faultdisk order SOCKET WORD…                     gives an order and prints the answer

orders: stall [io]              requests wait until `release`; with `io` only those on data
        release                 what waits goes on
        fail KIND ERRNO [every N]   KIND is read, write or flush; ERRNO is EIO, ENOSPC, EINTR or EAGAIN
        shrink BYTES            the file ends here; what lay beyond is hidden until `heal`
        truncate BYTES          the file ends here, and what lay beyond is lost
        grow BYTES              the file is as long as this
        delete                  the file is deleted; who has it open still reads and writes it
        rename PATH             the file is called this
        full                    a write to a place that was never written fails with ENOSPC
        volatile                what is written is kept in a cache until a flush
        lie                     flushes are answered, and not done
        drop SEED               the cache is lost: each sector keeps any of its versions; all are forgotten with 0
        heal                    ends every fault but the loss of what was cut off; the cache stays volatile
        stats                   what was asked for so far
        quit                    unmounts and ends
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["serve", file, content, socket] => serve(file, content, socket, false),
        ["serve", file, content, socket, "buffered"] => serve(file, content, socket, true),
        ["order", socket, rest @ ..] if !rest.is_empty() => order(socket, &rest.join(" ")),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("varve-faultdisk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Mounts the disk, then takes orders until one of them is to quit. The socket is there once the disk is.
fn serve(file: &str, content: &str, socket: &str, buffered: bool) -> std::io::Result<()> {
    let content = File::options().read(true).write(true).open(content)?;
    let shared = Arc::new(Shared::new(disk::Disk::new(content)?, buffered));
    File::options().create(true).append(true).open(file)?;
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("faultdisk".to_owned()), MountOption::Subtype("faultdisk".to_owned())];
    // The second thread answers when the first is held up by the disk below.
    config.n_threads = Some(2);
    let session = Session::new(FaultFile::new(Arc::clone(&shared)), file, &config)?.spawn()?;
    let mut name = Name::of(Path::new(file))?;
    let outcome = take_orders(&shared, &mut name, socket);
    shared.release();
    let unmounted = name.unmount();
    // Its threads end with the process: the kernel may keep them for as long as a process has the file open.
    std::mem::forget(session);
    outcome.and(unmounted)
}

fn take_orders(shared: &Arc<Shared>, name: &mut Name, socket: &str) -> std::io::Result<()> {
    let listener = UnixListener::bind(socket)?;
    for client in listener.incoming() {
        let mut client = client?;
        let mut line = String::new();
        if BufReader::new(&client).read_line(&mut line).is_err() {
            continue;
        }
        let (answer, ends) = match Order::parse(line.trim()) {
            Ok(Order::Quit) => ("ok".to_owned(), true),
            Ok(order) => match name.obey(&order) {
                Ok(()) => (shared.obey(order), false),
                Err(error) => (format!("error {error}"), false),
            },
            Err(message) => (format!("error {message}"), false),
        };
        // A client that is gone wants no answer.
        drop(writeln!(client, "{answer}"));
        if ends {
            break;
        }
    }
    std::fs::remove_file(socket)
}

fn order(socket: &str, line: &str) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    print!("{answer}");
    if answer.starts_with("ok") { Ok(()) } else { Err(std::io::Error::other("the order was refused")) }
}
