//! One event as one line of text.

use std::fmt;
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Bytes of a message or a field at most: servers and annotations of users have their say in them.
const TEXT_BYTES: usize = 4 << 10;

/// The parts of an event, in the order in which a line shows them.
pub(super) struct Line {
    level: Level,
    target: &'static str,
    /// `file.rs:12`, or `folder/mod.rs:12`.
    place: String,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Line {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let file = metadata.file().map_or("unknown", name_of);
        let mut fields = Fields::default();
        event.record(&mut fields);
        Self {
            level: *metadata.level(),
            target: metadata.target(),
            place: format!("{file}:{}", metadata.line().unwrap_or(0)),
            message: fields.take_message(),
            fields: fields.0,
        }
    }

    /// Adds the fields of a span around the event, but for those that the event, or a span within, has itself.
    pub(super) fn inherit(&mut self, span: &Fields) {
        for (name, value) in &span.0 {
            if self.fields.iter().all(|(known, _)| known != name) {
                self.fields.push((name, value.clone()));
            }
        }
    }

    /// klog's text form: level letter, `MMDD HH:MM:SS.uuuuuu`, pid in 7 columns, place.
    pub(super) fn klog(&self, time: SystemTime, pid: u32) -> String {
        let letter = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let date = OffsetDateTime::from(time);
        format!(
            "{letter}{:02}{:02} {} {pid:>7} {}] {}\n",
            u8::from(date.month()),
            date.day(),
            clock(date),
            self.place,
            self.text()
        )
    }

    pub(super) fn plain(&self, program: &str) -> String {
        let kind = if self.level == Level::WARN {
            "warning: "
        } else {
            ""
        };
        format!("{program}: {kind}{}\n", self.text())
    }

    pub(super) fn json(&self, time: SystemTime) -> String {
        let date = OffsetDateTime::from(time);
        let mut object = Map::new();
        for (name, value) in &self.fields {
            object.insert((*name).to_owned(), value.clone());
        }
        // Last, so that no field can take the place of these.
        let stamp = format!("{}T{}Z", date.date(), clock(date));
        object.insert("time".to_owned(), json!(stamp));
        object.insert(
            "level".to_owned(),
            json!(self.level.as_str().to_ascii_lowercase()),
        );
        object.insert("target".to_owned(), json!(self.target));
        object.insert("place".to_owned(), json!(self.place));
        object.insert("message".to_owned(), json!(self.message));
        format!("{}\n", printable::json(&Value::Object(object).to_string()))
    }

    /// The message, then ` key=value` for each field.
    fn text(&self) -> String {
        // Text of a server must not be able to forge a line, or to turn one around.
        let mut text = printable::text(&self.message).into_owned();
        for (name, value) in &self.fields {
            text.push(' ');
            text.push_str(name);
            text.push('=');
            match value {
                Value::String(value) if is_bare(value) => text.push_str(value),
                // Quotes and escapes of JSON.
                value => text.push_str(&printable::json(&value.to_string())),
            }
        }
        text
    }
}

/// The fields of an event or a span.
#[derive(Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// A field that was there is replaced: spans may learn of theirs later.
    fn add(&mut self, field: &Field, value: Value) {
        let value = match value {
            Value::String(text) if text.len() > TEXT_BYTES => shortened(&text).into(),
            value => value,
        };
        self.0.retain(|(name, _)| *name != field.name());
        self.0.push((field.name(), value));
    }

    fn take_message(&mut self) -> String {
        let message = self.0.extract_if(.., |(name, _)| *name == "message").next();
        match message {
            Some((_, Value::String(message))) => message,
            _ => String::new(),
        }
    }
}

/// The name of a file, with its folder where the name alone tells nothing: many folders have one of these.
fn name_of(path: &str) -> &str {
    let behind_slash = |nth| {
        let slash = path.rmatch_indices('/').nth(nth);
        slash.and_then(|(at, _)| path.get(at + 1..)).unwrap_or(path)
    };
    match behind_slash(0) {
        "lib.rs" | "main.rs" | "mod.rs" => behind_slash(1),
        name => name,
    }
}

/// The time of day, to the microsecond.
fn clock(date: OffsetDateTime) -> String {
    let (hour, minute, second, microsecond) = date.to_hms_micro();
    format!("{hour:02}:{minute:02}:{second:02}.{microsecond:06}")
}

/// The beginning of a long text, and how long it was.
fn shortened(text: &str) -> String {
    let mut ends = (0..=TEXT_BYTES).rev();
    let beginning = ends.find_map(|end| text.get(..end)).unwrap_or_default();
    format!("{beginning}… ({} bytes in all)", text.len())
}

