//! The server's handshake against golden bytes, hostile clients and our own client, whole and in fragments.

use super::*;
use crate::client::{self, Wish, put_option};
use crate::reader::Reader;
use proptest::prelude::*;

fn offer() -> Offer {
    Offer {
        size: 0x1_0000_0000,
        flags: ExportFlags::FLUSH.with(ExportFlags::DF),
        block_sizes: BlockSizes::default(),
        name: "data/vm1".to_owned(),
        description: "a volume".to_owned(),
        changed_since: None,
    }
}

/// Runs a server on `input`, cut every `piece` bytes; gives its output, its end, and the bytes it left.
fn run(input: &[u8], piece: usize) -> (Vec<u8>, Step, usize) {
    go_on(&mut Handshake::new(), input, piece)
}

/// The same with a handshake that was begun, or not.
fn go_on(handshake: &mut Handshake, input: &[u8], piece: usize) -> (Vec<u8>, Step, usize) {
    let mut output = Vec::new();
    let mut left = input;
    loop {
        let piece = &left[..left.len().min(piece)];
        let (used, step) = handshake.feed(piece, &mut output);
        left = &left[used..];
        let end = match step {
            Step::Lookup(name) => {
                let known = ["", "data/vm1"].contains(&name.as_str());
                handshake.answer(known.then(offer).as_ref(), &mut output)
            }
            Step::List => {
                let listed = Listed { name: "data/vm1".to_owned(), description: String::new() };
                handshake.answer_list(&[listed], &mut output)
            }
            other => other,
        };
        if end != Step::More || left.is_empty() {
            return (output, end, left.len());
        }
    }
}

fn flags() -> Vec<u8> {
    vec![0, 0, 0, 3]
}

