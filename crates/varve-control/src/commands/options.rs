//! Options as the API and as a group's text have them: two definitions, for the API depends on nothing of the engine's, and one
//! conversion.

use varve_vg::model;

/// An option of the text that the API shows and takes.
pub(crate) trait ShownOption: Copy {
    type Shown;

    fn shown(self) -> Self::Shown;

    fn declared(shown: Self::Shown) -> Self;
}

macro_rules! shown {
    ($($option:ident { $($variant:ident),* })*) => {
        $(impl ShownOption for model::$option {
            type Shown = varve_api::$option;

            fn shown(self) -> Self::Shown {
                match self { $(Self::$variant => varve_api::$option::$variant,)* }
            }

            fn declared(shown: Self::Shown) -> Self {
                match shown { $(varve_api::$option::$variant => Self::$variant,)* }
            }
        })*

        #[test]
        fn the_api_and_the_text_have_the_same_words() {
            $(for option in model::$option::ALL {
                assert_eq!(option.shown().word(), option.word());
                assert_eq!(model::$option::declared(option.shown()), option);
            })*
        }
    };
}

shown! {
    CachePolicy { RoundRobin, Fifo, Lru, Sieve }
    MetadataOrder { Logged, WriteThrough }
    WhenFull { Pause, DropOldest, Error }
    Discards { Ignore, Keep, PassDown }
    OverCommit { Allow, Forbid }
}
