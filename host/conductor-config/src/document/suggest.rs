//! Suggestions of the most similar name.

/// Returns the most similar name, if it is similar enough to be meant.
pub(crate) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wrong = wrong.to_lowercase().replace('_', "-");
    names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wrong, &name.to_lowercase()), name))
        .filter(|&(distance, name)| distance <= (name.chars().count() / 3).max(1))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// Returns `` did you mean `x`? `` or, without a similar name, the list of all.
pub(crate) fn help<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str> + Clone) -> Option<String> {
    if let Some(name) = nearest(wrong, names.clone()) {
        return Some(format!("did you mean `{name}`?"));
    }
    match names.clone().into_iter().count() {
        0 => None,
        1 => Some(format!("there is only {}", list(names))),
        _ => Some(format!("there are {}", list(names))),
    }
}

/// Returns `` `a`, `b` and `c` ``.
pub(crate) fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["listen", "admin-listen", "url"];
        assert_eq!(nearest("lisen", names), Some("listen"));
        assert_eq!(nearest("admin_listen", names), Some("admin-listen"));
        assert_eq!(nearest("uri", names), Some("url"));
        assert_eq!(nearest("zebra", names), None);
        assert_eq!(
            help("zebra", names).as_deref(),
            Some("there are `listen`, `admin-listen` and `url`")
        );
    }
}