fn go(name: &str) -> Vec<u8> {
    let length = u32::try_from(name.len()).unwrap();
    [&length.to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat()
}

#[test]
fn the_greeting_has_its_golden_bytes() {
    assert_eq!(&Handshake::greeting(), b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn go_answers_facts_then_begins_and_leaves_the_rest() {
    let mut input = flags();
    put_option(option::GO, &go("data/vm1"), &mut input);
    input.extend_from_slice(b"next");
    let (output, end, left) = run(&input, usize::MAX);
    assert_eq!(end, Step::Ready(Agreement { framing: Framing::Simple, contexts: Contexts::default() }));
    assert_eq!(left, 4, "SERVER2");
    let golden = [
        &b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0c\0\0\0\0\0\x01\0\0\0\0\0\x05"[..],
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\0\0\0\x0e\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0",
        b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x01\0\0\0\0",
    ];
    assert_eq!(output, golden.concat());
}

#[test]
fn export_name_answers_in_the_old_way() {
    for (client_flags, padding) in [(3, 0), (1, 124), (0, 124)] {
        let mut input = vec![0, 0, 0, client_flags];
        put_option(option::EXPORT_NAME, b"", &mut input);
        let (output, end, _) = run(&input, 3);
        assert!(matches!(end, Step::Ready(_)), "{end:?}");
        assert_eq!(output.len(), 10 + padding);
        assert_eq!(&output[..10], b"\0\0\0\x01\0\0\0\0\0\x05");
    }
    let mut input = flags();
    put_option(option::EXPORT_NAME, b"other", &mut input);
    assert_eq!(run(&input, 1).1, Step::Close(CloseReason::UnknownExport));
}

/// The types of the replies in `output`.
fn kinds(mut output: &[u8]) -> Vec<(u32, u32)> {
    let mut kinds = Vec::new();
    while let Some(header) = output.get(..20) {
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        kinds.push((word(8), word(12)));
        output = &output[20 + word(16) as usize..];
    }
    assert!(output.is_empty());
    kinds
}

#[test]
fn every_option_gets_its_reply_and_the_handshake_goes_on() {
    let mut input = flags();
    let cases = [
        (option::STARTTLS, vec![], vec![reply::ERR_UNSUP]),
        (4, vec![1, 2, 3], vec![reply::ERR_UNSUP]),
        (0xffff_ffff, vec![], vec![reply::ERR_UNSUP]),
        (option::LIST, vec![], vec![reply::SERVER, reply::ACK]),
        (option::LIST, vec![1], vec![reply::ERR_INVALID]),
        (option::INFO, go("nobody"), vec![reply::ERR_UNKNOWN]),
        (option::INFO, go("a\0b"), vec![reply::ERR_INVALID]),
        (option::INFO, vec![0, 0], vec![reply::ERR_INVALID]),
        (option::INFO, go(&"x".repeat(4097)), vec![reply::ERR_TOO_BIG]),
        (option::INFO, vec![0; 70_000], vec![reply::ERR_TOO_BIG]),
        (
            option::INFO,
            b"\0\0\0\0\0\x02\0\x01\0\x02".to_vec(),
            [vec![reply::INFO; 4], vec![reply::ACK]].concat(),
        ),
        (option::SET_META_CONTEXT, vec![], vec![reply::ERR_INVALID]),
        (option::STRUCTURED_REPLY, vec![], vec![reply::ACK]),
        (option::LIST_META_CONTEXT, vec![0; 8], vec![reply::META_CONTEXT, reply::ACK]),
        (option::SET_META_CONTEXT, vec![0; 8], vec![reply::ACK]),
        (option::SET_META_CONTEXT, b"\0\0\0\0\xff\xff\xff\xff".to_vec(), vec![reply::ERR_INVALID]),
        (option::SET_META_CONTEXT, b"\0\0\0\x01x\0\0\0\0".to_vec(), vec![reply::ERR_UNKNOWN]),
        (option::EXTENDED_HEADERS, vec![], vec![reply::ACK]),
        (option::STRUCTURED_REPLY, vec![], vec![reply::ERR_EXT_HEADER_REQD]),
        (option::ABORT, vec![], vec![reply::ACK]),
    ];
    for (option, data, _) in &cases {
        if data.len() <= wire::OPTION_LENGTH_MAX {
            put_option(*option, data, &mut input);
        } else {
            input.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
            input.extend_from_slice(&option.to_be_bytes());
            input.extend_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
            input.extend_from_slice(data);
        }
    }
    let expected: Vec<_> =
        cases.iter().flat_map(|(option, _, kinds)| kinds.iter().map(|kind| (*option, *kind))).collect();
    for piece in [1, 7, usize::MAX] {
        let (output, end, _) = run(&input, piece);
        assert_eq!(kinds(&output), expected, "CODEC3");
        assert_eq!(end, Step::Close(CloseReason::Aborted));
    }
}

#[test]
fn what_cannot_be_answered_ends_the_handshake() {
    let closes = |input: &[u8]| matches!(run(input, usize::MAX).1, Step::Close(CloseReason::Malformed(_)));
    assert!(closes(&[0, 0, 0, 7]), "unknown flags");
    assert!(closes(&[&flags()[..], b"GET / HTTP/1.1\r\n"].concat()), "another protocol");
    let mut old = vec![0, 0, 0, 0];
    put_option(option::LIST, &[], &mut old);
    assert!(closes(&old), "an option from a client that does not know replies");
    let mut long = flags();
    long.extend_from_slice(b"IHAVEOPT\0\0\0\x01\xff\xff\xff\xff");
    assert!(closes(&long), "a name of 4 GiB");
    let mut flood = flags();
    let options = wire::HANDSHAKE_LENGTH_MAX / wire::OPTION_HEADER_LENGTH as u64;
    (0..options).for_each(|_| put_option(option::STARTTLS, &[], &mut flood));
    assert!(!closes(&flood), "SERVER4: as many options as fit");
    put_option(option::STARTTLS, &[], &mut flood);
    assert!(closes(&flood), "SERVER4: options without end");
}

#[test]
fn a_context_counts_only_for_the_export_it_was_chosen_for() {
    for (chosen, begun, allocation) in [("", "", true), ("data/vm1", "", false)] {
        let mut input = flags();
        put_option(option::STRUCTURED_REPLY, &[], &mut input);
        let meta = [&go(chosen)[..4 + chosen.len()], b"\0\0\0\x01\0\0\0\x0fbase:allocation"].concat();
        put_option(option::SET_META_CONTEXT, &meta, &mut input);
        put_option(option::GO, &go(begun), &mut input);
        let contexts = Contexts { allocation, dirty: false };
        let agreement = Agreement { framing: Framing::Structured, contexts };
        assert_eq!(run(&input, 5).1, Step::Ready(agreement));
    }
}

/// The contexts that the server names when these are asked for, each with its number, and what is agreed then.
fn named(option: u32, changed_since: Option<&str>, queries: &[&str]) -> (Vec<(u32, String)>, Contexts) {
    let offer = Offer { changed_since: changed_since.map(str::to_owned), ..offer() };
    let mut handshake = Handshake::new();
    let mut input = flags();
    put_option(option::STRUCTURED_REPLY, &[], &mut input);
    let mut meta = go("")[..4].to_vec();
    meta.extend_from_slice(&u32::try_from(queries.len()).unwrap().to_be_bytes());
    for query in queries {
        meta.extend_from_slice(&u32::try_from(query.len()).unwrap().to_be_bytes());
        meta.extend_from_slice(query.as_bytes());
    }
    put_option(option, &meta, &mut input);
    put_option(option::GO, &go(""), &mut input);
    let (mut output, mut at, mut names) = (Vec::new(), 0, Vec::new());
    loop {
        let (used, step) = handshake.feed(&input[at..], &mut output);
        assert!(matches!(step, Step::Lookup(_)), "{step:?}");
        at += used;
        let before = output.len();
        let step = handshake.answer(Some(&offer), &mut output);
        let mut replies = Reader::new(&output[before..]);
        while let (Some(_), Some(of), Some(kind), Some(data)) =
            (replies.u64(), replies.u32(), replies.u32(), replies.counted())
        {
            if of == option && kind == reply::META_CONTEXT {
                let id = u32::from_be_bytes(data[..4].try_into().unwrap());
                names.push((id, String::from_utf8(data[4..].to_vec()).unwrap()));
            }
        }
        if let Step::Ready(agreement) = step {
            return (names, agreement.contexts);
        }
    }
}

#[test]
fn an_export_that_says_what_was_changed_has_one_more_context() {
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let all = [(0, "base:allocation".to_owned()), (0, "qemu:dirty-bitmap:mon".to_owned())];
    for (queries, found) in [
        (&[][..], &all[..]),
        (&["base:"], &all[..1]),
        (&["qemu:"], &all[1..]),
        (&["qemu:dirty-bitmap:"], &all[1..]),
        (&["qemu:dirty-bitmap:mon"], &all[1..]),
        (&["qemu:dirty-bitmap:tue", "qemu:dirty"], &[]),
    ] {
        assert_eq!(named(list, Some("mon"), queries), (found.to_vec(), Contexts::default()), "{queries:?}");
        let without: Vec<_> = found.iter().filter(|(_, name)| name.starts_with("base")).cloned().collect();
        assert_eq!(named(list, None, queries).0, without, "{queries:?}");
    }
    let both = ["base:allocation", "qemu:dirty-bitmap:mon"];
    let numbered = [(ALLOCATION_CONTEXT_ID, both[0].to_owned()), (DIRTY_CONTEXT_ID, both[1].to_owned())];
    let (allocation, dirty) = (true, true);
    assert_eq!(named(set, Some("mon"), &both), (numbered.to_vec(), Contexts { allocation, dirty }));
    assert_eq!(named(set, Some("mon"), &both[1..]).1, Contexts { allocation: false, dirty });
    let other = Contexts { allocation, dirty: false };
    assert_eq!(named(set, Some("tue"), &both), (numbered[..1].to_vec(), other));
    assert_eq!(named(set, Some("mon"), &["qemu:dirty-bitmap:", "base:"]), (vec![], Contexts::default()));
}

/// Our client against our server, with both directions cut as `cuts` say.
fn converse(wish: Wish, cuts: &[usize]) -> (client::Step, Step) {
    let mut cuts = cuts.iter().copied().cycle();
    let mut client = client::Handshake::new(wish);
    let mut server = Handshake::new();
    let (mut to_client, mut to_server) = (Handshake::greeting().to_vec(), Vec::new());
    let (mut client_end, mut server_end) = (client::Step::More, Step::More);
    for _ in 0..100_000 {
        let cut = cuts.next().unwrap().min(to_client.len());
        if cut > 0 && client_end == client::Step::More {
            let (used, step) = client.feed(&to_client[..cut], &mut to_server);
            to_client.drain(..used);
            client_end = step;
        }
        let cut = cuts.next().unwrap().min(to_server.len());
        if cut > 0 && server_end == Step::More {
            let (used, step) = server.feed(&to_server[..cut], &mut to_client);
            to_server.drain(..used);
            server_end = match step {
                Step::Lookup(name) => server.answer((name != "nobody").then(offer).as_ref(), &mut to_client),
                other => other,
            };
        }
        let over = client_end != client::Step::More && (server_end != Step::More || to_server.is_empty());
        if over {
            break;
        }
    }
    (client_end, server_end)
}

proptest! {
    #[test]
    fn client_and_server_agree_however_the_bytes_are_cut(
        extended_headers: bool,
        structured_replies: bool,
        allocation: bool,
        known: bool,
        cuts in prop::collection::vec(1usize..64, 1..8),
    ) {
        let name = if known { "data/vm1" } else { "nobody" };
        let wish = Wish { name: name.to_owned(), extended_headers, structured_replies, allocation };
        let (client_end, server_end) = converse(wish, &cuts);
        if !known {
            let error = client::HandshakeError::UnknownExport("nobody".to_owned());
            prop_assert_eq!(client_end, client::Step::Failed(error));
            return Ok(());
        }
        let framing = match (extended_headers, structured_replies) {
            (true, _) => Framing::Extended,
            (false, true) => Framing::Structured,
            (false, false) => Framing::Simple,
        };
        let allocation = allocation && framing != Framing::Simple;
        let contexts = Contexts { allocation, dirty: false };
        prop_assert_eq!(server_end, Step::Ready(Agreement { framing, contexts }));
        let client::Step::Ready(connected) = client_end else {
            panic!("{client_end:?}");
        };
        prop_assert_eq!(connected.framing, framing);
        prop_assert_eq!(connected.size, offer().size);
        prop_assert_eq!(connected.flags.has(ExportFlags::DF), framing != Framing::Simple);
        prop_assert_eq!(connected.allocation, allocation.then_some(ALLOCATION_CONTEXT_ID));
        prop_assert_eq!(connected.description.as_deref(), Some("a volume"));
    }

    /// CODEC1.
    #[test]
    fn garbage_never_panics_and_is_never_kept(
        mut input in prop::collection::vec(any::<u8>(), 0..300),
        options in prop::collection::vec((0u32..13, prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        piece in 1usize..50,
    ) {
        let mut orderly = flags();
        options.iter().for_each(|(option, data)| put_option(*option, data, &mut orderly));
        orderly.append(&mut input);
        let (output, end, left) = run(&orderly, piece);
        prop_assert!(end != Step::More || left == 0);
        prop_assert!(output.len() < 10_000);
        let whole = run(&orderly, usize::MAX);
        prop_assert_eq!((output, end), (whole.0, whole.1), "CODEC3");
    }
}

/// The header of an option that announces `length` bytes.
fn announced(option: u32, length: u32) -> Vec<u8> {
    let mut input = flags();
    input.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    input.extend_from_slice(&option.to_be_bytes());
    input.extend_from_slice(&length.to_be_bytes());
    input
}

#[test]
fn an_option_that_is_too_long_is_refused_before_its_data_come() {
    for (length, closes) in [(70_000, false), (wire::OPTION_SKIP_MAX, false), (u32::MAX, true)] {
        let (output, end, _) = run(&announced(option::INFO, length), 1);
        assert_eq!(kinds(&output), [(option::INFO, reply::ERR_TOO_BIG)], "SERVER3: {length}");
        assert_eq!(matches!(end, Step::Close(CloseReason::Malformed(_))), closes, "SERVER3: {length}");
    }
}

#[test]
fn a_refused_export_is_answered_with_the_reason_and_another_may_be_asked_for() {
    for (option, data, refusal) in [
        (option::GO, go("data/vm1"), Some(reply::ERR_POLICY)),
        (option::INFO, go("data/vm1"), Some(reply::ERR_POLICY)),
        (option::EXPORT_NAME, b"data/vm1".to_vec(), None),
    ] {
        let mut input = flags();
        put_option(option, &data, &mut input);
        let (mut handshake, mut output) = (Handshake::new(), Vec::new());
        assert!(matches!(handshake.feed(&input, &mut output).1, Step::Lookup(_)));
        assert_eq!(handshake.wants_export(), option != option::INFO);
        let step = handshake.refuse("all places are taken", &mut output);
        match refusal {
            Some(kind) => {
                assert_eq!((step, kinds(&output)), (Step::More, vec![(option, kind)]));
                assert!(output.ends_with(b"all places are taken"));
            }
            None => assert_eq!(step, Step::Close(CloseReason::Refused)),
        }
    }
}

#[test]
fn nothing_of_an_export_is_said_before_encryption_where_that_is_required() {
    let asked = [
        (option::LIST, vec![]),
        (option::INFO, go("data/vm1")),
        (option::GO, go("data/vm1")),
        (option::STRUCTURED_REPLY, vec![]),
        (option::EXTENDED_HEADERS, vec![]),
        (option::SET_META_CONTEXT, vec![0; 8]),
        (99, vec![1]),
    ];
    let mut input = flags();
    asked.iter().for_each(|(option, data)| put_option(*option, data, &mut input));
    put_option(option::STARTTLS, &[1], &mut input);
    put_option(option::STARTTLS, &[], &mut input);
    put_option(option::GO, &go("data/vm1"), &mut input);
    let behind = wire::OPTION_HEADER_LENGTH + go("data/vm1").len();
    for piece in [1, 7, usize::MAX] {
        let (output, end, left) = go_on(&mut Handshake::encrypted(), &input, piece);
        let mut expected: Vec<_> = asked.iter().map(|(option, _)| (*option, reply::ERR_TLS_REQD)).collect();
        expected.extend([(option::STARTTLS, reply::ERR_INVALID), (option::STARTTLS, reply::ACK)]);
        assert_eq!(kinds(&output), expected, "SERVER5");
        assert_eq!((end, left), (Step::StartTls, behind), "SERVER5: what is behind stays with the owner");
    }
    for (option, reason) in
        [(option::EXPORT_NAME, CloseReason::Unencrypted), (option::ABORT, CloseReason::Aborted)]
    {
        let mut input = flags();
        put_option(option, b"", &mut input);
        assert_eq!(go_on(&mut Handshake::encrypted(), &input, 3).1, Step::Close(reason), "SERVER5");
    }
}

#[test]
fn what_was_agreed_before_encryption_is_agreed_again() {
    let mut handshake = Handshake::encrypted();
    let mut input = flags();
    put_option(option::STARTTLS, &[], &mut input);
    assert_eq!(go_on(&mut handshake, &input, usize::MAX).1, Step::StartTls);
    // As if a change of the code had let a client agree on it before.
    let mut fooled = Handshake { framing: Framing::Structured, ..Handshake::encrypted() };
    fooled.chosen = Some(("data/vm1".to_owned(), Contexts { allocation: true, dirty: true }));
    assert_eq!(go_on(&mut fooled, &input, usize::MAX).1, Step::StartTls);
    for handshake in [&mut handshake, &mut fooled] {
        let mut input = Vec::new();
        put_option(option::STARTTLS, &[], &mut input);
        put_option(option::SET_META_CONTEXT, &[0; 8], &mut input);
        put_option(option::GO, &go("data/vm1"), &mut input);
        let (output, end, _) = go_on(handshake, &input, usize::MAX);
        let expected = [
            (option::STARTTLS, reply::ERR_INVALID),
            (option::SET_META_CONTEXT, reply::ERR_INVALID),
            (option::GO, reply::INFO),
            (option::GO, reply::INFO),
            (option::GO, reply::ACK),
        ];
        assert_eq!(kinds(&output), expected, "SERVER5");
        assert_eq!(
            end,
            Step::Ready(Agreement { framing: Framing::Simple, contexts: Contexts::default() }),
            "SERVER5"
        );
    }
}
