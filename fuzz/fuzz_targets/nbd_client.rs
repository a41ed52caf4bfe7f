//! A hostile NBD server: its handshake, then replies to requests in flight.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_nbd::client::{Connected, Event, Handshake, Session, Step, Wish};
use varve_nbd::{Command, Framing, Request};

const LENGTH: u64 = 256;
const COOKIES: u64 = 6;

fn wish(choice: u8) -> Wish {
    Wish {
        name: "data/home".to_owned(),
        extended_headers: choice & 1 != 0,
        structured_replies: choice & 2 != 0,
        allocation: choice & 4 != 0,
    }
}

/// Feeds all of `input` in pieces of at most `piece` bytes.
fn handshake(choice: u8, input: &[u8], piece: usize) -> (usize, Vec<u8>, Option<Box<Connected>>) {
    let mut handshake = Handshake::new(wish(choice));
    let mut output = Vec::new();
    let mut used = 0;
    let mut end = piece.min(input.len());
    loop {
        let (taken, step) = handshake.feed(&input[used..end], &mut output);
        used += taken;
        match step {
            Step::Ready(connected) => return (used, output, Some(connected)),
            Step::Failed(_) => return (used, output, None),
            Step::More if taken == 0 && end == input.len() => return (used, output, None),
            Step::More if taken == 0 => end = (end + piece).min(input.len()),
            Step::More => {}
        }
    }
}

fn replies(mut input: &[u8], framing: Framing, allocation: Option<u32>) {
    let mut session = Session::new(framing, allocation);
    let commands =
        [Command::Read, Command::Write, Command::Flush, Command::BlockStatus, Command::Read, Command::Trim];
    for (cookie, command) in (0..COOKIES).zip(commands) {
        let request = Request { flags: 0, command, cookie, offset: 4096, length: LENGTH };
        session.submit(&request).expect("the length fits in every framing");
    }
    while let Ok((used, event)) = session.feed(input) {
        input = &input[used..];
        match event {
            Event::More(wanted) => {
                assert!(wanted > input.len(), "more is asked for than is there");
                return;
            }
            Event::Data { start, length, .. } => {
                assert!(start.checked_add(length).is_some_and(|end| end <= LENGTH), "SESSION2");
                let Some(rest) = input.get(length as usize..) else { return };
                input = rest;
            }
            Event::Hole { start, length, .. } => {
                assert!(start.checked_add(length).is_some_and(|end| end <= LENGTH), "SESSION2");
            }
            Event::Runs { runs, .. } => {
                let sum = runs.iter().try_fold(0_u64, |sum, run| sum.checked_add(run.length));
                assert!(sum.is_some_and(|sum| sum <= LENGTH), "cut to the length that was asked");
            }
            Event::Done { cookie, .. } => assert!(cookie < COOKIES, "SESSION1"),
        }
        assert!(session.in_flight() <= COOKIES as usize, "SESSION1");
    }
}

fuzz_target!(|data: &[u8]| {
    let [choice, piece, data @ ..] = data else { return };
    if choice & 8 != 0 {
        let framing = [Framing::Simple, Framing::Structured, Framing::Extended][usize::from(choice >> 4) % 3];
        return replies(data, framing, (choice & 4 != 0).then_some(1));
    }
    let (used, output, connected) = handshake(*choice, data, usize::MAX);
    let in_pieces = handshake(*choice, data, usize::from(*piece).max(1));
    assert!(in_pieces == (used, output, connected.clone()), "CODEC3: how input is cut changes nothing");
    if let Some(connected) = connected {
        replies(&data[used..], connected.framing, connected.allocation);
    }
});
