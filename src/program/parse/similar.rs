//! What was meant: the known name that is closest to a mistyped one.

/// How many letters may be wrong.
const MOST_EDITS: usize = 2;

/// Returns the known name nearest to `found`, the first of equals, if at most two letters
/// differ and something of the word is left.
pub(super) fn nearest<'k>(found: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .map(|name| (edits(found, name), name))
        .filter(|(edits, name)| *edits <= MOST_EDITS && *edits < name.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Returns "; did you mean `x`?" or nothing.
pub(super) fn did_you_mean<'k>(found: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(found, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// The Levenshtein distance in Unicode scalars.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = Vec::with_capacity(row.len());
        next.push(left);
        for (b, &above) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(a != *b)).min(left + 1).min(above + 1);
            diagonal = above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_letters() {
        for (a, b, expected) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("root", "rot", 1), ("délai", "delai", 1), ("kitten", "sitting", 3)] {
            assert_eq!(edits(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_short_word_is_not_guessed_from_nothing() {
        assert_eq!(nearest("rot", ["label", "root"]), Some("root"));
        assert_eq!(nearest("xy", ["as", "to"]), None);
        assert_eq!(nearest("shell", ["say", "send"]), None);
    }
}
