//! A hostile NBD client: options, then requests, in pieces of any size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_nbd::server::{Agreement, Handshake, Listed, Offer, Step, Terms};
use varve_nbd::{BlockSizes, ExportFlags, Request};

const SIZE: u64 = 1 << 33;

fn offer() -> Offer {
    Offer {
        size: SIZE,
        flags: ExportFlags(0xffff),
        block_sizes: BlockSizes::default(),
        name: "data/home".to_owned(),
        description: "a volume".to_owned(),
        changed_since: Some("monday".into()),
    }
}

/// The owner's part of one step; the end of the handshake, if this is it.
fn answer(handshake: &mut Handshake, step: Step, output: &mut Vec<u8>) -> Option<Option<Agreement>> {
    let mut step = step;
    loop {
        step = match step {
            Step::More => return None,
            Step::Lookup(name) => {
                let known = name.is_empty() || name == "data/home";
                handshake.answer(known.then(offer).as_ref(), output)
            }
            Step::List => {
                let listed = Listed { name: "data/home".to_owned(), description: String::new() };
                handshake.answer_list(&[listed], output)
            }
            Step::Ready(agreement) => return Some(Some(agreement)),
            Step::StartTls => return None, // What follows is what the owner has decrypted.
            Step::Close(_) => return Some(None),
        };
    }
}

/// Feeds all of `input` in pieces of at most `piece` bytes; says how much was taken, what was said, and the end. TLS is required, or not
/// offered.
fn handshake(input: &[u8], piece: usize, is_encrypted: bool) -> (usize, Vec<u8>, Option<Agreement>) {
    let mut handshake = if is_encrypted { Handshake::encrypted() } else { Handshake::new() };
    let mut output = Vec::new();
    let mut used = 0;
    let mut end = piece.min(input.len());
    loop {
        let (taken, step) = handshake.feed(&input[used..end], &mut output);
        used += taken;
        let asked = !matches!(step, Step::More);
        if let Some(agreement) = answer(&mut handshake, step, &mut output) {
            return (used, output, agreement);
        }
        if !asked && taken == 0 {
            if end == input.len() {
                return (used, output, None);
            }
            end = (end + piece).min(input.len());
        }
    }
}

fn requests(mut input: &[u8], agreement: Agreement) {
    let Agreement { framing, contexts } = agreement;
    let flags = ExportFlags(0xffff).without(ExportFlags::READ_ONLY);
    let terms = Terms { size: SIZE, flags, block_sizes: BlockSizes::default(), framing, contexts };
    while let Ok(Some(request)) = Request::decode(framing, input) {
        if let Ok(head) = request.encode(framing) {
            assert!(!head.is_empty());
        }
        if terms.check(&request).is_ok() {
            let end = request.offset.checked_add(request.length);
            assert!(
                request.offset == 0
                    || end.is_some_and(|end| end <= SIZE)
                    || request.command == varve_nbd::Command::Disconnect
            );
        }
        let length = framing.request_length() as u64;
        let Some(next) = length.checked_add(request.payload_length(framing)) else { return };
        let Some(rest) = usize::try_from(next).ok().and_then(|next| input.get(next..)) else { return };
        input = rest;
    }
}

fuzz_target!(|data: &[u8]| {
    let [first, data @ ..] = data else { return };
    let (piece, is_encrypted) = (usize::from(first & 0x7f).max(1), first & 0x80 != 0);
    let (used, output, agreement) = handshake(data, usize::MAX, is_encrypted);
    let in_pieces = handshake(data, piece, is_encrypted);
    assert!(in_pieces == (used, output, agreement), "CODEC3: how input is cut changes nothing");
    if let Some(agreement) = agreement {
        requests(&data[used..], agreement);
    }
});
