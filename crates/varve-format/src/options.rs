//! The words of the options that a group's text declares, for engines, plans and tables: each option is defined once, in
//! `text.rs`.

use crate::text::{CachePolicy, Discards, MetadataOrder, OverCommit, WhenFull};

macro_rules! words {
    ($($option:ident { $($variant:ident = $word:literal),* })*) => {
        $(impl $option {
            /// All that there are.
            pub const ALL: [$option; [$($word),*].len()] = [$($option::$variant),*];

            /// The word that stands for it in the text.
            pub const fn word(self) -> &'static str {
                match self { $($option::$variant => $word,)* }
            }
        })*

        #[test]
        fn words_are_those_of_the_text() {
            use serde::de::IntoDeserializer;
            use serde::de::value::{Error, StrDeserializer};
            use serde::Deserialize;
            $(for option in $option::ALL {
                let word: StrDeserializer<'_, Error> = option.word().into_deserializer();
                assert_eq!($option::deserialize(word), Ok(option));
            })*
        }
    };
}

words! {
    CachePolicy { RoundRobin = "round-robin", Fifo = "fifo", Lru = "lru", Sieve = "sieve" }
    MetadataOrder { Logged = "logged", WriteThrough = "write-through" }
    WhenFull { Pause = "pause", DropOldest = "drop-oldest", Error = "error" }
    Discards { Ignore = "ignore", Keep = "keep", PassDown = "pass-down" }
    OverCommit { Allow = "allow", Forbid = "forbid" }
}
