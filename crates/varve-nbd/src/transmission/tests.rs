//! Golden bytes of headers, and the edges of runs.

use super::*;

fn request(command: Command) -> Request {
    Request { flags: 1, command, cookie: 0x1122_3344_5566_7788, offset: 0x1000, length: 0x200 }
}

#[test]
fn requests_have_their_golden_bytes() {
    let golden = *b"\x25\x60\x95\x13\0\x01\0\x01\x11\x22\x33\x44\x55\x66\x77\x88\0\0\0\0\0\0\x10\0\0\0\x02\0";
    let request = request(Command::Write);
    assert_eq!(&*request.encode(Framing::Simple).unwrap(), &golden[..]);
    assert_eq!(Request::decode(Framing::Structured, &golden), Ok(Some(request)));
    assert_eq!(Request::decode(Framing::Simple, &golden[..27]), Ok(None));
    let golden =
        *b"\x21\xe4\x1c\x71\0\x01\0\x01\x11\x22\x33\x44\x55\x66\x77\x88\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\x02\0";
    assert_eq!(&*request.encode(Framing::Extended).unwrap(), &golden[..]);
    assert_eq!(Request::decode(Framing::Extended, &golden), Ok(Some(request)));
    assert!(Request::decode(Framing::Simple, &golden).is_err());
}

#[test]
fn replies_have_their_golden_bytes() {
    let request = request(Command::Read);
    assert_eq!(
        &*Head::done(Framing::Simple, &request),
        b"\x67\x44\x66\x98\0\0\0\0\x11\x22\x33\x44\x55\x66\x77\x88"
    );
    assert_eq!(
        &*Head::error(Framing::Simple, &request, ErrorCode::NoSpace),
        b"\x67\x44\x66\x98\0\0\0\x1c\x11\x22\x33\x44\x55\x66\x77\x88"
    );
    assert_eq!(
        &*Head::data(Framing::Structured, &request, 0x200),
        b"\x66\x8e\x33\xef\0\x01\0\x01\x11\x22\x33\x44\x55\x66\x77\x88\0\0\x02\x08\0\0\0\0\0\0\x10\0"
    );
    assert_eq!(
        &*Head::error(Framing::Structured, &request, ErrorCode::Io),
        b"\x66\x8e\x33\xef\0\x01\x80\x01\x11\x22\x33\x44\x55\x66\x77\x88\0\0\0\x06\0\0\0\x05\0\0"
    );
    assert_eq!(
        &*Head::status(Framing::Structured, &request, 1, 2, true),
        b"\x66\x8e\x33\xef\0\x01\0\x05\x11\x22\x33\x44\x55\x66\x77\x88\0\0\0\x14\0\0\0\x01"
    );
    assert_eq!(
        &*Head::done(Framing::Extended, &request),
        b"\x6e\x8a\x27\x8c\0\x01\0\0\x11\x22\x33\x44\x55\x66\x77\x88\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0"
    );
    assert_eq!(
        &Head::status(Framing::Extended, &request, 1, 2, true)[16..],
        b"\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\x28\0\0\0\x01\0\0\0\x02"
    );
}

#[test]
fn a_length_that_does_not_fit_is_an_error_not_a_cut() {
    let mut request = request(Command::Trim);
    request.length = 1 << 32;
    assert_eq!(request.encode(Framing::Structured), Err(ErrorCode::Overflow));
    assert!(request.encode(Framing::Extended).is_ok());
}

#[test]
fn runs_join_and_never_exceed_what_was_asked() {
    let run = |length, state| Run { length, state };
    let input = [run(1 << 31, 0), run(0, 3), run(1 << 31, 0), run(u64::MAX, 0), run(5, 3)];
    let wanted = u64::from(u32::MAX);
    assert_eq!(coalesce(input, wanted, false), [run(wanted, 0)], "CODEC2");
    assert_eq!(coalesce([run(4, 0), run(4, 3), run(4, 0)], 12, true), [run(4, 0)]);
    assert_eq!(coalesce([run(4, 0), run(4, 3), run(4, 0)], 9, false), [run(4, 0), run(4, 3), run(1, 0)]);
    let many = (0..200_000).map(|index| run(1, index & 1));
    assert_eq!(coalesce(many, 200_000, false).len(), RUNS_MAX as usize);
}

#[test]
fn a_run_at_the_edge_of_32_bits_is_cut_not_wrapped() {
    let runs = [Run { length: 1 << 32, state: 0 }, Run { length: 4096, state: 3 }];
    let mut output = Vec::new();
    assert_eq!(encode_runs(Framing::Structured, &runs, &mut output), 1);
    assert_eq!(output, b"\xff\xff\xf0\0\0\0\0\0");
    output.clear();
    assert_eq!(encode_runs(Framing::Extended, &runs, &mut output), 2);
    assert_eq!(&output[..16], b"\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn a_payload_is_skipped_whatever_the_flags_say() {
    let mut write = request(Command::Write);
    assert_eq!(write.payload_length(Framing::Simple), 0x200);
    assert_eq!(write.payload_length(Framing::Extended), 0x200);
    write.command = Command::Read;
    assert_eq!(write.payload_length(Framing::Extended), 0);
    write.flags |= command_flag::PAYLOAD_LEN;
    assert_eq!(write.payload_length(Framing::Extended), 0x200);
    assert_eq!(write.payload_length(Framing::Structured), 0);
}

#[test]
fn error_numbers_round_trip() {
    for code in [1, 5, 12, 22, 28, 75, 95, 108] {
        assert_eq!(ErrorCode::from_code(code).map(ErrorCode::code), Some(code));
    }
    assert_eq!(ErrorCode::from_code(0), None);
    assert_eq!(ErrorCode::from_code(9999), Some(ErrorCode::Invalid));
}
