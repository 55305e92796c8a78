//! Checking arguments against a schema, as far as both sides can say what is wrong.

use std::fmt::{self, Write as _};

use serde_json::Value;

/// Most places that are named at once.
const MOST_PROBLEMS: usize = 8;

/// What does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misfit(Vec<(String, String)>);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (path, problem)) in self.0.iter().enumerate() {
            let semicolon = if at == 0 { "" } else { "; " };
            let place = if path.is_empty() { "the whole".to_owned() } else { format!("`{path}`") };
            write!(f, "{semicolon}{place} {problem}")?;
        }
        Ok(())
    }
}

/// Checks a value against a schema. What the schema says beyond the words that are known here is not looked at.
///
/// # Errors
/// The places that do not fit, as JSON pointers, with what is wrong.
pub(crate) fn check(schema: &Value, value: &Value) -> Result<(), Misfit> {
    let mut problems = Vec::new();
    let mut open = vec![(schema, value, String::new())];
    while let Some((schema, value, path)) = open.pop() {
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
        let mut wrong = |problem: String| problems.push((path.clone(), problem));
        if *schema == Value::Bool(false) {
            wrong("is not known".to_owned());
            continue;
        }
        if let Some(expected) = schema.get("type").filter(|types| !admits(types, value)) {
            wrong(format!("must be {}, not {}", types(expected), kind(value)));
            continue;
        }
        if let Some(expected) = schema.get("const").filter(|expected| *expected != value) {
            wrong(format!("must be {expected}"));
        }
        if let Some(allowed) = schema.get("enum").and_then(Value::as_array).filter(|allowed| !allowed.contains(value)) {
            wrong(format!("must be one of {}", allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")));
        }
        bounds(schema, value, &mut wrong);
        alternatives(schema, value, &path, &mut open, &mut wrong);
        match value {
            Value::Object(_) => properties(schema, value, &path, &mut open, &mut problems),
            Value::Array(items) => {
                if let Some(each) = schema.get("items") {
                    open.extend(items.iter().enumerate().rev().map(|(at, item)| (each, item, format!("{path}/{at}"))));
                }
            }
            _ => {}
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Misfit(problems)) }
}

/// A word for a bound, what holds within it, and how it is said.
type Bound = (&'static str, fn(f64, f64) -> bool, &'static str);

type Open<'a> = Vec<(&'a Value, &'a Value, String)>;

fn properties<'a>(schema: &'a Value, value: &'a Value, path: &str, open: &mut Open<'a>, problems: &mut Vec<(String, String)>) {
    let Some(found) = value.as_object() else { return };
    let known = schema.get("properties").and_then(Value::as_object);
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !found.contains_key(name) {
            problems.push((step(path, name), "is missing".to_owned()));
        }
    }
    // The last is looked at first.
    for (name, value) in found.iter().rev() {
        let each = known.and_then(|known| known.get(name)).or_else(|| schema.get("additionalProperties"));
        open.extend(each.map(|each| (each, value, step(path, name))));
    }
}

/// Goes on with the alternative that is meant, where its type tells.
fn alternatives<'a>(schema: &'a Value, value: &'a Value, path: &str, open: &mut Open<'a>, wrong: &mut impl FnMut(String)) {
    for all in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        open.push((all, value, path.to_owned()));
    }
    for word in ["anyOf", "oneOf"] {
        let Some(branches) = schema.get(word).and_then(Value::as_array) else { continue };
        let fits = |branch: &&Value| {
            branch.get("type").is_none_or(|types| admits(types, value))
                && branch.get("const").is_none_or(|one| one == value)
                && branch.get("enum").and_then(Value::as_array).is_none_or(|several| several.contains(value))
        };
        let mut meant = branches.iter().filter(fits);
        match (meant.next(), meant.next()) {
            (None, _) => wrong(format!("must be one of the alternatives, which {} is not", kind(value))),
            (Some(only), None) => open.push((only, value, path.to_owned())),
            // Which of them, the tool tells.
            (Some(_), Some(_)) => {}
        }
    }
}

