//! What the whole parser does with right, wrong and arbitrary texts.

mod any_text;
mod mistakes;
mod reading;

use std::path::Path;

use crate::program::error::ProgramErrors;
use crate::program::file::Program;

/// A program that has one of everything.
const STORY: &str = include_str!("story.toml");

fn parse(text: &str) -> Result<Program, ProgramErrors> {
    Program::parse(text, "p.toml", Path::new("/base"))
}
