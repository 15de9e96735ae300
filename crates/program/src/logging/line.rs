//! Formats one event as one log line.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::time::SystemTime;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::{LogFormat, LogOptions};
use crate::color;

/// Maximum length of a message or a field in bytes. The text may come from servers or from
/// annotations written by users, so it could be of any length.
const TEXT_BYTES: usize = 4 << 10;

/// Formats an event as one line, followed by the fields of the enclosing spans.
impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, FieldFormat> for LogOptions {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, FieldFormat>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = LogLine::from_event(event);
        for span in context.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<FieldFormat>>() {
                line.add_span_fields(fields);
            }
        }
        writer.write_str(&match self.format {
            LogFormat::Klog => line.klog_line(SystemTime::now(), std::process::id()),
            LogFormat::Plain => line.plain_line(self.program, color::PLAIN_WARNING),
            LogFormat::Colored => line.plain_line(self.program, color::WARNING),
            LogFormat::Json => line.json_line(SystemTime::now()),
        })
    }
}

/// Formats the fields of a span, which tracing-subscriber stores as text: one `key=JSON` per line.
pub(super) struct FieldFormat;

impl<'writer> FormatFields<'writer> for FieldFormat {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut recorded = LogFields::default();
        fields.record(&mut recorded);
        recorded.shown.iter().try_for_each(|(name, value)| writeln!(writer, "{name}={value}"))
    }
}

/// The parts of an event in the order in which a line shows them.
struct LogLine {
    level: Level,
    /// The source location, such as `file.rs:12` or `folder/mod.rs:12`.
    place: String,
    fields: LogFields,
}

impl LogLine {
    fn from_event(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let file = metadata.file().map_or("unknown", name_of);
        let mut fields = LogFields::default();
        event.record(&mut fields);
        Self {
            level: *metadata.level(),
            place: format!("{file}:{}", metadata.line().unwrap_or(0)),
            fields,
        }
    }

    /// Adds the fields of an enclosing span, except those that the event or an inner span has
    /// already set.
    fn add_span_fields(&mut self, span: &str) {
        let shown = &mut self.fields.shown;
        // tracing-subscriber puts a space before a field that was recorded after the others.
        for (name, value) in span.lines().filter_map(|field| field.trim_start().split_once('=')) {
            if shown.iter().all(|(known, _)| known != name) {
                shown.push((name.to_owned(), serde_json::from_str(value).unwrap_or_default()));
            }
        }
    }

    /// Formats a text line as klog does: level letter, `MMDD HH:MM:SS.uuuuuu`, pid in 7 columns,
    /// source location.
    fn klog_line(&self, time: SystemTime, pid: u32) -> String {
        let letter = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let date = OffsetDateTime::from(time);
        let (month, day) = (u8::from(date.month()), date.day());
        let (hour, minute, second, microsecond) = date.to_hms_micro();
        let clock = format!("{hour:02}:{minute:02}:{second:02}.{microsecond:06}");
        let (place, text) = (&self.place, self.message_text());
        format!("{letter}{month:02}{day:02} {clock} {pid:>7} {place}] {text}\n")
    }

    /// Formats a plain line. Warnings begin with the label `warning`.
    fn plain_line(&self, program: &str, warning: &str) -> String {
        let kind = match self.level {
            Level::WARN => warning,
            _ => "",
        };
        format!("{program}: {kind}{}\n", self.message_text())
    }

