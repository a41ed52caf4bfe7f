//! The session against our own encoder, in any fragments, and against servers that lie.

use super::*;
use crate::transmission::encode_runs;
use proptest::prelude::*;

fn read(cookie: u64, offset: u64, length: u64) -> Request {
    Request { flags: 0, command: Command::Read, cookie, offset, length }
}

fn session(framing: Framing, request: &Request) -> Session {
    let mut session = Session::new(framing, Some(1));
    session.submit(request).unwrap();
    session
}

fn structured(flags: u16, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let front = [&[0x66, 0x8e, 0x33, 0xef][..], &flags.to_be_bytes(), &kind.to_be_bytes()].concat();
    [&front[..], &cookie.to_be_bytes(), &length.to_be_bytes(), payload].concat()
}

fn data(flags: u16, offset: u64, bytes: &[u8]) -> Vec<u8> {
    structured(flags, chunk::OFFSET_DATA, 7, &[&offset.to_be_bytes()[..], bytes].concat())
}

/// Plays the session's owner, which gets `input` cut every `piece` bytes: the read's buffer, what else happened.
fn play(session: &mut Session, input: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<Event>), Malformed> {
    let (mut buffer, mut events) = (vec![0xee; 64], Vec::new());
    let (mut held, mut coming) = (Vec::new(), input);
    loop {
        let (used, event) = session.feed(&held)?;
        held.drain(..used);
        match event {
            Event::More(wanted) => {
                assert!(wanted > held.len(), "asks for more than it has");
                if coming.is_empty() {
                    return Ok((buffer, events));
                }
                let (now, later) = coming.split_at(piece.min(coming.len()));
                held.extend_from_slice(now);
                coming = later;
            }
            Event::Data { start, length, .. } => {
                let (start, length) = (start as usize, length as usize);
                held.extend_from_slice(coming);
                coming = &[];
                buffer[start..start + length].copy_from_slice(&held[..length]);
                held.drain(..length);
            }
            Event::Hole { start, length, .. } => buffer[start as usize..][..length as usize].fill(0),
            event => events.push(event),
        }
    }
}

#[test]
fn a_read_in_pieces_of_any_order_is_put_together() {
    let hole = [&108u64.to_be_bytes()[..], &4u32.to_be_bytes()].concat();
    let input = [
        data(0, 112, b"wxyz"),
        structured(0, chunk::OFFSET_HOLE, 7, &hole),
        structured(0, chunk::NONE, 7, &[]),
        data(1, 100, b"abcdefgh"),
    ];
    let mut session = session(Framing::Structured, &read(7, 100, 16));
    let (buffer, events) = play(&mut session, &input.concat(), usize::MAX).unwrap();
    assert_eq!(&buffer[..17], b"abcdefgh\0\0\0\0wxyz\xee");
    assert_eq!(events, [Event::Done { cookie: 7, result: Ok(()) }]);
    assert_eq!(session.in_flight(), 0);
}

