//! The client's handshake against old and hostile servers.

use super::*;

fn replying(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for word in [option, kind, length_of(data)] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}

fn greeting(flags: u8) -> Vec<u8> {
    [&b"NBDMAGICIHAVEOPT\0"[..], &[flags]].concat()
}

#[test]
fn a_server_that_knows_nothing_new_is_asked_in_the_old_way() {
    let mut client = Handshake::new(Wish::new("disk"));
    let mut output = Vec::new();
    let mut input = greeting(3);
    for option in [option::EXTENDED_HEADERS, option::STRUCTURED_REPLY, option::GO] {
        input.extend_from_slice(&replying(option, reply::ERR_UNSUP, b"what?"));
    }
    input.extend_from_slice(b"\0\0\0\0\0\x10\0\0\0\x01rest");
    let (used, step) = client.feed(&input, &mut output);
    assert_eq!(used, input.len() - 4);
    let Step::Ready(connected) = step else { panic!("{step:?}") };
    assert_eq!((connected.size, connected.framing), (1 << 20, Framing::Simple));
    assert!(output.ends_with(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk"));
}

#[test]
fn an_option_is_asked_after_the_one_before_it_was_answered() {
    let mut client = Handshake::new(Wish::new("disk"));
    let mut output = Vec::new();
    let mut feed = |bytes: &[u8]| {
        assert_eq!(client.feed(bytes, &mut output).1, Step::More);
        output.windows(8).filter(|window| window == b"IHAVEOPT").count()
    };
    assert_eq!(feed(&greeting(3)), 1, "CLIENT1");
    for (asked, option) in [option::EXTENDED_HEADERS, option::STRUCTURED_REPLY].into_iter().enumerate() {
        let answer = replying(option, reply::ERR_UNSUP, b"what?");
        let (most, last) = answer.split_at(answer.len() - 1);
        assert_eq!((feed(most), feed(last)), (asked + 1, asked + 2), "CLIENT1");
    }
}

#[test]
fn a_server_without_fixed_newstyle_pads_its_answer() {
    let mut client = Handshake::new(Wish::new(""));
    let mut output = Vec::new();
    let mut input = greeting(0);
    input.extend_from_slice(b"\0\0\0\0\0\x10\0\0\0\x01");
    assert_eq!(client.feed(&input, &mut output), (input.len(), Step::More));
    assert!(matches!(client.feed(&[0; 200], &mut output), (124, Step::Ready(_))));
}

#[test]
fn hostile_servers_are_left() {
    let fails = |input: &[u8]| {
        let mut client = Handshake::new(Wish { extended_headers: false, ..Wish::new("disk") });
        matches!(client.feed(input, &mut Vec::new()).1, Step::Failed(_))
    };
    let structured = |rest: Vec<u8>| {
        [greeting(3), replying(option::STRUCTURED_REPLY, reply::ERR_UNSUP, &[]), rest].concat()
    };
    assert!(fails(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0"), "oldstyle");
    assert!(fails(b"SSH-2.0-OpenSSH_10.0"));
    assert!(fails(&[greeting(3), replying(option::LIST, reply::ACK, &[])].concat()), "another option");
    assert!(fails(&structured(replying(option::GO, reply::ACK, &[]))), "no size");
    assert!(fails(&structured(replying(option::GO, reply::INFO, &[0, 0, 1]))), "half a size");
    let zero = b"\0\x03\0\0\0\0\0\0\0\0\0\0\0\0";
    assert!(fails(&structured(replying(option::GO, reply::INFO, zero))), "blocks of no bytes");
    let mut long = structured(replying(option::GO, reply::INFO, &[9; 2]));
    long.extend_from_slice(&replying(option::GO, reply::INFO, &[])[..16]);
    long.extend_from_slice(&[0xff; 4]);
    assert!(fails(&long), "a reply of 4 GiB");
    let endless = vec![replying(option::GO, reply::INFO, &[9; 2]); 300].concat();
    assert!(fails(&structured(endless)), "CLIENT2");
    assert!(fails(&structured(replying(option::GO, reply::ERR_POLICY, b"\xff no"))));
}
