//! Messages beside the bytes that `nbd-client` and `genl` send for the same, and answers of the kernel.

use super::*;

const PARAMETERS: Parameters = Parameters {
    size: 0x4000_0000,
    block_size: 512,
    flags: 0x012d,
    timeout: 5,
    dead_connection_timeout: 600,
};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    digits.chunks(2).map(|pair| byte(pair).expect("two digits")).collect()
}

#[test]
fn the_family_is_asked_by_its_name() {
    let wanted = "1c000000 1000 0500 00000000 00000000 03 01 0000  0800 0200 6e626400";
    assert_eq!(family(), bytes(wanted), "NETLINK1");
}

#[test]
fn a_device_is_connected_with_all_that_it_is_to_be_like() {
    let wanted = "80000000 1d00 0500 00000000 00000000 01 01 0000
        0800 0100 03000000
        0c00 0200 0000004000000000
        0c00 0300 0002000000000000
        0c00 0400 0500000000000000
        0c00 0500 2d01000000000000
        0c00 0800 5802000000000000
        1c00 0780  0c00 0180 0800 0100 09000000  0c00 0180 0800 0100 0b000000
        0c00 0a00 76617276 653a6100";
    assert_eq!(connect(0x1d, 3, &PARAMETERS, &[9, 11], "varve:a"), bytes(wanted), "NETLINK1");
}

#[test]
fn changes_name_the_device_and_whose_it_is() {
    let socket = "38000000 1d00 0500 00000000 00000000 03 01 0000
        0800 0100 03000000  1000 0780 0c00 0180 0800 0100 09000000  0c00 0a00 76617276 653a6100";
    assert_eq!(replace_socket(0x1d, 3, 9, "varve:a"), bytes(socket));
    let size = "40000000 1d00 0500 00000000 00000000 03 01 0000
        0800 0100 03000000  0c00 0200 0000004000000000  0c00 0300 0002000000000000  0900 0a00 61626364 00000000";
    assert_eq!(resize(0x1d, 3, &PARAMETERS, "abcd"), bytes(size), "NETLINK1: padded to 4");
    let end = "1c000000 1d00 0500 00000000 00000000 02 01 0000  0800 0100 03000000";
    assert_eq!(disconnect(0x1d, 3), bytes(end));
}

#[test]
fn answers_of_the_kernel_are_read() {
    // The family with its name before its number, then the end of the request, in one datagram.
    let family = "24000000 1000 0000 00000000 00000000 01 02 0000  0800 0200 6e626400  0600 0100 1d00 0000";
    let done = "24000000 0200 0000 00000000 00000000 00000000 1c000000 10000500 00000000 00000000";
    let both = [bytes(family), bytes(done)].concat();
    assert_eq!(answers(&both), [Answer::Family(0x1d), Answer::Ended(Ok(()))]);
    let busy = "24000000 0200 0000 00000000 00000000 f0ffffff 1c000000 1d000500 00000000 00000000";
    assert_eq!(answers(&bytes(busy)), [Answer::Ended(Err(Errno::BUSY))]);
    let connected = "1c000000 1d00 0000 00000000 00000000 01 01 0000  0800 0100 03000000";
    assert_eq!(answers(&bytes(connected)), [Answer::Other]);
}

#[test]
fn what_is_cut_short_ends_the_reading() {
    let family =
        bytes("24000000 1000 0000 00000000 00000000 01 02 0000  0800 0200 6e626400  0600 0100 1d00 0000");
    for length in 0..family.len() {
        assert_eq!(answers(&family[..length]), [], "NETLINK2: {length} bytes");
    }
    for (at, value) in [(0, 0), (0, 15), (0, 255), (20, 0), (20, 3), (20, 200), (28, 3)] {
        let mut broken = family.clone();
        broken[at] = value;
        let found = answers(&broken);
        assert!(found.iter().all(|answer| *answer == Answer::Other), "NETLINK2: {at} {value}: {found:?}");
    }
}