fn bounds(schema: &Value, value: &Value, wrong: &mut impl FnMut(String)) {
    let bound = |word: &str| schema.get(word).and_then(Value::as_f64);
    let (size, least, most, of) = match value {
        Value::String(text) => (text.chars().count(), "minLength", "maxLength", "characters"),
        Value::Array(items) => (items.len(), "minItems", "maxItems", "items"),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            let checks: [Bound; 4] = [
                ("minimum", |number, bound| number >= bound, "at least"),
                ("maximum", |number, bound| number <= bound, "at most"),
                ("exclusiveMinimum", |number, bound| number > bound, "more than"),
                ("exclusiveMaximum", |number, bound| number < bound, "less than"),
            ];
            for (word, holds, says) in checks {
                if let Some(bound) = bound(word).filter(|bound| !holds(number, *bound)) {
                    wrong(format!("must be {says} {bound}"));
                }
            }
            return;
        }
        _ => return,
    };
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let count = |word: &str| schema.get(word).and_then(Value::as_u64);
    if let Some(least) = count(least).filter(|least| size < *least) {
        wrong(format!("must have at least {least} {of}"));
    }
    if let Some(most) = count(most).filter(|most| size > *most) {
        wrong(format!("must have at most {most} {of}"));
    }
}

fn admits(types: &Value, value: &Value) -> bool {
    let admits = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        // A word of a later time.
        _ => true,
    };
    match types {
        Value::String(name) => admits(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(admits),
        _ => true,
    }
}

fn types(expected: &Value) -> String {
    match expected {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        other => other.to_string(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Goes one step further down a JSON pointer.
fn step(path: &str, name: &str) -> String {
    let mut path = format!("{path}/");
    for c in name.chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            '~' => path.write_str("~0"),
            '/' => path.write_str("~1"),
            c => path.write_char(c),
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_place_that_does_not_fit_is_named() {
        let object = json!({"type": "object", "properties": {"a/b": {"type": "integer", "minimum": 1}, "c": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2}}, "required": ["a/b"], "additionalProperties": false});
        let person = json!({"anyOf": [{"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}, {"type": "null"}]});
        for (schema, value, expected) in [
            (&object, json!({"a/b": 1, "c": ["x"]}), ""),
            (&object, json!("a/b"), "the whole must be object, not string"),
            (&object, json!({}), "`/a~1b` is missing"),
            (&object, json!({"a/b": "1"}), "`/a~1b` must be integer, not string"),
            (&object, json!({"a/b": 1.5}), "`/a~1b` must be integer, not number"),
            (&object, json!({"a/b": 2.0}), ""),
            (&object, json!({"a/b": 0}), "`/a~1b` must be at least 1"),
            (&object, json!({"a/b": 1, "c": ["x", "z", "y"]}), "`/c` must have at most 2 items; `/c/1` must be one of \"x\", \"y\""),
            (&object, json!({"a/b": 1, "d": null}), "`/d` is not known"),
            (&person, json!(null), ""),
            (&person, json!({"name": ""}), "`/name` must have at least 1 characters"),
            (&person, json!({}), "`/name` is missing"),
            (&person, json!(3), "the whole must be one of the alternatives, which number is not"),
            (&json!({"type": ["string", "null"], "const": "a"}), json!("b"), "the whole must be \"a\""),
            (&json!({"type": ["string", "null"]}), json!(1), "the whole must be string or null, not number"),
            (&json!({"allOf": [{"exclusiveMaximum": 3}, {"minimum": 9}]}), json!(3), "the whole must be at least 9; the whole must be less than 3"),
            (&json!({"additionalProperties": {"type": "boolean"}}), json!({"any": 1}), "`/any` must be boolean, not number"),
            (&json!({"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]}), json!({}), ""),
            (&json!(true), json!({"a": 1}), ""),
        ] {
            let found = check(schema, &value).map_or_else(|misfit| misfit.to_string(), |()| String::new());
            assert_eq!(found, expected, "{schema} {value}");
        }
    }

    #[test]
    fn a_flood_of_mistakes_is_cut_off_and_depth_costs_no_stack() {
        let many: Vec<Value> = (0..1_000).map(|_| json!(1)).collect();
        let misfit = check(&json!({"items": {"type": "string"}}), &many.into()).unwrap_err();
        assert_eq!(misfit.0.len(), MOST_PROBLEMS);
        let (mut schema, mut value) = (json!({"type": "string"}), json!(1));
        for _ in 0..10_000 {
            schema = Value::Object([("items".to_owned(), schema)].into_iter().collect());
            value = Value::Array(vec![value]);
        }
        let deep = check(&schema, &value).is_err();
        // Dropping them would take the stack that checking does not.
        std::mem::forget((schema, value));
        assert!(deep);
    }
}
