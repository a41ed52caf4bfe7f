//! The text of a volume group, as a person may have left it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use varve_format::text::Description;

fuzz_target!(|text: &str| {
    if let Ok(description) = Description::decode(text) {
        assert_eq!(description.check(), Ok(()));
        let again = Description::decode(&description.encode());
        assert_eq!(again.as_ref(), Ok(&description), "what is written can be read");
    }
});
