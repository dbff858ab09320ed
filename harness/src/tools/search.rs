//! `grep` and `glob`: ripgrep's own search and ignore rules, in path order, 200 lines (spec H-25).

use super::Job;
use globset::{GlobBuilder, GlobMatcher};
use grep::regex::RegexMatcherBuilder;
use grep::searcher::sinks::Bytes;
use grep::searcher::{BinaryDetection, SearcherBuilder};
use ignore::WalkBuilder;
use rustix::fs::FileType;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most lines of output.
pub(super) const LINES_MAX: usize = 200;
/// Most characters of one line that are shown.
const LINE_MAX_CHARS: usize = 400;
/// Longest pattern in bytes.
const PATTERN_MAX_BYTES: usize = 4 << 10;
/// Longest search: what it found by then is shown.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Most memory for one line of a searched file, in bytes.
const HEAP_MAX_BYTES: usize = 64 << 20;

#[derive(Debug, Deserialize)]
pub(super) struct Grep {
    #[serde(alias = "query", alias = "regex")]
    pattern: String,
    path: Option<String>,
    #[serde(alias = "include")]
    glob: Option<String>,
    #[serde(rename = "ignoreCase", alias = "ignore_case", default)]
    ignore_case: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Glob {
    pattern: String,
    path: Option<String>,
}

/// Lines shown, and a count of the rest.
#[derive(Default)]
struct Lines {
    shown: Vec<String>,
    more: usize,
}

impl Lines {
    fn push(&mut self, line: impl FnOnce() -> String) {
        if self.shown.len() < LINES_MAX {
            self.shown.push(line());
        } else {
            self.more += 1;
        }
    }

    fn text(mut self, nothing: &str, cut_short: bool) -> String {
        if cut_short {
            self.shown.insert(0, format!("(stopped after {} s; not everything was searched)", TIME_MAX.as_secs()));
        }
        if self.shown.is_empty() {
            return nothing.to_owned();
        }
        if self.more > 0 {
            self.shown.push(format!("… {} more lines truncated — narrow the search", self.more));
        }
        self.shown.join("\n")
    }
}

pub(super) fn grep(job: &Job, args: Grep) -> Result<String, String> {
    bounded(&args.pattern)?;
    let matcher = RegexMatcherBuilder::new()
        .case_insensitive(args.ignore_case)
        .line_terminator(Some(b'\n'))
        .build(&args.pattern)
        .map_err(|error| format!("The pattern is wrong: {error}."))?;
    let filter = args.glob.as_deref().map(glob_matcher).transpose()?;
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(HEAP_MAX_BYTES))
        .line_number(true)
        .build();
    let mut lines = Lines::default();
    let cut_short = walk(job, args.path.as_deref(), |path, inner| {
        if filter.as_ref().is_some_and(|filter| !filter.is_match(inner)) {
            return;
        }
        // A file that went, or that is none, is no reason to fail the search.
        let Ok((file, _)) = job.root.open_file(path) else { return };
        let sink = Bytes(|number, line| {
            lines.push(|| format!("{}:{number}:{}", path.display(), shortened(line)));
            Ok(job.go_on().is_ok())
        });
        let _ = searcher.search_file(&matcher, &file, sink);
    })?;
    Ok(lines.text("No matches.", cut_short))
}

pub(super) fn glob(job: &Job, args: Glob) -> Result<String, String> {
    bounded(&args.pattern)?;
    // Models give absolute patterns too.
    let own = format!("{}/", job.root.path().display());
    let matcher = glob_matcher(args.pattern.strip_prefix(&own).unwrap_or(&args.pattern))?;
    let mut lines = Lines::default();
    let cut_short = walk(job, args.path.as_deref(), |path, inner| {
        if matcher.is_match(inner) {
            lines.push(|| path.display().to_string());
        }
    })?;
    Ok(lines.text("No files.", cut_short))
}

fn bounded(pattern: &str) -> Result<(), String> {
    if pattern.len() > PATTERN_MAX_BYTES {
        return Err(format!("The pattern is longer than {PATTERN_MAX_BYTES} bytes."));
    }
    Ok(())
}

/// A pattern without `/` matches in every folder, as ignore files read it.
fn glob_matcher(pattern: &str) -> Result<GlobMatcher, String> {
    bounded(pattern)?;
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let pattern = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    let glob = GlobBuilder::new(&pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| format!("The glob is wrong: {error}."))
}

fn shortened(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches(['\n', '\r']);
    match line.char_indices().nth(LINE_MAX_CHARS) {
        Some((at, _)) => format!("{} … (long line)", &line[..at]),
        None => line.to_owned(),
    }
}

