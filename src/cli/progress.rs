//! What a run shows on stderr while it goes on, and when it has come to its end.

use std::{
    collections::HashMap,
    fmt,
    io::Write,
    sync::{Mutex, PoisonError},
};

use greenroom::{
    Occurrence, SessionId,
    run::{News, Observer, Progress as Far, RunReport},
    session::text::Escaped,
};

use super::{
    bar::{Bar, Unit},
    paint::{Paint, Role},
    span,
    terminal::Terminal,
};

/// Watches a run: a bar where somebody looks, and with `-v` a line per finished turn.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Bar,
    paint: Paint,
    turns_too: bool,
    /// The root once it is there, and the labels of the children that were seen to be created.
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    root: Option<SessionId>,
    labels: HashMap<SessionId, String>,
}

impl Progress {
    /// Watches on this terminal.
    pub(crate) fn new(terminal: &Terminal) -> Self {
        let bar = Bar::new(terminal, Unit::Of("children settled"), 0);
        Self { bar, paint: terminal.paint_err(), turns_too: terminal.verbose() > 0, seen: Mutex::default() }
    }

    /// Returns the root, once the run has opened it.
    pub(crate) fn root(&self) -> Option<SessionId> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).root.clone()
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.end();
    }

    fn remark(&self, line: impl fmt::Display) {
        // Nobody reading it is no failure.
        self.bar.beside(|| drop(writeln!(std::io::stderr(), "{line}")));
    }

    fn happened(&self, occurrence: &Occurrence, far: Far) {
        match occurrence {
            Occurrence::Created { session, label: Some(label), .. } if self.turns_too => {
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).labels.insert(session.clone(), Escaped(label).to_string());
            }
            Occurrence::TurnEnded { session, turn, reason } if self.turns_too => {
                let name = match self.seen.lock().unwrap_or_else(PoisonError::into_inner).labels.get(session) {
                    Some(label) => format!("{} ({label})", Escaped(session.as_str())),
                    None => Escaped(session.as_str()).to_string(),
                };
                let role = if matches!(reason.as_str(), "completed") { Role::Good } else { Role::Bad };
                let code = reason.error_code().map_or_else(String::new, |code| format!(" [{}]", Escaped(code)));
                self.remark(format_args!("{name} turn {turn} {}", self.paint.show(role, format_args!("{}{code}", reason.as_str()))));
            }
            _ => {}
        }
        // The root is live too.
        let busy = far.live.saturating_sub(1).min(far.children);
        self.bar.length(far.children);
        self.bar.stand(far.children - busy);
        let failed = if far.failed > 0 { format!(" · {} failed", far.failed) } else { String::new() };
        self.bar.say(format_args!("{}{failed}", span::count(far.turns, "turn")));
    }
}

impl Observer for Progress {
    fn observe(&self, news: News<'_>) {
        match news {
            News::Opened { root, .. } => {
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).root = Some(root.clone());
                self.remark(format_args!("root {}", Escaped(root.as_str())));
            }
            News::ProgramChanged { .. } => {
                let warning = self.paint.show(Role::Odd, "warning");
                self.remark(format_args!("{warning}: the program file has changed since the root was opened; the new one is used"));
            }
            News::Ending { .. } => self.remark("ending in good order; a second signal ends at once"),
            News::Happened { occurrence, progress } => self.happened(occurrence, progress),
            _ => {}
        }
    }
}

/// Says in one line what a run did.
pub(crate) fn summary(report: &RunReport) -> String {
    let mut line = format!(
        "{}, {}, {}, {} failed, {}",
        span::count(report.turns, "turn"),
        span::count(report.messages, "message"),
        if report.children == 1 { "1 child".to_owned() } else { format!("{} children", report.children) },
        report.failed,
        span::span(report.wall_ms),
    );
    if let Some(peak) = peak_bytes() {
        line = format!("{line}, peak memory {}", span::bytes(peak));
    }
    line
}

/// The most memory that this process has had resident, where the system tells.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}
