//! Whether bytes are all zero.

/// What is compared at once: the C library's comparison takes 16 bytes or more a step, a loop with an early end takes one.
const ZEROS: [u8; 4096] = [0; 4096];

/// Whether all `bytes` are zero; of none it is true.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_not_zero_is_found_wherever_it_is() {
        for length in [0, 1, 511, 4095, 4096, 4097, 3 * 4096 + 17] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes), "{length}");
            for at in [0, length / 2, length.saturating_sub(1)].into_iter().filter(|at| *at < length) {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{length}: {at}");
                bytes[at] = 0;
            }
        }
    }
}
