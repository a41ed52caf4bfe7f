//! Messages come as they went, and nothing else comes.

use super::*;
use crate::Decoder;
use proptest::prelude::*;

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::READ), Just(Access::WRITE), Just(Access::BOTH)]
}

fn place() -> impl Strategy<Value = Place> {
    let from = prop_oneof![Just(None), (0..256_u32, any::<u64>()).prop_map(Some)];
    prop_oneof![
        (any::<u32>(), any::<u64>()).prop_map(|(device, offset)| Place::Data { device, offset }),
        Just(Place::Zero),
        Just(Place::Error),
        (any::<u32>(), any::<u64>(), from).prop_map(|(device, offset, from)| Place::Copy {
            device,
            offset,
            from
        }),
    ]
}

fn extent() -> impl Strategy<Value = Extent> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>());
    (numbers, place(), access(), any::<bool>(), any::<bool>()).prop_map(
        |((offset, length, expiry_ms), place, access, once, notify)| Extent {
            offset,
            length,
            place,
            access,
            once,
            notify,
            expiry_ms,
        },
    )
}

fn to_mapper() -> impl Strategy<Value = ToMapper> {
    let device = (any::<u64>(), any::<bool>(), "[a-z/]{0,20}")
        .prop_map(|(size, is_writable, name)| GivenDevice { size, is_writable, name });
    let hello = ("[a-zé/]{0,20}", any::<u64>(), 0..16_u32, any::<u32>(), prop::collection::vec(device, 0..4));
    let hello = hello.prop_map(|(volume, size, power, held, devices)| {
        ToMapper::Hello(Hello { volume, size, block_size: 1 << power, held, devices })
    });
    let range = || (any::<u64>(), any::<u64>(), any::<bool>());
    prop_oneof![
        hello,
        prop::collection::vec(extent(), 0..5).prop_map(ToMapper::Held),
        range().prop_map(|(offset, length, write)| {
            ToMapper::Map { offset, length, intent: if write { Intent::Write } else { Intent::Read } }
        }),
        Just(ToMapper::Flush),
        range().prop_map(|(offset, length, _)| ToMapper::Trim { offset, length }),
        Just(ToMapper::Invalidated),
        range().prop_map(|(offset, length, _)| ToMapper::Durable { offset, length }),
        range().prop_map(|(offset, length, _)| ToMapper::Failed { offset, length }),
    ]
}

fn to_engine() -> impl Strategy<Value = ToEngine> {
    let status = || prop_oneof![Just(Status::Done), Just(Status::Failed)];
    prop_oneof![
        (any::<bool>(), any::<bool>(), 0..32_u32).prop_map(|(is_persistent, keeps_answers, power)| {
            let trim_unit = if power == 0 { 0 } else { 1 << power };
            ToEngine::Welcome(Welcome { is_persistent, keeps_answers, trim_unit })
        }),
        (any::<u32>(), any::<bool>())
            .prop_map(|(number, is_writable)| ToEngine::Device { number, is_writable }),
        prop::collection::vec(extent(), 0..5).prop_map(ToEngine::Mapped),
        (any::<u64>(), any::<u64>(), access()).prop_map(|(offset, length, access)| ToEngine::Invalidate {
            offset,
            length,
            access
        }),
        status().prop_map(ToEngine::Flushed),
        status().prop_map(ToEngine::Trimmed),
    ]
}

/// What `bytes`, cut in two at `cut`, decode to.
fn decoded<T: Message>(bytes: &[u8], cut: usize) -> Result<Vec<Numbered<T>>, WireError> {
    let (mut decoder, mut messages) = (Decoder::default(), Vec::new());
    let (first, rest) = bytes.split_at(cut % (bytes.len() + 1));
    for part in [first, rest] {
        decoder.push(part);
        while let Some(message) = decoder.take()? {
            messages.push(message);
        }
    }
    Ok(messages)
}

fn round_trip<T: Message + Clone + PartialEq + std::fmt::Debug>(messages: &[T], cut: usize) {
    let numbered = |(id, message): (usize, &T)| Numbered { id: id as u64, message: message.clone() };
    let expected: Vec<_> = messages.iter().enumerate().map(numbered).collect();
    let mut bytes = Vec::new();
    expected.iter().for_each(|numbered| numbered.message.encode(numbered.id, &mut bytes));
    assert_eq!(decoded(&bytes, cut).as_ref(), Ok(&expected), "WIRE1");
}

proptest! {
    #[test]
    fn messages_of_the_engine_come_as_they_went(messages in prop::collection::vec(to_mapper(), 0..4), cut in any::<usize>()) {
        round_trip(&messages, cut);
    }

    #[test]
    fn messages_of_the_mapper_come_as_they_went(messages in prop::collection::vec(to_engine(), 0..4), cut in any::<usize>()) {
        round_trip(&messages, cut);
    }

    #[test]
    fn bytes_that_decode_are_those_that_the_message_has(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 60..75_u16) {
        if let Ok(message) = ToEngine::decode(kind, &bytes) {
            let mut again = Vec::new();
            message.encode(0, &mut again);
            prop_assert_eq!(&again[HEADER_LENGTH..], &bytes[..], "WIRE2");
        }
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let mut bytes = Vec::new();
    let map = ToMapper::Map { offset: 0x1000, length: 0x2000, intent: Intent::Write };
    map.encode(7, &mut bytes);
    let expected = [
        &[3, 0, 0, 0, 24, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &[0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(bytes, expected.concat());
    bytes.clear();
    let copy = Place::Copy { device: 2, offset: 0x30000, from: Some((1, 0x1000)) };
    let extent = Extent { notify: true, expiry_ms: 9, ..Extent::new(0x1000, 0x2000, copy) };
    ToEngine::Mapped(vec![extent]).encode(7, &mut bytes);
    let expected = [
        &[67, 0, 0, 0, 56, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0][..],
        &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0],
        &[3, 3, 2, 0, 9, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 1, 0, 0, 0],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn bytes_that_no_message_has_are_refused() {
    let mut good = Vec::new();
    ToEngine::Flushed(Status::Done).encode(1, &mut good);
    let refused = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        decoded::<ToEngine>(&bytes, 0).expect_err("WIRE2")
    };
    assert_eq!(refused(0, 99), WireError::Kind(99));
    assert_eq!(refused(2, 1), WireError::Field { kind: 69, field: "reserved" });
    assert_eq!(refused(4, 7), WireError::Length { kind: 69, length: 7 });
    assert_eq!(refused(6, 1), WireError::Length { kind: 69, length: 65_544 });
    assert_eq!(refused(16, 3), WireError::Field { kind: 69, field: "status" });
}
