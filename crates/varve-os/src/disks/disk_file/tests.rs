//! Tests of opening disks.

use super::*;
use tempfile::TempDir;

/// A directory on the file system of the build, which knows direct I/O.
fn directory() -> TempDir {
    tempfile::tempdir_in(crate::tests::build_directory()).expect("a directory")
}

fn buffered() -> DiskOptions {
    DiskOptions { cache: CacheMode::Buffered, ..DiskOptions::default() }
}

#[test]
fn a_created_disk_is_sparse_direct_and_has_sectors() {
    let directory = directory();
    let path = directory.path().join("disk");
    let disk = DiskFile::open(&path, DiskOptions::create(1 << 30)).expect("created");
    assert_eq!(disk.size(), 1 << 30);
    assert_eq!(disk.kind(), DiskKind::File);
    assert_eq!(std::fs::metadata(&path).expect("there").blocks(), 0);
    let shape = disk.shape();
    match disk.cache_mode() {
        CacheMode::Direct => assert!(shape.block_size >= 512 && shape.optimal_size >= shape.block_size),
        CacheMode::Buffered => assert_eq!(shape.block_size, 1),
    }
    drop(disk);
    assert!(matches!(DiskFile::open(&path, DiskOptions::create(1)), Err(OpenError::Exists(_))));
}

#[test]
fn memory_file_systems_are_used_buffered_and_say_so() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let disk = DiskFile::open(directory.path().join("disk"), DiskOptions::create(1 << 20)).expect("created");
    assert_eq!(disk.cache_mode(), CacheMode::Buffered);
    assert!(disk.in_memory && disk.shape().discard);
}

#[test]
fn a_disk_is_used_once_but_may_be_looked_at() {
    let directory = directory();
    let path = directory.path().join("disk");
    let disk = DiskFile::open(&path, DiskOptions::create(1 << 20)).expect("created");
    let again = DiskFile::open(&path, DiskOptions::default()).expect_err("DISKFILE1");
    assert!(matches!(again, OpenError::InUse(_)), "{again}");
    assert!(again.to_string().contains("in use; stop"), "names the remedy: {again}");
    let reader = DiskOptions { read_only: true, ..DiskOptions::default() };
    assert!(matches!(DiskFile::open(&path, reader), Err(OpenError::InUse(_))));
    let probe = DiskFile::open(&path, DiskOptions::probe()).expect("looking takes no lock");
    assert_eq!(probe.shape().access, Access::ReadOnly);
    drop(disk);
    let one = DiskFile::open(&path, reader).expect("free again");
    let two = DiskFile::open(&path, reader).expect("readers share");
    assert!(matches!(DiskFile::open(&path, buffered()), Err(OpenError::InUse(_))));
    drop((one, two));
    DiskFile::open(&path, buffered()).expect("free again");
}

#[test]
fn what_is_no_disk_gets_its_own_error() {
    let directory = directory();
    let missing = directory.path().join("missing");
    assert!(matches!(DiskFile::open(&missing, DiskOptions::default()), Err(OpenError::NotFound(_))));
    assert!(matches!(DiskFile::open(directory.path(), DiskOptions::default()), Err(OpenError::NotADisk(_))));
    assert!(matches!(DiskFile::open("/dev/null", DiskOptions::default()), Err(OpenError::NotADisk(_))));
    let small = directory.path().join("small");
    std::fs::write(&small, [0; 100]).expect("written");
    let options = DiskOptions { size_min: 1 << 20, ..DiskOptions::default() };
    let error = DiskFile::open(&small, options).expect_err("too small");
    assert!(matches!(error, OpenError::TooSmall { size_min: 1_048_576, .. }), "{error}");
}

#[test]
fn a_ragged_end_is_cut_off_and_files_grow() {
    let directory = directory();
    let path = directory.path().join("disk");
    std::fs::write(&path, vec![0; 10_000]).expect("written");
    let disk = DiskFile::open(&path, DiskOptions::default()).expect("opened");
    assert_eq!(disk.size() % u64::from(disk.sector_logical()), 0);
    assert!(disk.size() <= 10_000 && disk.size() > 4096);
    let before = disk.shape();
    assert_eq!(disk.grow(1 << 20).expect("grown"), 1 << 20);
    assert!(before.size < disk.shape().size);
    assert_eq!(disk.grow(4096).expect("never shrinks"), 1 << 20);
}
