//! Reads the environment and parses its values. No other module reads the environment.
//!
//! All other code takes `&dyn NamedStrings`. Tests can therefore pass a `HashMap` and need not
//! change the environment of their process.

use std::collections::HashMap;
use std::fmt;

use crate::secret::Secret;

/// A set of named strings, for example the environment.
pub trait NamedStrings {
    /// Returns the value of `name`, or `None` if it is not set. An empty value is `Some("")`.
    fn get(&self, name: &str) -> Option<String>;

    /// Returns all variables whose name begins with `prefix`, sorted by name.
    fn with_prefix(&self, prefix: &str) -> Vec<(String, String)>;
}

/// Prefix of variables that only tests set.
const OF_TESTS: &str = "CDI_WORKERS_TEST_";

/// Set by tests that are not about measured rates.
const FIXED_PACE_VARIABLE: &str = "CDI_WORKERS_TEST_FIXED_PACE";

/// Returns true if nothing may be decided by a rate that was measured: a body is read over one
/// connection, and what may be compressed for the network is compressed. On a slow machine, a test
/// would otherwise see other decisions.
pub fn is_pace_fixed(env: &dyn NamedStrings) -> bool {
    env.get(FIXED_PACE_VARIABLE).is_some()
}

/// The environment of this process. Bytes that are not UTF-8 become U+FFFD; Kubernetes cannot set
/// such values.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessEnv;

impl NamedStrings for ProcessEnv {
    fn get(&self, name: &str) -> Option<String> {
        if !is_heard(name, cfg!(debug_assertions)) {
            return None;
        }
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn with_prefix(&self, prefix: &str) -> Vec<(String, String)> {
        let all = std::env::vars_os().map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        });
        sort_pairs(all.filter(|(name, _)| name.starts_with(prefix)))
    }
}

/// True if a build of this kind reads the variable `name`: release builds ignore the variables of
/// tests.
// Tests run as one user on one machine, but a pod has its own paths, ports and names, so tests
// change these with variables. Separate namespaces for each process would require that the test's
// servers run inside them too. Release builds, from which images are made, ignore these variables.
fn is_heard(name: &str, is_debug: bool) -> bool {
    is_debug || !name.starts_with(OF_TESTS)
}

impl NamedStrings for HashMap<String, String> {
    fn get(&self, name: &str) -> Option<String> {
        HashMap::get(self, name).cloned()
    }

    fn with_prefix(&self, prefix: &str) -> Vec<(String, String)> {
        let all = self.iter().map(|(name, value)| (name.clone(), value.clone()));
        sort_pairs(all.filter(|(name, _)| name.starts_with(prefix)))
    }
}

fn sort_pairs(pairs: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort();
    pairs
}

/// Parses a boolean in the spellings of Go's `strconv.ParseBool`, which CDI's controllers use.
pub fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("{text:?} is not a boolean: use true or false")),
    }
}

/// All invalid variables found at one start, in the order in which they were read.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentences())]
pub struct EnvErrors(Vec<(String, String)>);

impl EnvErrors {
    /// Returns the name of each invalid variable and the reason.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, reason)| (name.as_str(), reason.as_str()))
    }

    fn sentences(&self) -> String {
        let sentence = |(name, reason)| format!("environment variable {name}: {reason}");
        self.iter().map(sentence).collect::<Vec<_>>().join("; ")
    }
}

/// Reads typed variables and collects all errors. [`EnvReader::into_result`] reports them
/// together, so that one start shows every mistake.
///
/// As in Go programs, the getters treat an empty value as unset. After an error they return the
/// same value as for an unset variable. The caller discards what it built from such values,
/// because [`EnvReader::into_result`] then fails.
pub struct EnvReader<'a> {
    strings: &'a dyn NamedStrings,
    errors: EnvErrors,
}

impl<'a> EnvReader<'a> {
    /// Creates a reader of `strings` that has recorded no errors yet.
    pub fn new(strings: &'a dyn NamedStrings) -> Self {
        Self { strings, errors: EnvErrors::default() }
    }

    /// Returns the value of `name`, or `None` if it is unset or empty.
    pub fn read_text(&self, name: &str) -> Option<String> {
        self.strings.get(name).filter(|value| !value.is_empty())
    }