/// Visits files in path order: the path from the root, and from where the search began. Gives whether time ran out.
fn walk(job: &Job, path: Option<&str>, mut visit: impl FnMut(&Path, &Path)) -> Result<bool, String> {
    let given = job.root.relative(path.unwrap_or("."))?;
    let (start, stat) = job.root.follow(&given)?.ok_or_else(|| format!("{} does not exist.", given.display()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {}
        FileType::RegularFile => {
            visit(&start, Path::new(start.file_name().unwrap_or_default()));
            return Ok(false);
        }
        _ => return Err(format!("{} is neither a file nor a directory.", given.display())),
    }
    let from = if start == Path::new(".") { job.root.path().to_owned() } else { job.root.path().join(&start) };
    let until = Instant::now() + TIME_MAX;
    let repository = has_repository(job, &from);
    let walker = WalkBuilder::new(&from)
        .hidden(false)
        .follow_links(false)
        // With it, ignore files count up to the repository's top and no further; without, a root of its own has its say.
        .require_git(repository)
        .git_global(false)
        .parents(repository)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build();
    for entry in walker.flatten() {
        job.go_on()?;
        if Instant::now() > until {
            return Ok(true);
        }
        if !entry.file_type().is_some_and(|kind| kind.is_file() || kind.is_symlink()) {
            continue;
        }
        if let Ok(inside) = entry.path().strip_prefix(job.root.path()) {
            visit(inside, entry.path().strip_prefix(&from).unwrap_or(inside));
        }
    }
    Ok(false)
}

/// Whether ignore files above `from` count: only within a repository that lies in the Sandbox. The folders around a
/// Sandbox may ignore all of it.
fn has_repository(job: &Job, from: &Path) -> bool {
    let sandbox: Option<PathBuf> = job.sandbox.as_ref().and_then(|path| path.canonicalize().ok());
    from.ancestors()
        .take_while(|folder| sandbox.as_ref().is_none_or(|sandbox| folder.starts_with(sandbox)))
        .any(|folder| folder.join(".git").exists())
}

#[cfg(test)]
mod tests {
    use crate::tools::testing::Bench;
    use serde_json::json;

    fn bench() -> Bench {
        let bench = Bench::new();
        bench.file(".gitignore", "target/\n*.log\n");
        bench.file("src/b.rs", "fn main() {}\n// MARK two\n");
        bench.file("src/a.rs", "// mark one\n");
        bench.file("src/deep/c.txt", "MARK three");
        bench.file("target/x.rs", "MARK hidden");
        bench.file("y.log", "MARK hidden");
        bench.file(".github/ci.yml", "MARK four\n");
        bench.file(".git/config", "MARK hidden");
        bench.file("bin", "MARK\0");
        bench
    }

    #[tokio::test]
    async fn grep_is_sorted_and_obeys_ignore_files() {
        let bench = bench();
        insta::assert_snapshot!(bench.ok("grep", json!({"pattern": "MARK"})).await, @r"
        .github/ci.yml:1:MARK four
        src/b.rs:2:// MARK two
        src/deep/c.txt:1:MARK three
        ");
        insta::assert_snapshot!(
            bench.ok("grep", json!({"pattern": "mark", "ignoreCase": true, "glob": "*.rs", "path": "src"})).await, @r"
        src/a.rs:1:// mark one
        src/b.rs:2:// MARK two
        ");
        assert_eq!(bench.ok("grep", json!({"pattern": "MARK", "path": "src/b.rs"})).await, "src/b.rs:2:// MARK two");
        assert_eq!(bench.ok("grep", json!({"pattern": "zzz"})).await, "No matches.");
        assert!(bench.err("grep", json!({"pattern": "("})).await.starts_with("The pattern is wrong"));
        assert!(bench.err("grep", json!({"pattern": "a", "path": "../"})).await.contains("outside"));
        assert!(bench.err("grep", json!({"pattern": "a", "path": "no"})).await.contains("does not exist"));
    }

    #[tokio::test]
    async fn output_ends_after_200_lines() {
        let bench = Bench::new();
        bench.file("a", &"x\n".repeat(205));
        bench.file("b", "x\n");
        let text = bench.ok("grep", json!({"pattern": "x"})).await;
        assert_eq!(text.lines().count(), 201);
        assert!(text.ends_with("a:200:x\n… 6 more lines truncated — narrow the search"));
        for n in 0..201 {
            bench.file(&format!("d/{n:03}"), "");
        }
        let text = bench.ok("glob", json!({"pattern": "d/*"})).await;
        assert!(text.ends_with("d/199\n… 1 more lines truncated — narrow the search"));
        bench.file("long", &"y".repeat(9_000));
        assert!(bench.ok("grep", json!({"pattern": "y"})).await.len() < 500);
    }

    #[tokio::test]
    async fn glob_matches_from_where_it_starts() {
        let bench = bench();
        assert_eq!(bench.ok("glob", json!({"pattern": "*.rs"})).await, "src/a.rs\nsrc/b.rs");
        assert_eq!(bench.ok("glob", json!({"pattern": "src/*"})).await, "src/a.rs\nsrc/b.rs");
        assert_eq!(bench.ok("glob", json!({"pattern": "**/*.txt", "path": "src"})).await, "src/deep/c.txt");
        let absolute = bench.path("src/*.rs").display().to_string();
        assert_eq!(bench.ok("glob", json!({"pattern": absolute})).await, "src/a.rs\nsrc/b.rs");
        assert_eq!(bench.ok("glob", json!({"pattern": "*.{py,go}"})).await, "No files.");
        assert!(bench.err("glob", json!({"pattern": "[z-"})).await.starts_with("The glob is wrong"));
    }

    #[tokio::test]
    async fn a_folder_around_the_sandbox_ignores_nothing_in_it() {
        let bench = Bench::new();
        let around = bench.path("..");
        std::fs::write(around.join(".gitignore"), "*\n").unwrap();
        bench.file("a.rs", "");
        assert_eq!(bench.ok("glob", json!({"pattern": "*.rs"})).await, "a.rs");
        // Within a repository the ignore file of its top counts below it too.
        bench.file(".git/HEAD", "");
        bench.file(".gitignore", "*.log\n");
        bench.file("sub/x.log", "");
        bench.file("sub/y.rs", "");
        assert_eq!(bench.ok("glob", json!({"pattern": "*", "path": "sub"})).await, "sub/y.rs");
    }
}
