//! What the file takes and refuses, and the file that is shipped.

use super::*;
use std::fmt::Write;

/// Where the file that is shipped is kept.
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/varve.toml");
/// What the file that is shipped shows of options that have no default, or one that depends on the host.
const EXAMPLES: [(&str, &str); 9] = [
    ("metrics", "\"127.0.0.1:7701\""),
    ("http", "\"127.0.0.1:7700\""),
    ("image-dir", "[\"/srv/images\"]"),
    ("insecure", "false"),
    ("shards", "4"),
    ("socket", "\"/run/varve/varve.sock\""),
    ("socket-group", "\"varve\""),
    ("socket-mode", "\"0660\""),
    ("state", "\"/var/lib/varve\""),
];
const HEAD: &str = "\
# How `varve daemon` starts; read by a daemon of root, or with --config FILE.
#
# Each key is an option of `varve daemon` without its dashes, and what stands here is its default or an example. An option on the command
# line wins. `varve daemon --check-config` shows what is in force, and by what. A change holds from the next start of the daemon on.
";

fn lines_of(words: &str) -> String {
    let mut text = String::from("#");
    let mut length = 1;
    for word in words.split_whitespace() {
        if length + 1 + word.len() > 130 {
            text.push_str("\n#");
            length = 1;
        }
        text.push(' ');
        text.push_str(word);
        length += 1 + word.len();
    }
    text
}

/// Which words an option takes, or in which unit its number is, as a sentence.
fn taken(option: &Arg) -> String {
    let value = option.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
    let words: Vec<String> =
        option.get_possible_values().iter().map(|value| format!("{:?}", value.get_name())).collect();
    match (option.get_action(), value.as_deref()) {
        (ArgAction::Set, Some(unit @ ("SECONDS" | "MINUTES"))) => {
            format!(" A number of {}.", unit.to_lowercase())
        }
        (ArgAction::Set, Some("MIB")) => " A number of MiB.".to_owned(),
        (ArgAction::Set, Some(value)) if value.contains('|') => format!(" {}.", value.replace('|', " or ")),
        (ArgAction::Set, _) if !words.is_empty() => format!(" One of {}.", words.join(", ")),
        _ => String::new(),
    }
}

/// The file that is shipped: the help and the default of each option.
fn shipped() -> String {
    let mut text = HEAD.to_owned();
    for (name, option) in keys(&daemon_command()) {
        let default = option.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        let value = match EXAMPLES.iter().find(|(key, _)| *key == name) {
            Some((_, example)) => (*example).to_owned(),
            None => {
                let default = default.unwrap_or_else(|| panic!("{name} has no default: give it an example"));
                default.parse::<i64>().map_or_else(|_| format!("{default:?}"), |number| number.to_string())
            }
        };
        let help = option.get_help().expect("every option has help").to_string();
        let help = format!("{}.{}", help.trim_end_matches('.'), taken(option));
        writeln!(text, "\n{}\n#{name} = {value}", lines_of(&help)).expect("it is in memory");
    }
    text
}

fn parsed(text: &str) -> Result<ConfigFile, Failure> {
    parse(Path::new("varve.toml"), text)
}

#[test]
fn the_file_that_is_shipped_shows_every_option_and_all_of_it_is_valid() {
    let rendered = shipped();
    if std::env::var_os("VARVE_UPDATE_DOCS").is_some() {
        std::fs::write(SHIPPED, &rendered).expect("a writable tree");
    }
    let written = std::fs::read_to_string(SHIPPED).expect("contrib/varve.toml");
    assert!(
        written == rendered,
        "contrib/varve.toml is old: VARVE_UPDATE_DOCS=1 cargo test --workspace --bins -- shipped"
    );
    assert_eq!(parsed(&written).expect("comments are valid").entries, [], "as shipped it changes nothing");
    // Each key made one that is in force.
    let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let shown: Vec<&str> = written.lines().filter(is_key).map(|line| &line[1..]).collect();
    let command = daemon_command();
    let names: Vec<&str> = keys(&command).map(|(name, _)| name).collect();
    let keys_shown: Vec<&str> = shown.iter().filter_map(|line| line.split(" = ").next()).collect();
    assert_eq!(keys_shown, names, "CONFIG1");
    assert!(
        names.contains(&"memory-mib") && names.contains(&"socket") && !names.contains(&"config"),
        "{names:?}"
    );
    let file =
        parsed(&shown.join("\n")).map_err(|failure| failure.to_string()).expect("what is shown is taken");
    assert_eq!(file.entries.len(), names.len());
    let of = |id: &str| file.entries.iter().find(|entry| entry.id == id).expect("it is shown");
    assert_eq!(of("memory_mib").words, ["--memory-mib=64"]);
    assert_eq!(of("image_dirs").words, ["--image-dir=/srv/images"]);
    assert!(of("insecure").words.is_empty(), "false is what the command line says by silence");
}

