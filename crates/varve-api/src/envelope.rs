//! The wrapping of every answer: a schema name, and data or an error.

use crate::code::{Code, Exit};
use crate::nouns::Plan;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of all that this crate describes. It changes when a field changes its meaning or goes away, not when
/// one is added.
pub const SCHEMA: &str = "varve.v1";

/// What a command or a request failed with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// Which error, for programs and for `varve explain`.
    pub code: Code,
    /// What happened, in one sentence for people.
    pub message: String,
    /// The command or the step that mends it; empty if there is none.
    #[serde(default)]
    pub help: String,
}

impl Failure {
    /// An error whose remedy is what `varve explain` tells of its code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: format!("varve explain {code}") }
    }

    /// The same error with the remedy `help`; an empty one changes nothing.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        if !help.is_empty() {
            self.help = help;
        }
        self
    }

    /// The same error under another code; a remedy that only explains the code follows it.
    #[must_use]
    pub fn with_code(self, code: Code) -> Self {
        let general = Self::new(code, String::new()).help;
        let is_general = self.help == Self::new(self.code, String::new()).help;
        Self { code, help: if is_general { general } else { self.help }, ..self }
    }

    /// The same error, with names in the remedy where the component that failed knows only identities: `subject` is the volume,
    /// snapshot, pool or group that it was about, `pool` the pool in which that is, or itself.
    #[must_use]
    pub fn about(self, subject: &str, pool: Option<&str>) -> Self {
        let group = subject.split('/').next().unwrap_or_default();
        let snapshot = if subject.contains('@') { subject.to_owned() } else { format!("{subject}@SNAP") };
        let volume = subject.split('@').next().unwrap_or_default();
        let noun = if pool == Some(subject) { "pool" } else { "lv" };
        let named = [
            ("VG/LV@SNAP", snapshot.as_str()),
            ("varve lv activate VG/LV", &format!("varve {noun} activate {volume}")),
            ("varve lv show VG/LV", &format!("varve {noun} show {volume}")),
            ("VG/LV", volume),
            ("VG/POOL", pool.unwrap_or(subject)),
            ("varve vg history VG", &format!("varve vg history {group}")),
            ("varve vg restore VG", &format!("varve vg restore {group}")),
            ("varve vg reduce VG", &format!("varve vg reduce {group}")),
            ("varve vg extend VG", &format!("varve vg extend {group}")),
        ];
        let help = named.iter().fold(self.help, |help, (placeholder, name)| put_in(&help, placeholder, name));
        Self { help, ..self }
    }

    /// The exit code of a command that ends with this error.
    pub fn exit(&self) -> Exit {
        self.code.exit()
    }
}

/// `text` with `name` for each `placeholder` that is no part of a longer name.
fn put_in(text: &str, placeholder: &str, name: &str) -> String {
    let is_of_name = |next: char| next.is_alphanumeric() || "_.+-@/".contains(next);
    let mut parts = text.split(placeholder);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let is_part = all.ends_with(is_of_name) || rest.starts_with(is_of_name);
        all.push_str(if is_part { placeholder } else { name });
        all.push_str(rest);
    }
    all
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if !self.help.is_empty() {
            write!(f, "\nhelp: {}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Every answer: exactly one of `data` and `error` is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What was asked for.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub data: Option<T>,
    /// Why there is no data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
}

impl<T> Envelope<T> {
    /// Wraps an answer.
    pub fn data(data: T) -> Self {
        Self { schema: SCHEMA.to_owned(), data: Some(data), error: None }
    }

    /// Wraps an error.
    pub fn error(error: Failure) -> Self {
        Self { schema: SCHEMA.to_owned(), data: None, error: Some(error) }
    }

    /// Unwraps; an envelope of another version, or with neither, is itself an error.
    pub fn into_result(self) -> Result<T, Failure> {
        if self.schema != SCHEMA {
            let message = format!("the answer is in schema {:?}, this program speaks {SCHEMA}", self.schema);
            return Err(
                Failure::new(Code::Protocol, message).help("use the varve command that came with the daemon")
            );
        }
        match (self.data, self.error) {
            (Some(data), None) => Ok(data),
            (_, Some(error)) => Err(error),
            (None, None) => Err(Failure::new(Code::Protocol, "the answer holds neither data nor an error")),
        }
    }
}

/// The answer to a change: what it made, or with `dry_run` what it would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Changed<T> {
    /// Nothing was changed.
    Planned(Plan),
    /// It was done.
    Done(T),
}

/// The data of an answer that has nothing to tell: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Empty {}