    /// Like [`EnvReader::read_text`], for values that must not be printed.
    pub fn read_secret(&self, name: &str) -> Option<Secret> {
        self.read_text(name).map(Secret::new)
    }

    /// Returns all variables whose name begins with `prefix`, sorted by name.
    pub fn with_prefix(&self, prefix: &str) -> Vec<(String, String)> {
        self.strings.with_prefix(prefix)
    }

    /// Parses the value of `name` with `parse`, whose error message must not repeat a secret.
    pub fn read_parsed<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.read_text(name)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.reject_variable(name, error.to_string());
                None
            }
        }
    }

    /// Like [`EnvReader::read_parsed`], but an unset variable is an error.
    pub fn read_required<T, E: fmt::Display>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if self.read_text(name).is_none() {
            self.reject_variable(name, "is not set or empty");
            return None;
        }
        self.read_parsed(name, parse)
    }

    /// Reads a boolean for which any unparsable value means `false` (`INSECURE_TLS` and similar
    /// variables).
    pub fn lenient_bool(&self, name: &str) -> bool {
        self.read_text(name).is_some_and(|text| go_bool(&text).unwrap_or(false))
    }

    /// Records that `name` is invalid. Use it for checks that involve more than one variable.
    pub fn reject_variable(&mut self, name: &str, reason: impl Into<String>) {
        self.errors.0.push((name.to_owned(), reason.into()));
    }

    /// Returns all errors so far, or `Ok` if there were none.
    pub fn into_result(self) -> Result<(), EnvErrors> {
        if self.errors.0.is_empty() { Ok(()) } else { Err(self.errors) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn go_booleans_are_exactly_the_twelve_spellings() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(go_bool(text), Ok(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(go_bool(text), Ok(false), "{text}");
        }
        for text in ["", "yes", "tRUE", " true", "on", "2"] {
            assert!(go_bool(text).unwrap_err().to_string().contains(&format!("{text:?}")));
        }
    }

    #[test]
    fn every_bad_variable_is_reported_at_once() {
        let env = map(&[("A", "maybe"), ("B", "12"), ("C", "twelve")]);
        let mut reader = EnvReader::new(&env);
        assert_eq!(reader.read_required("A", go_bool), None);
        assert_eq!(reader.read_parsed("B", str::parse::<u8>), Some(12));
        assert_eq!(reader.read_parsed("C", str::parse::<u8>), None);
        assert_eq!(reader.read_required("D", go_bool), None);
        assert_eq!(
            reader.into_result().unwrap_err().to_string(),
            "environment variable A: \"maybe\" is not a boolean: use true or false; \
             environment variable C: invalid digit found in string; \
             environment variable D: is not set or empty"
        );
    }

    #[test]
    fn empty_means_unset_and_good_values_leave_no_error() {
        let env = map(&[("EMPTY", ""), ("YES", "T"), ("ODD", "yes"), ("KEY", "hunter2")]);
        let mut reader = EnvReader::new(&env);
        assert_eq!(reader.read_text("EMPTY"), None);
        assert_eq!(reader.read_parsed("EMPTY", go_bool), None);
        assert_eq!(reader.read_required("YES", go_bool), Some(true));
        assert!(reader.lenient_bool("YES"));
        assert!(!reader.lenient_bool("ODD"));
        assert_eq!(format!("{:?}", reader.read_secret("KEY")), "Some(***)");
        assert_eq!(reader.into_result(), Ok(()));
    }

    #[test]
    fn prefix_lists_are_sorted_by_name() {
        let env = map(&[("H_2", "b"), ("H_1", "a"), ("X", "c")]);
        let expected = vec![("H_1".to_owned(), "a".to_owned()), ("H_2".to_owned(), "b".to_owned())];
        assert_eq!(env.with_prefix("H_"), expected);
    }

    #[test]
    fn only_debug_builds_read_the_variables_of_tests() {
        let of_tests = crate::paths::TEST_ROOT_VARIABLE;
        assert!(is_heard(of_tests, true) && !is_heard(of_tests, false));
        assert!(is_heard("OWNER_UID", true) && is_heard("OWNER_UID", false));
    }
}