/// True for a value that needs no quotes to be told from what follows it.
fn is_bare(value: &str) -> bool {
    !value.is_empty()
        && !value
            .contains(|c: char| c.is_whitespace() || !printable::is_printable(c) || matches!(c, '"' | '='))
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, json!(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, json!(format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn line(level: Level, message: &str, fields: Vec<(&'static str, Value)>) -> Line {
        let place = "transfer.rs:383".to_owned();
        Line {
            level,
            target: "daemon",
            place,
            message: message.to_owned(),
            fields,
        }
    }

    fn moment() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_759_112_034) + Duration::from_micros(319_027)
    }

    #[test]
    fn klog_lines_have_the_exact_shape() {
        for (level, letter) in [
            (Level::ERROR, 'E'),
            (Level::WARN, 'W'),
            (Level::INFO, 'I'),
            (Level::DEBUG, 'I'),
            (Level::TRACE, 'I'),
        ] {
            assert_eq!(
                line(level, "msg", vec![("bytes", json!(7))]).klog(moment(), 1),
                format!("{letter}0929 02:13:54.319027       1 transfer.rs:383] msg bytes=7\n")
            );
        }
        assert!(
            line(Level::INFO, "msg", vec![])
                .klog(moment(), 1_234_567)
                .contains(".319027 1234567 transfer")
        );
    }

    #[test]
    fn a_file_whose_name_tells_nothing_is_named_with_its_folder() {
        for (path, name) in [
            ("crates/program/src/logging/line.rs", "line.rs"),
            ("crates/program/src/logging/mod.rs", "logging/mod.rs"),
            ("/build/poller/src/lib.rs", "src/lib.rs"),
            ("src/main.rs", "src/main.rs"),
            ("mod.rs", "mod.rs"),
        ] {
            assert_eq!(name_of(path), name, "{path}");
        }
    }

    #[test]
    fn known_moments() {
        // Seconds as `date -u -d … +%s` prints them.
        for (seconds, stamp) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_164_799, "2024-02-28T23:59:59"),
            (1_709_251_200, "2024-03-01T00:00:00"),
            (1_759_112_034, "2025-09-29T02:13:54"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(319_027);
            let text = line(Level::INFO, "m", vec![]).json(time);
            let object: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(object["time"], format!("{stamp}.319027Z"));
        }
    }

    #[test]
    fn plain_lines_begin_with_the_program() {
        let fields = || vec![("attempt", json!(2)), ("ok", json!(false))];
        let program = "cdi-importer";
        assert_eq!(
            line(Level::INFO, "trying again", fields()).plain(program),
            "cdi-importer: trying again attempt=2 ok=false\n"
        );
        assert_eq!(
            line(Level::WARN, "odd", vec![]).plain(program),
            "cdi-importer: warning: odd\n"
        );
    }

    #[test]
    fn values_are_quoted_where_they_would_be_ambiguous() {
        let fields = vec![
            ("a", json!("bare/value")),
            ("b", json!("two words")),
            ("c", json!("")),
            ("d", json!("x=\"y\"\n")),
        ];
        assert_eq!(
            line(Level::INFO, "m", fields).plain("p"),
            "p: m a=bare/value b=\"two words\" c=\"\" d=\"x=\\\"y\\\"\\n\"\n"
        );
    }

    #[test]
    fn a_message_cannot_begin_a_line_of_its_own() {
        let text = line(Level::INFO, "not found\nE0929 forged\u{1b}[2J", vec![]).plain("p");
        assert_eq!(text, "p: not found\\nE0929 forged\\u{1b}[2J\n");
    }

    #[test]
    fn a_long_text_is_cut_between_letters_and_says_so() {
        let text = format!("{}äö", "x".repeat(TEXT_BYTES - 1));
        let shown = format!("{}… (4099 bytes in all)", "x".repeat(TEXT_BYTES - 1));
        assert_eq!(shortened(&text), shown);
    }

    #[test]
    fn no_text_is_turned_around() {
        let name = "\u{202e}gpj\u{2028}";
        let line = || line(Level::INFO, name, vec![("n", json!(name))]);
        assert_eq!(
            line().plain("p"),
            "p: \\u{202e}gpj\\u{2028} n=\"\\u202egpj\\u2028\"\n"
        );
        let json = line().json(moment());
        assert!(json.is_ascii(), "{json}");
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(object["n"], name);
    }

    #[test]
    fn json_lines_hold_everything_and_fields_cannot_replace_the_message() {
        let fields = vec![
            ("bytes", json!(7)),
            ("level", json!("forged")),
            ("time", json!("forged")),
        ];
        let text = line(Level::INFO, "a\nb", fields).json(moment());
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "time": "2025-09-29T02:13:54.319027Z",
                "level": "info",
                "target": "daemon",
                "place": "transfer.rs:383",
                "message": "a\nb",
                "bytes": 7,
            })
        );
    }
}
