//! The `params` of a delegate: JSON whose strings are templates.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::template::Template;

/// A JSON value with names in its strings. Keys are never templates.
///
/// ```
/// use std::borrow::Cow;
/// use greenroom::program::{Template, ValueTemplate};
/// use serde_json::json;
/// let params = ValueTemplate::List(vec![ValueTemplate::Text(Template::parse("for {who}")), ValueTemplate::Fixed(json!(3))]);
/// let filled = params.render(&|name| (name == "who").then_some(Cow::Borrowed("Ann")));
/// assert_eq!(filled, json!(["for Ann", 3]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum ValueTemplate {
    /// A number or a boolean.
    Fixed(Value),
    /// A string.
    Text(Template),
    /// An array.
    List(Vec<ValueTemplate>),
    /// A table.
    Table(BTreeMap<String, ValueTemplate>),
}

impl ValueTemplate {
    /// Fills in the names of every string, as [`Template::render`] does. A string stays a string
    /// even when its value reads like a number.
    pub fn render<'v>(&self, lookup: &dyn Fn(&str) -> Option<Cow<'v, str>>) -> Value {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(lookup)),
            Self::List(items) => items.iter().map(|item| item.render(lookup)).collect(),
            Self::Table(entries) => entries.iter().map(|(key, value)| (key.clone(), value.render(lookup))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_at_every_level_are_filled_in() {
        let params = ValueTemplate::Table(BTreeMap::from([
            ("n".to_owned(), ValueTemplate::Fixed(json!(3))),
            ("files".to_owned(), ValueTemplate::List(vec![ValueTemplate::Text(Template::parse("{file}.txt"))])),
        ]));
        let value = params.render(&|_| Some("12".into()));
        assert_eq!(value, json!({"n": 3, "files": ["12.txt"]}));
    }
}
