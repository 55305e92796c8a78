//! `greenroom man`: the manual, one page for the program and one for each verb.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use clap::{Args, Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use serde_json::json;

use super::{args::CommandLine, failure::Failure, manual, terminal::Terminal};

/// What everybody may read and nobody but the owner may write.
const MODE: u32 = 0o644;

/// Write the manual pages into a folder: one for the program and one for each verb.
///
/// Looks at no store. Pages that are there already are replaced. stdout gets their names.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  greenroom man ~/.local/share/man/man1\n  greenroom man pages && man -l pages/greenroom-run.1")]
pub(crate) struct ManArgs {
    /// The folder, made if there is none.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl ManArgs {
    /// Writes.
    pub(crate) fn execute(&self, terminal: &mut Terminal) -> Result<(), Failure> {
        let failed = |path: &Path, error: &io::Error| Failure::new("OUTPUT_FAILED", format!("{} cannot be written: {error}", path.display()));
        fs::create_dir_all(&self.dir).map_err(|error| failed(&self.dir, &error))?;
        let mut files = Vec::new();
        for (name, page) in pages() {
            let path = self.dir.join(name);
            page.and_then(|page| fs::write(&path, page))
                .and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(MODE)))
                .map_err(|error| failed(&path, &error))?;
            files.push(path.display().to_string());
        }
        if terminal.is_json() {
            return terminal.json(&json!({"files": files}));
        }
        files.iter().try_for_each(|file| terminal.line(file))
    }
}

/// Returns the pages with the names of their files.
fn pages() -> Vec<(String, io::Result<Vec<u8>>)> {
    let mut root = CommandLine::command();
    root.build();
    manual::commands(&root).into_iter().map(|(name, command)| (format!("{}.1", name.replace(' ', "-")), page(&name, command))).collect()
}

fn page(name: &str, command: &Command) -> io::Result<Vec<u8>> {
    let title = name.replace(' ', "-");
    let source = concat!("greenroom ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(title.to_uppercase()).source(source).manual("greenroom");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    let mut roff = Roff::new();
    roff.control("SH", ["NAME"]);
    // On one line, since that is what an index of manuals reads.
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    roff.text([roman(format!("{title} - {}", about.split_whitespace().collect::<Vec<_>>().join(" ")))]);
    roff.to_writer(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    for section in manual::sections(command) {
        roff.control("SH", [section.title.to_uppercase().as_str()]);
        roff.control("nf", []);
        for line in &section.lines {
            roff.text([roman(line.as_str())]);
        }
        roff.control("fi", []);
    }
    if let Some((above, _)) = name.rsplit_once(' ') {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold(above.replace(' ', "-")), roman("(1)")]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}