    /// Formats a JSON object with the keys of Kubernetes' JSON logs and one key for each field.
    fn json_line(&self, time: SystemTime) -> String {
        let mut object = Map::new();
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        object.insert("ts".to_owned(), since.as_secs_f64().into());
        object.insert("level".to_owned(), self.level.as_str().to_lowercase().into());
        object.insert("caller".to_owned(), self.place.as_str().into());
        object.insert("msg".to_owned(), self.fields.message.as_str().into());
        for (name, value) in &self.fields.shown {
            object.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        format!("{}\n", printable::escape_json(&Value::from(object).to_string()))
    }

    /// The message, followed by ` key=value` for each field.
    fn message_text(&self) -> String {
        // Text from a server must not be able to forge a log line or to reverse the display order
        // of its text.
        let mut text = printable::escape_text(&self.fields.message).into_owned();
        for (name, value) in &self.fields.shown {
            let shown = match value {
                Value::String(value) => quote_value(value),
                number => number.to_string().into(),
            };
            text.push_str(&format!(" {name}={shown}"));
        }
        text
    }
}

/// The fields of an event or a span.
#[derive(Default)]
struct LogFields {
    message: String,
    /// Names and values of the fields, in the order in which they were recorded.
    shown: Vec<(String, Value)>,
}

impl Visit for LogFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = shorten_text(value);
        match field.name() {
            "message" => self.message = value.into_owned(),
            name => self.shown.push((name.to_owned(), value.into())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.shown.push((field.name().to_owned(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.shown.push((field.name().to_owned(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.shown.push((field.name().to_owned(), value.into()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// Returns the file name in a path. Names that occur in many directories, such as `mod.rs`, are
/// preceded by their directory.
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

/// Truncates a long text and appends its original length.
fn shorten_text(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_BYTES {
        return text.into();
    }
    let (beginning, _) = text.split_at(text.floor_char_boundary(TEXT_BYTES));
    format!("{beginning}… ({} bytes in all)", text.len()).into()
}

/// Quotes and escapes `value` as JSON if its end would otherwise not be recognizable.
fn quote_value(value: &str) -> Cow<'_, str> {
    let is_bare =
        |c: char| !c.is_whitespace() && printable::is_printable(c) && !matches!(c, '"' | '=');
    if !value.is_empty() && value.chars().all(is_bare) {
        return value.into();
    }
    printable::escape_json(&Value::from(value).to_string()).into_owned().into()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn line(level: Level, message: &str, fields: &[(&str, &str)]) -> LogLine {
        let shown = fields.iter().map(|&(name, value)| (name.to_owned(), value.into()));
        LogLine {
            level,
            place: "transfer.rs:383".to_owned(),
            fields: LogFields { message: message.to_owned(), shown: shown.collect() },
        }
    }

    #[test]
    fn klog_lines_have_the_exact_shape() {
        // The seconds are those that `date -u -d … +%s` prints.
        for (level, seconds, pid, beginning) in [
            (Level::ERROR, 1_759_112_034, 1, "E0929 02:13:54.319027       1 "),
            (Level::WARN, 0, 1, "W0101 00:00:00.319027       1 "),
            (Level::INFO, 951_782_400, 1, "I0229 00:00:00.319027       1 "),
            (Level::DEBUG, 1_709_164_799, 1, "I0228 23:59:59.319027       1 "),
            (Level::TRACE, 4_107_542_400, 1_234_567, "I0301 00:00:00.319027 1234567 "),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(319_027);
            assert_eq!(
                line(level, "msg", &[("bytes", "7")]).klog_line(time, pid),
                format!("{beginning}transfer.rs:383] msg bytes=7\n")
            );
        }
    }

    #[test]
    fn json_lines_are_objects_that_text_cannot_break() {
        let mut odd = line(Level::WARN, "not found\n{", &[("host", "a \"b\""), ("msg", "forged")]);
        odd.fields.shown.push(("bytes".to_owned(), 7.into()));
        let time = UNIX_EPOCH + Duration::from_micros(1_759_112_034_319_027);
        let text = odd.json_line(time);
        assert_eq!(text.lines().count(), 1);
        let expected = serde_json::json!({
            "ts": 1_759_112_034.319_027, "level": "warn", "caller": "transfer.rs:383", "msg": "not found\n{",
            "host": "a \"b\"", "bytes": 7,
        });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
    }

    #[test]
    fn mod_lib_and_main_files_are_named_with_their_folder() {
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
    fn plain_lines_begin_with_the_program_and_text_cannot_break_them() {
        let name = "\u{202e}gpj\u{2028}";
        for (level, message, fields, text) in [
            (
                Level::INFO,
                "trying again",
                &[("attempt", "2"), ("ok", "false")][..],
                "trying again attempt=2 ok=false\n",
            ),
            (Level::WARN, "odd", &[], "warning: odd\n"),
            (
                Level::INFO,
                "m",
                &[("a", "bare/value"), ("b", "two words"), ("c", ""), ("d", "x=\"y\"\n")],
                "m a=bare/value b=\"two words\" c=\"\" d=\"x=\\\"y\\\"\\n\"\n",
            ),
            (Level::INFO, "a\nE0929 forged\u{1b}[2J", &[], "a\\nE0929 forged\\u{1b}[2J\n"),
            (Level::INFO, name, &[("n", name)], "\\u{202e}gpj\\u{2028} n=\"\\u202egpj\\u2028\"\n"),
        ] {
            let shown =
                line(level, message, fields).plain_line("cdi-importer", color::PLAIN_WARNING);
            assert_eq!(shown, format!("cdi-importer: {text}"));
        }
        let colored = line(Level::WARN, "odd", &[]).plain_line("p", color::WARNING);
        assert_eq!(colored, "p: \x1b[1;33mwarning:\x1b[0m odd\n");
    }

    #[test]
    fn a_long_text_is_cut_between_letters_and_says_so() {
        let text = format!("{}äö", "x".repeat(TEXT_BYTES - 1));
        let shown = format!("{}… (4099 bytes in all)", "x".repeat(TEXT_BYTES - 1));
        assert_eq!(shorten_text(&text), shown);
    }
}
