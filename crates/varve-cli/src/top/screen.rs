//! What is done, on a screen that is drawn anew with each look.

use super::activity::{Activity, Look};
use super::keys::{Choice, LISTS, List};
use super::lines;
use crate::answer::printable;
use crate::session::Session;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use std::time::Duration;
use tokio::time::Instant;
use varve_api::{Code, Failure, Health};

/// For how long a key is awaited before anything else is looked at.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Most problems, and most jobs, that are shown beside a list.
const ASIDE_MAX: usize = 4;
/// Between two columns.
const SPACE: u16 = 2;

/// The terminal, which is as it was once this is dropped.
struct Screen(ratatui::DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows looks `every` so often until the user ends it. A daemon that cannot be reached is asked again.
pub(super) async fn show(session: &Session, first: Look, every: Duration) -> Result<(), Failure> {
    let mut screen = Screen(ratatui::try_init().map_err(|error| unusable(&error))?);
    let mut activity = Activity::between(&first, &first);
    let (mut before, mut choice, mut trouble, mut next) =
        (first, Choice::default(), None, Instant::now() + every);
    while !choice.is_over {
        let mut page = choice.page;
        screen
            .0
            .draw(|frame| page = draw(frame, &activity, choice, trouble.as_ref()))
            .map_err(|error| unusable(&error))?;
        choice.page = page;
        if event::poll(KEY_WAIT).map_err(|error| unusable(&error))?
            && let Event::Key(key) = event::read().map_err(|error| unusable(&error))?
            && key.is_press()
        {
            choice = choice.after(key, rows(&activity, choice.list).len());
        }
        if Instant::now() >= next {
            next = Instant::now() + every;
            match Look::take(session).await {
                Ok(now) => {
                    activity = Activity::between(&before, &now);
                    (before, trouble) = (now, None);
                }
                Err(failure) => trouble = Some(failure),
            }
        }
    }
    Ok(())
}

fn unusable(error: &std::io::Error) -> Failure {
    Failure::new(Code::FileUnusable, format!("the terminal cannot be used: {error}"))
        .help("varve top --count 1 prints lines")
}

/// Draws everything; how many rows of the list fit.
fn draw(frame: &mut Frame<'_>, activity: &Activity, choice: Choice, trouble: Option<&Failure>) -> usize {
    let problems = problems(activity, trouble);
    let jobs = activity.jobs.len().min(ASIDE_MAX);
    let jobs_height = if jobs == 0 { 0 } else { jobs + 1 };
    let heights = [1, problems.len(), 1].map(|height| Constraint::Length(height as u16));
    let [head, attention, lists, list, below, keys] = Layout::vertical([
        heights[0],
        heights[1],
        heights[2],
        Constraint::Min(2),
        Constraint::Length(jobs_height as u16),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let health = Style::new().fg(if activity.health == Health::Ok { Color::Green } else { Color::Red });
    frame.render_widget(Line::styled(lines::head(activity), health), head);
    frame.render_widget(Paragraph::new(Text::from(problems)), attention);
    frame.render_widget(names(choice.list), lists);
    let shown: Vec<_> = rows(activity, choice.list).into_iter().skip(choice.above).collect();
    render(frame, list, headings(choice.list), &shown);
    if jobs > 0 {
        let rows: Vec<_> = activity.jobs.iter().take(jobs).map(lines::job_row).collect();
        render(frame, below, &lines::JOBS, &rows);
    }
    let help = "q ends   1-4, Tab: another list   Up, Down, Page: rows";
    frame.render_widget(Line::styled(help, Style::new().add_modifier(Modifier::DIM)), keys);
    usize::from(list.height.saturating_sub(1)).max(1)
}

/// What is not as it should be, the daemon's absence first.
fn problems(activity: &Activity, trouble: Option<&Failure>) -> Vec<Line<'static>> {
    let style = Style::new().fg(Color::Yellow);
    let told = |text: String| Line::styled(printable(&text).into_owned(), style);
    let absent = trouble.map(|failure| told(format!("{} (asked again)", failure.message)));
    let wrong = activity
        .attention
        .iter()
        .map(|problem| told(format!("{}: {problem}; {}", problem.severity, problem.help)));
    absent.into_iter().chain(wrong).take(ASIDE_MAX).collect()
}

/// The names of the lists with their keys, the chosen one in relief.
fn names(chosen: List) -> Line<'static> {
    let style = |list: List| match list == chosen {
        true => Style::new().add_modifier(Modifier::REVERSED),
        false => Style::new(),
    };
    let name = |(index, list): (usize, List)| {
        [Span::styled(format!(" {} {list:?} ", index + 1), style(list)), Span::raw(" ")]
    };
    LISTS.into_iter().enumerate().flat_map(name).collect()
}

fn headings(list: List) -> &'static [&'static str] {
    match list {
        List::Volumes => &lines::VOLUMES,
        List::Exports => &lines::EXPORTS,
        List::Disks => &lines::DISKS,
        List::Pools => &lines::POOLS,
    }
}