/// The schemas of what is around an answer. Those that utoipa derives name `T` by its first word alone, so that all answers were one.
#[cfg(feature = "openapi")]
mod schemas {
    use super::{Changed, Envelope, Failure, Plan};
    use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, RefBuilder, Schema, Type};
    use utoipa::openapi::{Ref, RefOr};
    use utoipa::{PartialSchema, ToSchema};

    type Named = (String, RefOr<Schema>);

    /// What leads to `T`, which is added to the schemas by [`add`].
    fn reference<T: ToSchema>(description: &str) -> Ref {
        let location = Ref::from_schema_name(T::name()).ref_location;
        RefBuilder::new().ref_location(location).description(Some(description)).build()
    }

    fn add<T: ToSchema>(schemas: &mut Vec<Named>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }

    impl<T: ToSchema> PartialSchema for Envelope<T> {
        fn schema() -> RefOr<Schema> {
            let schema =
                ObjectBuilder::new().schema_type(Type::String).description(Some("Always [`SCHEMA`]."));
            let error = OneOfBuilder::new()
                .item(reference::<Failure>("Why there is no data."))
                .item(ObjectBuilder::new().schema_type(Type::Null));
            ObjectBuilder::new()
                .description(Some("Every answer: exactly one of `data` and `error` is there."))
                .property("schema", schema)
                .required("schema")
                .property("data", T::schema())
                .property("error", error)
                .into()
        }
    }

    impl<T: ToSchema> ToSchema for Envelope<T> {
        fn schemas(schemas: &mut Vec<Named>) {
            add::<Failure>(schemas);
            T::schemas(schemas);
        }
    }

    impl<T: ToSchema> PartialSchema for Changed<T> {
        fn schema() -> RefOr<Schema> {
            OneOfBuilder::new()
                .item(reference::<Plan>("Nothing was changed."))
                .item(T::schema())
                .description(Some(
                    "The answer to a change: what it made, or with `dry_run` what it would do.",
                ))
                .into()
        }
    }

    impl<T: ToSchema> ToSchema for Changed<T> {
        fn schemas(schemas: &mut Vec<Named>) {
            add::<Plan>(schemas);
            T::schemas(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_wrapped_as_the_contract_says() {
        let text = serde_json::to_string(&Envelope::data(Empty {})).expect("plain data");
        assert_eq!(text, r#"{"schema":"varve.v1","data":{}}"#);
        let failure = Failure::new(Code::VolumeNotFound, "no volume data/vm1").help("varve lv list");
        let text = serde_json::to_string(&Envelope::<Empty>::error(failure.clone())).expect("plain data");
        let wanted = format!(
            r#"{{"schema":"varve.v1","error":{{"code":"{}","message":"no volume data/vm1","help":"varve lv list"}}}}"#,
            Code::VolumeNotFound
        );
        assert_eq!(text, wanted);
        let back: Envelope<Empty> = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back.into_result(), Err(failure));
    }

    #[test]
    fn another_schema_is_refused() {
        let answer: Envelope<Empty> =
            serde_json::from_str(r#"{"schema":"varve.v9","data":{}}"#).expect("JSON");
        assert_eq!(answer.into_result().map_err(|failure| failure.code), Err(Code::Protocol));
        let answer: Envelope<Empty> = serde_json::from_str(r#"{"schema":"varve.v1"}"#).expect("JSON");
        assert_eq!(answer.into_result().map_err(|failure| failure.code), Err(Code::Protocol));
    }

    #[test]
    fn names_take_the_places_of_what_stands_for_them_and_of_no_other_names() {
        let about = |help: &str, subject: &str, pool: Option<&str>| {
            Failure::new(Code::Failed, "it failed").help(help).about(subject, pool).help
        };
        let help = "varve lv activate VG/LV, or varve snap release VG/LV@SNAP; varve vg extend VG PATH…";
        let named = "varve lv activate data/a, or varve snap release data/a@s; varve vg extend data PATH…";
        assert_eq!(about(help, "data/a@s", None), named);
        let of_pool = "varve pool activate data/p; varve pool extend data/p --size +SIZE";
        let help = "varve lv activate VG/LV; varve pool extend VG/POOL --size +SIZE";
        assert_eq!(about(help, "data/p", Some("data/p")), of_pool);
        for group in ["VG", "VG00", "VG/LV1", "MYVG/LV"] {
            let help = format!("varve vg extend {group} PATH…; varve lv activate {group}");
            assert_eq!(
                about(&help, "VG00/LV1", None),
                match group {
                    "VG" => "varve vg extend VG00 PATH…; varve lv activate VG",
                    _ => help.as_str(),
                }
            );
        }
    }

    #[test]
    fn people_read_the_error_and_the_remedy() {
        let failure = Failure::new(Code::Usage, "no such verb");
        let other = Failure::new(Code::VolumeUnusable, "it ends early").with_code(Code::BadOrigin);
        assert_eq!(other.to_string(), "error[V0316]: it ends early\nhelp: varve explain V0316");
        let kept = Failure::new(Code::VolumeUnusable, "it ends early").help("copy it again");
        assert_eq!(kept.with_code(Code::BadOrigin).help, "copy it again");
        let general = "error[V0002]: no such verb\nhelp: varve explain V0002";
        assert_eq!(failure.to_string(), general);
        assert_eq!(failure.clone().help("").to_string(), general);
        assert_eq!(
            failure.help("varve --help").to_string(),
            "error[V0002]: no such verb\nhelp: varve --help"
        );
    }
}
