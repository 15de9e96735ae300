//! Text of others, as it may be shown in an answer or in a log.

/// What a server says, as one line of `most` characters at most: any white space in it is one space, characters that move a cursor
/// are shown by their number, and `…` stands for the rest.
pub fn line(words: &str, most: usize) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let whole = words.join(" ");
    let mut shown = String::new();
    for (index, c) in whole.chars().enumerate() {
        if index == most {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_and_short() {
        assert_eq!(
            line(" It\r\n does\tnot  go\u{1b}[2J. ", 99),
            r"It does not go\u{1b}[2J."
        );
        assert_eq!(line("äö", 2), "äö");
        assert_eq!(line("äöü", 2), "äö…");
        assert_eq!(line("a b", 2), "a …");
    }
}