fn rows(activity: &Activity, list: List) -> Vec<Vec<String>> {
    match list {
        List::Volumes => {
            let row =
                |it: &super::activity::VolumeActivity| lines::flow(&it.name, &it.per_second, it.connections);
            activity.volumes.iter().map(row).collect()
        }
        List::Exports => {
            let row = |it: &super::activity::ExportActivity| {
                let flow = lines::flow(&it.volume, &it.per_second, it.connections);
                [vec![it.id.clone(), it.door.to_string()], flow].concat()
            };
            activity.exports.iter().map(row).collect()
        }
        List::Disks => activity.disks.iter().map(lines::disk_row).collect(),
        List::Pools => activity.pools.iter().map(lines::pool_row).collect(),
    }
}

/// A table under headings; one that ends in `>` aligns its column to the right. The last columns are left out where there is no room
/// for all: a figure that is cut would be another figure.
fn render(frame: &mut Frame<'_>, area: Rect, headings: &[&'static str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|cells| cells[column].chars().count());
        cells.chain([headings[column].trim_end_matches('>').len()]).max().unwrap_or(0) as u16
    };
    let end = |end: &mut u16, column: usize| {
        *end = end.saturating_add(width(column) + if column == 0 { 0 } else { SPACE });
        (column == 0 || *end <= area.width).then_some(width(column))
    };
    let widths: Vec<u16> = (0..headings.len()).scan(0, end).collect();
    let cell = |(heading, text): (&&str, &str)| {
        let alignment = if heading.ends_with('>') { Alignment::Right } else { Alignment::Left };
        Cell::from(Text::from(printable(text).into_owned()).alignment(alignment))
    };
    let names: Vec<&str> = headings.iter().map(|heading| heading.trim_end_matches('>')).collect();
    let row = |texts: Vec<&str>| {
        Row::new(headings.iter().zip(texts).take(widths.len()).map(cell).collect::<Vec<_>>())
    };
    let body: Vec<Row<'_>> =
        rows.iter().map(|cells| row(cells.iter().map(String::as_str).collect())).collect();
    let head = row(names).style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(body, widths).header(head).column_spacing(SPACE), area);
}

#[cfg(test)]
mod tests {
    use super::super::activity::tests::{look, traffic};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const WIDTH: u16 = 99;

    /// The lines that are drawn on a screen of ten of them, and how many rows fit.
    fn drawn(activity: &Activity, choice: Choice, trouble: Option<&Failure>) -> (Vec<String>, usize) {
        let mut terminal = Terminal::new(TestBackend::new(WIDTH, 10)).expect("in memory");
        let mut page = 0;
        terminal.draw(|frame| page = draw(frame, activity, choice, trouble)).expect("in memory");
        let buffer = terminal.backend().buffer();
        let line =
            |y: u16| (0..WIDTH).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        ((0..10).map(line).collect(), page)
    }

    #[test]
    fn the_screen_shows_rates_problems_and_as_many_rows_as_fit() {
        let begun = Instant::now();
        let names: Vec<String> = (0..30).map(|index| format!("v{index:02}")).collect();
        let at = |reads: u64| {
            let counts =
                |(index, name): (usize, &String)| (name.clone(), traffic(reads * index as u64, 0, 0));
            names.iter().enumerate().map(counts).collect::<Vec<_>>()
        };
        let looked = |after: u64, reads: u64| {
            let volumes = at(reads);
            let volumes: Vec<_> =
                volumes.iter().map(|(name, counts)| (name.as_str(), counts.clone())).collect();
            look(begun, after, 5, &volumes)
        };
        let activity = Activity::between(&looked(0, 0), &looked(1, 10));
        let (lines, page) = drawn(&activity, Choice::default(), None);
        assert!(lines[0].starts_with("health: ok  read 17.0 MiB/s (4350/s)"), "{lines:?}");
        assert_eq!(lines[1], " 1 Volumes   2 Exports   3 Disks   4 Pools");
        assert!(lines[2].starts_with("VOLUME ") && lines[3].starts_with("data/v29 "), "{lines:?}");
        assert_eq!((page, lines[8].split(' ').next()), (6, Some("data/v24")));
        assert!(lines[9].starts_with("q ends"), "{lines:?}");
        let below = Choice { above: 24, ..Choice::default() };
        assert!(drawn(&activity, below, None).0[8].starts_with("data/v00"));
        let absent = Failure::new(Code::NoDaemon, "no daemon \u{1b}[2J");
        let (lines, page) = drawn(&activity, Choice::default(), Some(&absent));
        assert_eq!((lines[1].as_str(), page), ("no daemon \\u{1b}[2J (asked again)", 5));
        let (lines, _) = drawn(&activity, Choice { list: List::Exports, ..Choice::default() }, None);
        assert_eq!(
            [lines[2].as_str(), &lines[3]],
            [
                "EXPORT  DOOR  VOLUME            READ  WRITE  READS/s  WRITES/s  FLUSHES/s  DISCARDS/s  ERRORS/s",
                "e-v29   nbd   data/v29     1.1 MiB/s      -      290         -          -           -         -",
            ],
            "there is no room for the clients"
        );
    }
}
