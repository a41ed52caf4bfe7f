//! The orders that the disk takes, and the words for them.

use std::path::PathBuf;

/// What kind of request a fault hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Reads.
    Read,
    /// Writes, zeroing and punching.
    Write,
    /// Flushes.
    Flush,
}

/// One line from the control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Requests wait; with `data_only`, questions for size and mode are answered meanwhile.
    Stall { data_only: bool },
    /// What waits goes on.
    Release,
    /// Every `every`th request of a kind fails with `errno`.
    Fail { kind: Kind, errno: i32, every: u64 },
    /// The file ends at this byte.
    Shrink(u64),
    /// The file and its content end at this byte.
    Resize(u64),
    /// The file is deleted, and stays open where it is.
    Delete,
    /// The file is called this.
    Rename(PathBuf),
    /// No place is left that was not written before.
    Full,
    /// Writes are kept in a cache until a flush.
    Volatile,
    /// Flushes are not done.
    Lie,
    /// The cache is lost.
    Drop { seed: u64 },
    /// Every fault ends.
    Heal,
    /// Tell what was asked for so far.
    Stats,
    /// End.
    Quit,
}

impl Order {
    /// The order in a line; else what is wrong with it.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word} is not a number"));
        Ok(match words.as_slice() {
            ["stall"] => Order::Stall { data_only: false },
            ["stall", "io"] => Order::Stall { data_only: true },
            ["release"] => Order::Release,
            ["fail", kind, errno] => Order::Fail { kind: kind_of(kind)?, errno: errno_of(errno)?, every: 1 },
            ["fail", kind, errno, "every", every] => {
                Order::Fail { kind: kind_of(kind)?, errno: errno_of(errno)?, every: number(every)?.max(1) }
            }
            ["shrink", bytes] => Order::Shrink(number(bytes)?),
            ["truncate" | "grow", bytes] => Order::Resize(number(bytes)?),
            ["delete"] => Order::Delete,
            ["rename", path] => Order::Rename(path.into()),
            ["full"] => Order::Full,
            ["volatile"] => Order::Volatile,
            ["lie"] => Order::Lie,
            ["drop", seed] => Order::Drop { seed: number(seed)? },
            ["heal"] => Order::Heal,
            ["stats"] => Order::Stats,
            ["quit"] => Order::Quit,
            _ => return Err(format!("there is no order '{line}'")),
        })
    }
}

fn kind_of(word: &str) -> Result<Kind, String> {
    match word {
        "read" => Ok(Kind::Read),
        "write" => Ok(Kind::Write),
        "flush" => Ok(Kind::Flush),
        _ => Err(format!("{word} is not read, write or flush")),
    }
}

fn errno_of(word: &str) -> Result<i32, String> {
    match word {
        "EIO" => Ok(libc::EIO),
        "ENOSPC" => Ok(libc::ENOSPC),
        "EINTR" => Ok(libc::EINTR),
        "EAGAIN" => Ok(libc::EAGAIN),
        _ => Err(format!("{word} is not EIO, ENOSPC, EINTR or EAGAIN")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood_or_refused() {
        assert_eq!(Order::parse("stall"), Ok(Order::Stall { data_only: false }));
        assert_eq!(
            Order::parse("fail write ENOSPC every 3"),
            Ok(Order::Fail { kind: Kind::Write, errno: libc::ENOSPC, every: 3 })
        );
        assert_eq!(Order::parse(" shrink  4096 "), Ok(Order::Shrink(4096)));
        assert_eq!(Order::parse("truncate 4096"), Ok(Order::Resize(4096)));
        assert_eq!(Order::parse("grow 8192"), Ok(Order::Resize(8192)));
        assert_eq!(Order::parse("rename /disks/b"), Ok(Order::Rename("/disks/b".into())));
        for wrong in [
            "",
            "stall all",
            "fail",
            "fail read",
            "fail erase EIO",
            "fail read EWHAT",
            "shrink x",
            "drop",
            "truncate",
            "rename",
        ] {
            assert!(Order::parse(wrong).is_err(), "{wrong}");
        }
    }
}