#[test]
fn keys_are_the_words_of_the_command_line_in_the_order_of_the_file() {
    let file = parsed(
        "stop-timeout = 0x1f\n\n# why\ninsecure = true\nimage-dir = [\"/a b\", \"/c\"]\ncache = 'buffered'\n",
    )
    .expect("valid");
    let words: Vec<(usize, Vec<String>)> = file
        .entries
        .iter()
        .map(|entry| {
            (entry.line, entry.words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
        })
        .collect();
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        words,
        [
            (1, owned(&["--stop-timeout=31"])),
            (4, owned(&["--insecure"])),
            (5, owned(&["--image-dir=/a b", "--image-dir=/c"])),
            (6, owned(&["--cache=buffered"])),
        ]
    );
}

#[test]
fn what_is_wrong_is_named_with_its_file_line_and_key_and_the_nearest_key() {
    for (text, message, help) in [
        ("\nmemory-mb = 64", "varve.toml:2: there is no key \"memory-mb\"", "the nearest one is memory-mib;"),
        ("memory_mib = 64", "varve.toml:1: there is no key \"memory_mib\"", "the nearest one is memory-mib;"),
        ("sockt = 'a'", "varve.toml:1: there is no key \"sockt\"", "the nearest one is socket;"),
        ("xyzzy = 1", "varve.toml:1: there is no key \"xyzzy\"", "the keys are the options"),
        ("jso = true", "varve.toml:1: there is no key \"jso\"", "the keys are the options"),
        ("config = 'x'", "varve.toml:1: there is no key \"config\"", "the keys are the options"),
        ("[daemon]\nshards = 2", "varve.toml:1: there is no key \"daemon\"", "the keys are the options"),
        ("a = 1\n# x\n\n\nmemory-mib = 2", "varve.toml:1: there is no key \"a\"", ""),
        (
            "# x\n\n\nmemory-mib = 2",
            "varve.toml:4: memory-mib: \"2\": 2 is not in 4..=65536",
            "--memory-mib <MIB>",
        ),
        ("shards = 'many'", "varve.toml:1: shards: \"many\": invalid digit", "--shards <N>"),
        ("io = 'rings'", "varve.toml:1: io: \"rings\" is none of: ring, pool, auto", "--io <IO>"),
        ("http = 'here'", "varve.toml:1: http: \"here\": invalid socket address", "--http <HOST:PORT>"),
        (
            "socket-mode = 660.5",
            "varve.toml:1: socket-mode is a number with a fraction, and a text",
            "--socket-mode",
        ),
        ("insecure = 'yes'", "varve.toml:1: insecure is a text, and true or false is wanted", "--insecure"),
        (
            "image-dir = '/a'",
            "varve.toml:1: image-dir is a text, and a list of texts is wanted",
            "--image-dir",
        ),
        (
            "image-dir = [['/a']]",
            "varve.toml:1: image-dir is a list, and a list of texts is wanted",
            "--image-dir",
        ),
        ("shards = [2]", "varve.toml:1: shards is a list, and a text or a number is wanted", "--shards <N>"),
        ("state = ''", "varve.toml:1: state: ", "--state <DIR>"),
        ("shards = 2\nshards = 3", "varve.toml:2: duplicate key", "lines of the form KEY = VALUE"),
        ("shards = 2\nstate = /var", "varve.toml:2: ", "lines of the form KEY = VALUE"),
    ] {
        let refused = parsed(text).expect_err(text);
        assert_eq!(refused.code, Code::BadConfig, "{text}: {refused}");
        assert!(refused.message.starts_with(message), "{text}: {refused}");
        assert!(refused.help.contains(help), "{text}: {refused}");
    }
}
