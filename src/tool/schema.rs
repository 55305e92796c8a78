//! Schemas of arguments, made from types.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value};

/// Returns the schema of a tool's arguments: one object, whole in itself, without a title, that takes no other properties unless the type says so.
///
/// The comments on the fields are what the model is told of them.
///
/// ```
/// use greenroom::tool::schema_of;
/// use serde_json::json;
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Place {
///     /// The name of a city.
///     city: String,
/// }
/// let schema = schema_of::<Place>();
/// assert_eq!(schema["properties"], json!({"city": {"type": "string", "description": "The name of a city."}}));
/// assert_eq!((&schema["required"], &schema["additionalProperties"]), (&json!(["city"]), &json!(false)));
/// ```
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Value::Object(root) = &mut schema {
        for word in ["title", "description"] {
            root.remove(word);
        }
        if root.get("type").and_then(Value::as_str) == Some("object") {
            root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
            root.entry("additionalProperties").or_insert(Value::Bool(false));
        }
    }
    schema
}