#[test]
fn servers_that_lie_are_caught() {
    let lies = |input: &[Vec<u8>]| {
        let mut session = session(Framing::Structured, &read(7, 100, 16));
        play(&mut session, &input.concat(), usize::MAX).is_err()
    };
    assert!(lies(&[data(1, 99, b"a")]), "SESSION2: before the read");
    assert!(lies(&[data(1, 115, b"ab")]), "SESSION2: beyond the read");
    assert!(lies(&[data(1, u64::MAX, b"ab")]), "SESSION2: at the edge of 64 bits");
    assert!(lies(&[data(0, 100, b"abcd"), data(1, 103, b"efgh")]), "SESSION2: twice");
    assert!(lies(&[data(0, 104, b"abcd"), data(1, 100, b"efghi")]), "SESSION2: twice, from the other side");
    assert!(lies(&[data(1, 100, b"abcd")]), "SESSION2: in part");
    assert!(lies(&[structured(1, chunk::NONE, 8, &[])]), "SESSION1");
    assert!(lies(&[data(1, 100, b"0123456789abcdef"), data(1, 100, b"a")]), "SESSION1: twice");
    assert!(lies(&[structured(1, chunk::BLOCK_STATUS, 7, &[0; 12])]), "runs for a read");
    assert!(lies(&[structured(1, chunk::ERROR, 7, &[0; 2])]), "half an error");
    assert!(
        lies(&[b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x07\xff\xff\xff\xff".to_vec()]),
        "SESSION3"
    );
    assert!(lies(&[b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07".to_vec()]), "a simple reply");
    assert!(lies(&[b"garbage".to_vec()]));
}

#[test]
fn a_read_in_crumbs_is_given_up() {
    let mut session = session(Framing::Structured, &read(7, 0, 1 << 20));
    let mut failed = false;
    for index in 0..2000u64 {
        let front = &data(0, index * 2, b"x")[..28];
        failed |= session.feed(front).is_err();
    }
    assert!(failed, "SESSION3");
}

#[test]
fn an_error_ends_a_request_wherever_its_text_is_cut() {
    let error = structured(1, chunk::ERROR_OFFSET, 7, b"\0\0\0\x1c\0\x04full\0\0\0\0\0\0\0\0");
    for piece in [1, 3, usize::MAX] {
        let mut session = session(Framing::Structured, &read(7, 0, 16));
        let (_, events) = play(&mut session, &error, piece).unwrap();
        assert_eq!(events, [Event::Done { cookie: 7, result: Err(ErrorCode::NoSpace) }]);
    }
}

#[test]
fn an_owner_may_take_requests_in_any_framing() {
    for framing in [Framing::Simple, Framing::Structured, Framing::Extended] {
        let request = read(7, 4096, 6);
        let mut session = session(framing, &request);
        let input = [&Head::data(framing, &request, 6)[..], b"sediment"].concat();
        let (buffer, events) = play(&mut session, &input[..input.len() - 2], 1).unwrap();
        assert_eq!(&buffer[..7], b"sedime\xee");
        assert_eq!(events, [Event::Done { cookie: 7, result: Ok(()) }]);
    }
}

proptest! {
    #[test]
    fn runs_come_back_as_they_were_sent(
        lengths in prop::collection::vec((1u64..1 << 20, 0u32..4), 1..50),
        extended: bool,
        piece in 1usize..100,
    ) {
        let framing = if extended { Framing::Extended } else { Framing::Structured };
        let runs: Vec<_> = lengths.iter().map(|(length, state)| Run { length: *length, state: *state }).collect();
        let length = runs.iter().map(|run| run.length).sum();
        let request = Request { command: Command::BlockStatus, ..read(7, 0, length) };
        let mut encoded = Vec::new();
        let count = encode_runs(framing, &runs, &mut encoded);
        let input = [&Head::status(framing, &request, 1, count, true)[..], &encoded].concat();
        let (_, events) = play(&mut session(framing, &request), &input, piece).unwrap();
        prop_assert_eq!(events, [
            Event::Runs { cookie: 7, runs },
            Event::Done { cookie: 7, result: Ok(()) },
        ]);
    }

    #[test]
    fn garbage_never_panics(
        cut in 0usize..30,
        tail in prop::collection::vec(any::<u8>(), 0..100),
        extended: bool,
        status: bool,
    ) {
        let framing = if extended { Framing::Extended } else { Framing::Structured };
        let mut request = read(7, 0, 32);
        if status {
            request.command = Command::BlockStatus;
        }
        let head = Head::data(framing, &request, 8);
        let mut input = head[..cut.min(head.len())].to_vec();
        input.extend_from_slice(&tail);
        let mut session = session(framing, &request);
        let mut rest = &input[..];
        while let Ok((used, event)) = session.feed(rest) {
            rest = &rest[used..];
            if let Event::Data { length, .. } = event {
                rest = rest.get(length as usize..).unwrap_or(&[]);
            }
            if matches!(event, Event::More(_)) {
                break;
            }
        }
    }
}
