//! Replay: the records of a log are read to its end, what they lead to is claimed, and then they are applied.
//!
//! Invariants:
//! - REPLAY1. A record is begun when the one before it is durable, so only the last one can be torn by a crash. A damaged
//!   record with a later one behind it was durable once, and what it said was promised: then nothing is replayed.
//! - REPLAY2. What all records lead to is claimed before the first one is applied: what applying writes must not take its
//!   place.
//! - REPLAY3. Records are applied in the order in which they were written.

/// What is where a log goes on.
pub(crate) enum Next<R> {
    /// The record that should.
    Record(R),
    /// Something that can be no record of this log: the log ends here.
    End,
    /// What may have been a record: one that a crash has torn, or damage.
    Damaged,
}

/// How the reading of a log ended.
pub(crate) enum End<E> {
    Clean,
    /// As [`Next::Damaged`].
    Damaged,
    /// What comes next cannot be read.
    Failed(E),
}

/// An engine's log, and what the engine does with a record.
pub(crate) trait Log {
    type Record;
    type Error;

    /// What is behind the records `before`.
    async fn next(&self, before: &[Self::Record]) -> Result<Next<Self::Record>, Self::Error>;

    /// Whether a record is behind the one that follows `before` and is damaged (REPLAY1).
    async fn goes_on(&self, before: &[Self::Record]) -> Result<bool, Self::Error>;

    /// What a log is refused with that goes on behind a damaged record.
    fn damaged(&self) -> Self::Error;

    /// Whether the last record is whole with all that was written beside it and only its checksums vouch for.
    async fn is_whole(&self, _last: &Self::Record) -> Result<bool, Self::Error> {
        Ok(true)
    }

    /// Marks what a record leads to as in use.
    async fn claim(&self, record: &Self::Record) -> Result<(), Self::Error>;

    /// Makes the changes of a record again.
    async fn apply(&mut self, record: Self::Record) -> Result<(), Self::Error>;
}

/// The records up to the first that is missing, damaged or cannot be read.
pub(crate) async fn read_as_far<L: Log>(log: &L) -> (Vec<L::Record>, End<L::Error>) {
    let mut records = Vec::new();
    let end = loop {
        match log.next(&records).await {
            Ok(Next::Record(record)) => records.push(record),
            Ok(Next::End) => break End::Clean,
            Ok(Next::Damaged) => break End::Damaged,
            Err(error) => break End::Failed(error),
        }
    };
    (records, end)
}

/// Reads the log to its end and applies it.
pub(crate) async fn replay<L: Log>(log: &mut L) -> Result<(), L::Error> {
    let (mut records, end) = read_as_far(log).await;
    match end {
        End::Failed(error) => return Err(error),
        End::Damaged if log.goes_on(&records).await? => return Err(log.damaged()), // REPLAY1
        End::Clean | End::Damaged => {}
    }
    if let Some(last) = records.pop()
        && log.is_whole(&last).await?
    {
        records.push(last);
    }
    for record in &records {
        log.claim(record).await?; // REPLAY2
    }
    for record in records {
        log.apply(record).await?; // REPLAY3
    }
    Ok(())
}
