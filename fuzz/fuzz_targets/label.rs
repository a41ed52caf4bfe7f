//! A label of any content: damaged as it comes, and with a checksum that makes it look whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::label::{LABEL_VERSION, LAYOUT};
use varve_format::{LABEL_ADDRESSES, Label};
use varve_fuzz::{block, field, seal};

fuzz_target!(|data: &[u8]| {
    let mut block = block(&LAYOUT, data);
    for address in LABEL_ADDRESSES {
        let _ = Label::decode(&block, address);
    }
    // Labels are only ever looked for in two places.
    let address = LABEL_ADDRESSES[data.len() % 2];
    field(&LAYOUT, "address").put_u64(&mut block, address);
    seal(&LAYOUT, &mut block);
    if let Ok(label) = Label::decode(&block, address) {
        assert_eq!(label.check(), Ok(()));
        // One of an older version is written in this one's form.
        field(&LAYOUT, "version").put_u32(&mut block, LABEL_VERSION);
        seal(&LAYOUT, &mut block);
        assert!(label.encode(address) == block, "one label has one form");
    }
});
