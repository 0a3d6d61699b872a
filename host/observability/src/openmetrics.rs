//! OpenMetrics page: what the encoder wrote, with the units of its families and the exemplars of its buckets.

use crate::exemplars::{BucketCursor, ExemplarBook};

/// Units that the name of a family may end in.
const UNITS: [&str; 3] = ["seconds", "bytes", "ratio"];

/// Returns an encoder's page with units and exemplars.
#[must_use]
pub fn openmetrics_page(encoded: &str, book: &ExemplarBook) -> String {
    let exemplars = book.read();
    let mut cursor = BucketCursor::default();
    let mut page = String::with_capacity(encoded.len() + encoded.len() / 8);
    let mut lines = encoded.lines().peekable();
    while let Some(line) = lines.next() {
        page.push_str(line);
        if !line.starts_with('#') {
            exemplars.add(line, &mut cursor, &mut page);
        }
        page.push('\n');
        let is_stated = lines.peek().is_some_and(|next| next.starts_with("# UNIT "));
        if let Some((name, unit)) = unit_of(line).filter(|_| !is_stated) {
            page.extend(["# UNIT ", name, " ", unit, "\n"]);
        }
    }
    page
}

/// Returns the name and the unit of a family, at the line of its type.
fn unit_of(line: &str) -> Option<(&str, &'static str)> {
    let (name, _) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
    let (_, last) = name.rsplit_once('_')?;
    let unit = UNITS.into_iter().find(|unit| *unit == last)?;
    Some((name, unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain_text;

    #[test]
    fn families_whose_names_end_in_a_unit_state_it() {
        let encoded = "# HELP wait_seconds Wait.\n# TYPE wait_seconds gauge\nwait_seconds 1\n\
             # HELP own_seconds Own.\n# TYPE own_seconds gauge\n# UNIT own_seconds seconds\nown_seconds 1\n\
             # HELP seconds_ago Age.\n# TYPE seconds_ago gauge\nseconds_ago 1\n# EOF\n";
        let page = openmetrics_page(encoded, &ExemplarBook::default());
        let units: Vec<_> = page.lines().filter(|line| line.starts_with("# UNIT")).collect();
        assert_eq!(
            units,
            ["# UNIT wait_seconds seconds", "# UNIT own_seconds seconds"]
        );
        assert!(page.ends_with("# EOF\n"));
        assert!(!plain_text(&page).contains("# UNIT"));
    }
}
