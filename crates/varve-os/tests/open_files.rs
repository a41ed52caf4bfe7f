//! A process that is started with a low limit of open files uses what its hard limit allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn as_many_files_may_be_open_as_the_hard_limit_allows() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).expect("it may be lowered");
    varve_os::raise_open_files_limit();
    assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    let opened: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null")).collect();
    assert!(opened.iter().all(Result::is_ok));
}
